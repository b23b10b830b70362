"""Rules, their defaults and what an operator's files make of them.

Source: placement-api.md, "Authorisation", "Policy rules".
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from placement.http.gate import guarded_by
from placement.http.rules import READER, list_rules
from placement.samples import samples
from placement.storage.database import Database
from tests.client import Client, detail
from tests.conftest import application_of, configured, with_options

ETC = Path(__file__).resolve().parents[1] / "etc"


@contextmanager
def service(database: Database, directory: Path, **options: Any) -> Iterator[Client]:
    """The service with a policy directory and options of oslo.policy."""
    file = directory / "placement.conf"
    file.touch()
    settings = with_options(configured(file, **options), auth_strategy="noauth2")
    with application_of(database, settings) as application:
        yield Client(application.test_client())


def test_every_route_has_a_rule_and_every_rule_a_route():
    documented = {rule.name for rule in list_rules() if rule.name.startswith("placement:")}
    assert documented - {READER} == guarded_by()


def test_rules_have_the_names_of_the_field():
    names = {rule.name for rule in list_rules()}
    assert {
        "admin_api",
        "service_api",
        "admin_or_service_api",
        "project_reader_api",
        "admin_or_project_reader_or_service_api",
        "placement:resource_providers:inventories:update",
        "placement:allocations:manage",
        "placement:reshaper:reshape",
        "placement:usages",
    } <= names


_READ = [
    *("/resource_providers", "/traits", "/resource_classes", "/usages?project_id=other"),
    *("/allocation_candidates?resources=VCPU:1", f"/allocations/{uuid.UUID(int=1)}"),
    *("/ext/v1/status", "/ext/v1/hosts", "/ext/v1/aggregates", "/ext/v1/allocations", "/ext/v1/clusters"),
    *("/ext/v1/audit", "/ext/v1/events", "/ext/v1/capacity?resources=VCPU:1"),
    *("/ui/", "/ui/map", "/ui/hosts", "/ui/consumers", "/ui/pods", "/ui/changes", "/ui/refusals"),
    *("/ui/why?query=resources%3DVCPU:1", "/ui/room?kind=flavor&vcpus=1&ram=0", "/ui/moves?goal=free&free=1"),
]


def test_the_role_reader_may_read_everything_where_one_rule_says_so(
    embedded_database: Database, tmp_path: Path
):
    (tmp_path / "policy.yaml").write_text(f'"{READER}": "role:reader"\n')
    with service(embedded_database, tmp_path) as api:
        host = api.provider("host", VCPU=8)
        reader = api.as_("anna", X_Roles="reader")
        for path in _READ:
            assert reader.get(path).status_code == 200, path
        search = {"groups": {"": {"resources": {"VCPU": 1}}}}
        assert reader.post("/ext/v1/allocation_candidates", search).status_code == 200
        flavor = {"flavor": {"vcpus": 1, "memory_mb": 0}}
        assert reader.post("/ext/v1/flavors/candidates", flavor).status_code == 200
        for method, path in (
            ("PUT", "/traits/CUSTOM_X"),
            ("DELETE", f"/resource_providers/{host}"),
            ("POST", "/ext/v1/claims"),
            ("PUT", "/ext/v1/clusters/edge"),
            ("POST", "/reshaper"),
            ("PUT", f"/allocations/{uuid.UUID(int=1)}"),
        ):
            assert reader.call(method, path, {}).status_code == 403, path
        assert "Release" not in reader.get("/ui/why?query=resources%3DVCPU:1").text
        assert api.as_("otto", X_Roles="member").get("/ext/v1/hosts").status_code == 403


def test_a_reader_reads_nothing_more_by_default(embedded_database: Database, tmp_path: Path):
    with service(embedded_database, tmp_path) as api:
        reader = api.as_("anna", X_Roles="reader", X_Project_Id="own")
        for path in _READ:
            assert reader.get(path).status_code == 403, path


def test_a_rule_of_the_operator_binds_readers_too(embedded_database: Database, tmp_path: Path):
    (tmp_path / "policy.yaml").write_text(
        f'"{READER}": "role:reader"\n"placement:audit:list": "role:audit"\n'
    )
    with service(embedded_database, tmp_path) as api:
        assert api.as_("anna", X_Roles="reader").get("/ext/v1/audit").status_code == 403
        assert api.as_("anna", X_Roles="reader").get("/ext/v1/hosts").status_code == 200


@pytest.mark.parametrize(
    ("enforced", "roles", "status"),
    [
        (True, "admin", 403),
        (True, "service", 400),
        (False, "admin", 400),
        (False, "service", 400),
        (False, "member", 403),
    ],
)
def test_reshaping_is_for_services_and_with_old_defaults_for_administrators(
    embedded_database: Database, tmp_path: Path, enforced: bool, roles: str, status: int
):
    with service(embedded_database, tmp_path, enforce_new_defaults=enforced) as api:
        answer = api.as_("somebody", X_Roles=roles).post("/reshaper", {})
        assert answer.status_code == status
        if status == 403:
            assert detail(answer) == "Policy does not allow placement:reshaper:reshape to be performed."


@pytest.mark.parametrize("roles", ["admin", "service"])
def test_administrators_and_services_may_do_the_rest(embedded_database: Database, tmp_path: Path, roles: str):
    with service(embedded_database, tmp_path) as api:
        assert api.as_("somebody", X_Roles=roles).get("/resource_providers").status_code == 200


def test_policy_file_overrides_a_default(embedded_database: Database, tmp_path: Path):
    (tmp_path / "policy.yaml").write_text('"placement:traits:list": "role:watcher"\n')
    with service(embedded_database, tmp_path) as api:
        assert api.as_("somebody", X_Roles="watcher").get("/traits").status_code == 200
        assert api.as_("somebody", X_Roles="watcher").get("/resource_providers").status_code == 403
        assert api.as_("somebody", X_Roles="service").get("/traits").status_code == 403


def test_policy_directory_overrides_the_file(embedded_database: Database, tmp_path: Path):
    (tmp_path / "policy.yaml").write_text('"placement:traits:list": "!"\n')
    (tmp_path / "policy.d").mkdir()
    (tmp_path / "policy.d" / "10-traits.yaml").write_text('"placement:traits:list": "@"\n')
    with service(embedded_database, tmp_path) as api:
        assert api.as_("anybody").get("/traits").status_code == 200


def test_base_rule_can_be_overridden(embedded_database: Database, tmp_path: Path):
    (tmp_path / "policy.yaml").write_text('"service_api": "role:nova"\n')
    with service(embedded_database, tmp_path) as api:
        assert api.as_("somebody", X_Roles="nova").post("/reshaper", {}).status_code == 400
        assert api.as_("somebody", X_Roles="service").post("/reshaper", {}).status_code == 403


@pytest.mark.parametrize("text", ["", "[oslo_policy]\nenforce_scope = false\n"])
def test_scope_is_enforced_whatever_old_configurations_say(
    embedded_database: Database, tmp_path: Path, text: str
):
    (tmp_path / "placement.conf").write_text(text)
    with service(embedded_database, tmp_path) as api:
        caller = api.as_("admin", OpenStack_System_Scope="all")
        assert caller.get("/resource_providers").status_code == 403


@pytest.mark.parametrize("name", samples())
def test_samples_are_current(name: str):
    assert (ETC / name).read_text() == samples()[name], "run python -m placement.samples"


def test_policy_sample_is_yaml_that_changes_nothing():
    text = (ETC / "policy.yaml.sample").read_text()
    assert yaml.safe_load(text) is None
    rules = yaml.safe_load("\n".join(line[1:] for line in text.splitlines() if line.startswith('#"')))
    assert rules == {rule.name: rule.check_str for rule in list_rules()}
