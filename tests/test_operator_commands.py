"""placement-manage and placement-status, and what a start does.

Source: placement-api.md, "Server commands".
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from placement.server import manage, settings, status
from placement.server.options import GROUPS
from tests.patience import PATIENCE_SECONDS, eventually
from tests.server import BACKENDS, database_url, running_service

DOCUMENTED = Path(__file__).resolve().parents[1] / "docs" / "operating.md"


@pytest.fixture(autouse=True)
def logging_as_it_was(monkeypatch):
    """Logging is of the whole process, so commands that run inside this one must not set it up."""
    monkeypatch.setattr(settings, "start_logging", lambda _: None)


@pytest.fixture
def use(monkeypatch):
    def choose(url: str) -> None:
        monkeypatch.setenv(settings.CONNECTION_VARIABLE, url)

    return choose


@pytest.fixture(params=BACKENDS)
def empty(request, use):
    with database_url(request.param, migrated=False) as url:
        use(url)
        yield url


def test_sync_is_idempotent_and_version_follows(empty: str, capsys):
    assert manage.main(["db", "version"]) == 0
    assert capsys.readouterr().out == "None\n"
    for _ in range(2):
        assert manage.main(["db", "sync"]) == 0
    capsys.readouterr()
    assert manage.main(["db", "version"]) == 0
    assert capsys.readouterr().out.strip() not in ("", "None")


def test_stamp_records_without_migrating(empty: str, capsys):
    assert manage.main(["db", "stamp", "0001"]) == 0
    capsys.readouterr()
    manage.main(["db", "version"])
    assert capsys.readouterr().out == "0001\n"


def test_failures_go_to_stderr(use, tmp_path: Path, capsys):
    use(f"sqlite:///{tmp_path}/x.sqlite")
    assert manage.main(["db", "stamp", "nothing"]) == 1
    assert "placement-manage: " in capsys.readouterr().err
    use("postgresql://nobody@127.0.0.1:1/none")
    assert manage.main(["db", "sync"]) == 1
    assert "placement-manage: " in capsys.readouterr().err


def test_help_instead_of_a_command(capsys):
    assert manage.main(["db"]) == 0
    assert manage.main([]) == 1
    assert "online_data_migrations" in capsys.readouterr().out


@pytest.mark.parametrize("count", ["0", "-1", "x", "1.5", ""])
def test_count_must_be_positive(use, tmp_path: Path, capsys, count: str):
    use(f"sqlite:///{tmp_path}/x.sqlite")
    assert manage.main(["db", "online_data_migrations", f"--max-count={count}"]) == 127
    assert "Must supply a positive value for max_count" in capsys.readouterr().err


def test_nothing_to_heal(empty: str, capsys):
    manage.main(["db", "sync"])
    capsys.readouterr()
    assert manage.main(["db", "online_data_migrations"]) == 0
    printed = capsys.readouterr().out
    assert "Running batches of 50 until complete" in printed
    assert [cell.strip() for cell in printed.splitlines()[2].split("|")[1:4]] == [
        "Migration",
        "Total Found",
        "Completed",
    ]
    assert manage.main(["db", "online_data_migrations", "--max-count", "5"]) == 0


@pytest.fixture
def wounded(use, tmp_path: Path) -> str:
    """A database with 3 providers that lack their root and 2 consumers that lack a record."""
    path = tmp_path / "old.sqlite"
    use(f"sqlite:///{path}")
    manage.main(["db", "sync"])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA foreign_keys=OFF")
    for number, parent in ((1, None), (2, 1), (3, 2)):
        connection.execute(
            "INSERT INTO resource_providers (id, uuid, name, generation, parent_provider_id, revision)"
            " VALUES (?, ?, ?, 0, ?, 0)",
            (number, f"00000000-0000-0000-0000-00000000000{number}", f"old{number}", parent),
        )
    for consumer in ("c1", "c2"):
        connection.execute(
            "INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used)"
            " VALUES (1, ?, 1, 1)",
            (consumer,),
        )
    connection.commit()
    connection.close()
    return str(path)


def test_check_tells_what_needs_healing(wounded: str, capsys):
    assert status.main(["upgrade", "check"]) == 2
    printed = capsys.readouterr().out
    assert "Check: Missing Root Provider IDs" in printed
    assert "Result: Failure" in printed
    assert "Result: Warning" in printed
    assert "3 providers lack a root" in printed
    assert "2 consumers lack a record" in printed


def test_healing_in_steps_and_at_once(wounded: str, capsys):
    assert manage.main(["db", "online_data_migrations", "--max-count", "1"]) == 1
    assert manage.main(["db", "online_data_migrations"]) == 0
    assert manage.main(["db", "online_data_migrations", "--max-count", "1"]) == 0
    assert status.main(["upgrade", "check"]) == 0
    connection = sqlite3.connect(wounded)
    roots = connection.execute("SELECT DISTINCT root_provider_id FROM resource_providers").fetchall()
    assert roots == [(1,)]
    assert connection.execute("SELECT uuid FROM consumers ORDER BY uuid").fetchall() == [("c1",), ("c2",)]
    connection.close()


def test_check_of_a_clean_database_succeeds(empty: str, capsys):
    manage.main(["db", "sync"])
    capsys.readouterr()
    assert status.main(["upgrade", "check"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("Result: Success") == 3
    assert "Check: Policy File JSON to YAML Migration" in printed


def test_json_policy_file_fails_the_check(use, tmp_path: Path, capsys):
    use(f"sqlite:///{tmp_path}/x.sqlite")
    manage.main(["db", "sync"])
    (tmp_path / "policy.json").write_text("{}")
    file = tmp_path / "placement.conf"
    file.write_text("[oslo_policy]\npolicy_file = policy.json\n")
    assert status.main(["--config-file", str(file), "upgrade", "check"]) == 2


def test_a_database_without_tables_is_255(use, tmp_path: Path, capsys):
    use(f"sqlite:///{tmp_path}/empty.sqlite")
    assert status.main(["upgrade", "check"]) == 255
    said = capsys.readouterr().err
    assert "run `placement-manage db sync` first" in said
    assert "Traceback" not in said


def test_a_check_that_crashes_is_255_with_the_place_of_the_error(use, tmp_path: Path, capsys, monkeypatch):
    use(f"sqlite:///{tmp_path}/x.sqlite")
    manage.main(["db", "sync"])
    monkeypatch.setattr(status, "online_migrations", lambda _: {}["nothing"])
    assert status.main(["upgrade", "check"]) == 255
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "KeyError: 'nothing'" in said


@pytest.mark.parametrize("module", ["manage", "status"])
def test_version_is_printed(module: str):
    command = [sys.executable, "-m", f"placement.server.{module}", "--version"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert finished.returncode == 0
    assert finished.stdout.strip()


def test_every_option_is_documented():
    text = DOCUMENTED.read_text()
    missing = [
        option.name for options in GROUPS.values() for option in options if f"`{option.name}`" not in text
    ]
    assert not missing


def test_options_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("OS_PLACEMENT__MAX_ALLOCATION_CANDIDATES", "7")
    monkeypatch.setenv("OS_PLACEMENT__RANDOMIZE_ALLOCATION_CANDIDATES", "true")
    loaded = settings.load()
    assert loaded.placement.max_allocation_candidates == 7
    assert loaded.placement.randomize_allocation_candidates is True


def test_the_configuration_directory_comes_from_the_environment(monkeypatch, tmp_path: Path):
    (tmp_path / "placement.conf").write_text("[placement]\nmax_allocation_candidates = 9\n")
    monkeypatch.setenv(settings.DIRECTORY_VARIABLE, str(tmp_path))
    assert settings.load().placement.max_allocation_candidates == 9


def test_strategy_is_keystone_unless_somebody_says_otherwise():
    assert settings.load().api.auth_strategy == "keystone"


def serve(tmp_path: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "placement.conf"
    file.write_text(f"[placement_database]\nconnection = sqlite:///{tmp_path}/x.sqlite\n{text}")
    command = [sys.executable, "-m", "placement.client", "serve", "--config-file", str(file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


def test_believing_every_caller_is_said_to_be_for_development(tmp_path: Path):
    with running_service(f"sqlite:///{tmp_path}/x.sqlite", workers=1) as server:
        eventually(True, lambda: "auth_strategy is noauth2" in server.log.read_text())


def test_development_is_refused_beyond_loopback_also_when_configured(tmp_path: Path):
    refused = serve(tmp_path, "[api]\nauth_strategy = noauth2\n", "--host", "0.0.0.0")
    assert refused.returncode == 1
    assert "--allow-remote-noauth" in refused.stderr


def test_wsgi_without_a_database_refuses_to_start(tmp_path: Path):
    environment = {**os.environ, settings.DIRECTORY_VARIABLE: str(tmp_path)}
    environment[settings.STRATEGY_VARIABLE] = "noauth2"
    environment.pop(settings.CONNECTION_VARIABLE, None)
    command = [sys.executable, "-c", "import placement.wsgi"]
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=environment
    )
    assert finished.returncode == 1
    assert "[placement_database] connection" in finished.stderr


def test_sync_on_startup_migrates_a_server(tmp_path: Path):
    with (
        database_url("postgresql", migrated=False) as url,
        running_service(
            url, workers=2, environment={"OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP": "true"}
        ) as server,
    ):
        assert server.url


def test_configured_tokens_identify_callers(tmp_path: Path):
    tokens = tmp_path / "tokens.yaml"
    secret = "s" * 32
    tokens.write_text(f"{secret}: {{user: u, roles: [admin]}}\n")
    tokens.chmod(0o600)
    environment = {"OS_API__AUTH_STRATEGY": "token", "OS_API__TOKENS_FILE": str(tokens)}
    import requests

    with running_service(f"sqlite:///{tmp_path}/x.sqlite", workers=1, environment=environment) as server:
        session = requests.Session()
        session.trust_env = False
        url = f"{server.url}/resource_providers"
        for headers, status in (
            ({"Authorization": f"Bearer {secret}"}, 200),
            ({"X-Auth-Token": "admin"}, 401),
        ):
            assert session.get(url, headers=headers, timeout=PATIENCE_SECONDS).status_code == status
