"""Tokens of OpenStack Identity count for what they were issued for: a project, not a domain or the system.

The table is what the incumbent (16.0.0) answers to the same tokens with the same roles.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from placement.app import ApiSettings
from placement.storage.database import Database
from tests.client import Client, detail
from tests.conftest import application_of, configured
from tests.identity_service import IdentityService, domain_token, project_token, system_token, unscoped_token

ROLES = ("admin", "reader", "member", "service")
TOKENS: dict[str, dict[str, Any]] = {
    **{f"project-{role}": project_token(role, project="zoo") for role in ROLES},
    **{f"domain-{role}": domain_token(role) for role in ROLES},
    **{f"system-{role}": system_token(role) for role in ROLES},
    "unscoped": unscoped_token(),
    "unscoped-reader": {**unscoped_token(), "roles": [{"id": "reader", "name": "reader"}]},
}
CONSUMER = "00000000-0000-0000-0000-000000000001"
ROUTES = {
    "resource_providers:list": ("GET", "/resource_providers", 200),
    "resource_classes:list": ("GET", "/resource_classes", 200),
    "traits:list": ("GET", "/traits", 200),
    "allocations:list": ("GET", f"/allocations/{CONSUMER}", 200),
    "allocation_candidates:list": ("GET", "/allocation_candidates", 400),
    "clusters:list": ("GET", "/ext/v1/clusters", 200),
}


@pytest.fixture(scope="module")
def identity() -> Iterator[IdentityService]:
    with IdentityService(TOKENS).running() as service:
        yield service


@contextmanager
def service(database: Database, identity: IdentityService, **policy: Any) -> Iterator[Client]:
    """The service that asks this Identity about tokens."""
    configuration = configured(**policy)
    identity.configure(configuration)
    settings = ApiSettings(configuration=configuration, auth_strategy="keystone")
    with application_of(database, settings) as application:
        yield Client(application.test_client())


@pytest.fixture(scope="module")
def api(embedded_database: Database, identity: IdentityService) -> Iterator[Client]:
    with service(embedded_database, identity) as client:
        yield client


@pytest.mark.parametrize("rule", ROUTES)
@pytest.mark.parametrize("role", ROLES)
def test_project_tokens_count_by_their_role(api: Client, rule: str, role: str):
    method, path, passed = ROUTES[rule]
    answer = api.as_(f"project-{role}").call(method, path)
    if role in ("admin", "service"):
        assert answer.status_code == passed
    else:
        assert answer.status_code == 403
        assert detail(answer) == f"Policy does not allow placement:{rule} to be performed."


@pytest.mark.parametrize("rule", ROUTES)
@pytest.mark.parametrize("scope", ["domain", "system"])
@pytest.mark.parametrize("role", ROLES)
def test_other_scopes_are_refused_whatever_the_role(api: Client, rule: str, scope: str, role: str):
    method, path, _ = ROUTES[rule]
    answer = api.as_(f"{scope}-{role}").call(method, path)
    assert answer.status_code == 403
    # In the incumbent's words: a refusal of the scope is the name of the rule alone.
    assert detail(answer) == f"placement:{rule}"


@pytest.mark.parametrize("token", ["unscoped", "unscoped-reader"])
@pytest.mark.parametrize("rule", ROUTES)
def test_tokens_without_scope_are_refused(api: Client, token: str, rule: str):
    method, path, _ = ROUTES[rule]
    assert api.as_(token).call(method, path).status_code == 403


@pytest.mark.parametrize(
    ("token", "project", "status"),
    [
        ("project-reader", "zoo", 200),
        ("project-reader", "farm", 403),
        ("project-reader", "None", 403),
        ("project-reader", "", 403),
        ("project-member", "zoo", 403),
        ("project-admin", "farm", 200),
        ("project-service", "farm", 200),
        ("domain-reader", "customer1", 403),
        ("domain-reader", "None", 403),
        ("system-reader", "None", 403),
        ("unscoped-reader", "None", 403),
        ("unscoped-reader", "", 403),
        ("unscoped-reader", "somebody", 403),
    ],
)
def test_use_of_a_project_is_for_its_readers(api: Client, token: str, project: str, status: int):
    assert api.as_(token).get(f"/usages?project_id={project}").status_code == status


def test_use_of_no_project_is_for_no_reader(api: Client):
    assert api.as_("unscoped-reader").get("/usages").status_code == 403


@pytest.mark.parametrize(
    ("token", "enforced", "status"),
    [
        ("project-admin", True, 403),
        ("project-admin", False, 400),
        ("project-service", True, 400),
        ("domain-admin", False, 403),
        ("system-admin", False, 403),
        ("domain-service", True, 403),
    ],
)
def test_older_defaults_do_not_widen_the_scope(
    embedded_database: Database, identity: IdentityService, token: str, enforced: bool, status: int
):
    with service(embedded_database, identity, enforce_new_defaults=enforced) as api:
        assert api.as_(token).post("/reshaper", {}).status_code == status


def test_forged_identity_headers_count_for_nothing(api: Client):
    forged = {"X_Domain_Id": "", "X_Roles": "admin", "X_Project_Id": "zoo", "X_User_Id": "root"}
    assert api.as_("project-member", **forged).get("/traits").status_code == 403
    assert api.as_("domain-admin", **forged).get("/traits").status_code == 403
    assert api.as_(None, **forged).get("/traits").status_code == 401
    assert api.as_("unknown", **forged).get("/traits").status_code == 401


def test_a_token_in_another_header_makes_nobody_known(api: Client):
    assert api.as_(None, X_Storage_Token="project-admin").get("/traits").status_code == 401
    assert api.as_(None).get("/traits").status_code == 401
