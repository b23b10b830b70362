"""Rules that cannot be used keep the service from starting, and disturb no running one."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from oslo_config import cfg

from placement.http import policy, policy_files
from placement.http.policy import Policy
from placement.http.policy_files import BadPolicy
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import application_of, configured, with_options
from tests.patience import eventually

GOOD_RULES = '"placement:resource_providers:list": "role:watcher"\n'
BROKEN = {
    "no YAML": '"placement:traits:list": [',
    "a list": "- a\n",
    "text": "nonsense\n",
    "a number": '"placement:traits:list": 5\n',
    "a word": '"placement:traits:list": "admin"\n',
    "a word among checks": '"placement:traits:list": "role:admin and reader"\n',
    "no end": '"placement:traits:list": "(role:admin or role:reader"\n',
    "an unknown rule": '"placement:traits:list": "rule:adminn_api"\n',
    "a circle": '"a": "rule:b"\n"b": "rule:a"\n"placement:traits:list": "rule:a"\n',
    "no UTF-8": "\udcff",
}


def write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    path.chmod(0o600)


@pytest.fixture(autouse=True)
def nothing_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """No start of a service in this process has left its rules."""
    monkeypatch.setattr(policy_files, "prepared", [])


@pytest.fixture
def settings(tmp_path: Path) -> cfg.ConfigOpts:
    file = tmp_path / "placement.conf"
    file.touch()
    return with_options(configured(file), auth_strategy="noauth2")


@pytest.mark.parametrize("case", BROKEN)
def test_broken_rules_keep_the_service_from_starting(settings: cfg.ConfigOpts, tmp_path: Path, case: str):
    write(tmp_path / "policy.yaml", BROKEN[case])
    with pytest.raises(BadPolicy, match="polic") as refused:
        Policy(settings)
    assert "\n" not in str(refused.value)


def test_rules_that_break_later_change_nothing(
    embedded_database: Database,
    settings: cfg.ConfigOpts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(policy, "_MEMORY_SECONDS", 0.05)
    write(tmp_path / "policy.yaml", GOOD_RULES)
    with application_of(embedded_database, settings) as application:
        api = Client(application.test_client())
        watcher, service = (api.as_("somebody", X_Roles=role) for role in ("watcher", "service"))

        def statuses() -> tuple[int, int]:
            return watcher.get("/resource_providers").status_code, service.get("/traits").status_code

        def said() -> list[str]:
            # Other loggers may say more where other tests have set their levels.
            return [record.getMessage() for record in caplog.records if record.name == "placement.http.gate"]

        assert statuses() == (200, 200)
        write(tmp_path / "policy.yaml", BROKEN["a circle"])
        with caplog.at_level(logging.ERROR, logger="placement"):
            eventually((200, 200, True), lambda: (*statuses(), bool(said())))
            # It is said once, not with every request.
            time.sleep(0.2)
            assert statuses() == (200, 200)
        (message,) = said()
        assert "stay as they were" in message
        write(tmp_path / "policy.yaml", '"placement:resource_providers:list": "role:other"\n')
        eventually(403, lambda: watcher.get("/resource_providers").status_code)


def test_broken_rules_in_the_directory_count_as_well(settings: cfg.ConfigOpts, tmp_path: Path):
    (tmp_path / "policy.d").mkdir()
    write(tmp_path / "policy.d" / ".hidden", BROKEN["no YAML"])
    Policy(settings)
    write(tmp_path / "policy.d" / "a.yaml", BROKEN["no YAML"])
    with pytest.raises(BadPolicy, match=r"a\.yaml"):
        Policy(settings)


def test_rules_that_refuse_everybody_are_rules(
    embedded_database: Database, settings: cfg.ConfigOpts, tmp_path: Path
):
    write(
        tmp_path / "policy.yaml", '"placement:traits:list": "!"\n"x": "not (! or role:a)"\n"y": []\n"z": ""\n'
    )
    with application_of(embedded_database, settings) as application:
        assert Client(application.test_client()).get("/traits").status_code == 403
