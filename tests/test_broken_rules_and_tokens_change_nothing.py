"""Rules and tokens that cannot be used keep the service from starting, and disturb no running one."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from oslo_config import cfg

from placement.app import build
from placement.http.gate import BadPolicy
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import configured as configuration_in
from tests.conftest import with_options
from tests.server import database_url

OLD = "o" * 40
PATIENCE = 60
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


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)


def write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    path.chmod(0o600)


# -- rules, in this process ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with database_url("sqlite") as url:
        database = Database(url)
        yield database
        database.dispose()


@pytest.fixture
def settings(tmp_path: Path) -> cfg.ConfigOpts:
    file = tmp_path / "placement.conf"
    file.touch()
    return with_options(configuration_in(file), auth_strategy="noauth2")


@pytest.mark.parametrize("case", BROKEN)
def test_broken_rules_keep_the_service_from_starting(
    database: Database, settings: cfg.ConfigOpts, tmp_path: Path, case: str
):
    write(tmp_path / "policy.yaml", BROKEN[case])
    with pytest.raises(BadPolicy, match="polic") as refused:
        build(database, settings)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("case", BROKEN)
def test_rules_that_break_later_change_nothing(
    database: Database, settings: cfg.ConfigOpts, tmp_path: Path, case: str, caplog: pytest.LogCaptureFixture
):
    write(tmp_path / "policy.yaml", GOOD_RULES)
    application = build(database, settings)
    api = Client(application.test_client())
    watcher, service = (api.as_("somebody", X_Roles=role) for role in ("watcher", "service"))

    def statuses() -> tuple[int, int]:
        return watcher.get("/resource_providers").status_code, service.get("/traits").status_code

    def said() -> list[str]:
        # Other loggers may say more where other tests have set their levels.
        return [record.getMessage() for record in caplog.records if record.name == "placement.http.gate"]

    assert statuses() == (200, 200)
    write(tmp_path / "policy.yaml", BROKEN[case])
    with caplog.at_level(logging.ERROR, logger="placement"):
        until(lambda: statuses() == (200, 200) and bool(said()))
        # It is said once, not with every request.
        time.sleep(1.1)
        assert statuses() == (200, 200)
    (message,) = said()
    assert "stay as they were" in message
    write(tmp_path / "policy.yaml", '"placement:resource_providers:list": "role:other"\n')
    until(lambda: watcher.get("/resource_providers").status_code == 403)
    (tmp_path / "policy.yaml").unlink()
    until(lambda: service.get("/resource_providers").status_code == 200)
    application.extensions["placement_use_cases"].close()


def test_broken_rules_in_the_directory_count_as_well(
    database: Database, settings: cfg.ConfigOpts, tmp_path: Path
):
    (tmp_path / "policy.d").mkdir()
    write(tmp_path / "policy.d" / ".hidden", BROKEN["no YAML"])
    application = build(database, settings)
    application.extensions["placement_use_cases"].close()
    write(tmp_path / "policy.d" / "a.yaml", BROKEN["no YAML"])
    with pytest.raises(BadPolicy, match=r"a\.yaml"):
        build(database, settings)


def test_rules_that_refuse_everybody_are_rules(database: Database, settings: cfg.ConfigOpts, tmp_path: Path):
    write(
        tmp_path / "policy.yaml", '"placement:traits:list": "!"\n"x": "not (! or role:a)"\n"y": []\n"z": ""\n'
    )
    application = build(database, settings)
    assert Client(application.test_client()).get("/traits").status_code == 403
    application.extensions["placement_use_cases"].close()


# -- the real service ------------------------------------------------------------------------------------


def tokens(*known: str) -> str:
    return "".join(f"{token}: {{user: u, roles: [admin]}}\n" for token in known)


@pytest.fixture
def configured(tmp_path: Path) -> list[str]:
    """The arguments for a service with a file of tokens and one of rules."""
    write(tmp_path / "tokens.yaml", tokens(OLD))
    write(tmp_path / "policy.yaml", "")
    file = tmp_path / "placement.conf"
    file.write_text(f"[api]\nauth_strategy = token\ntokens_file = {tmp_path}/tokens.yaml\n")
    return ["--config-file", str(file)]


@pytest.mark.parametrize(
    ("name", "text", "mode"),
    [
        ("tokens.yaml", "yes: {user: u}\n", 0o600),
        ("tokens.yaml", tokens(OLD), 0o644),
        ("tokens.yaml", None, 0),
        ("policy.yaml", BROKEN["no YAML"], 0o600),
        ("policy.yaml", BROKEN["a word"], 0o600),
    ],
)
def test_the_command_says_what_is_wrong_and_ends(
    configured: list[str], tmp_path: Path, name: str, text: str | None, mode: int
):
    path = tmp_path / name
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
        path.chmod(mode)
    command = [sys.executable, "-m", "placement.client", "serve", *configured]
    command += ["--database", f"sqlite:///{tmp_path}/x.sqlite"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("placement: ")
    assert name in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "listens" not in refused.stdout
