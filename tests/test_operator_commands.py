"""placement-manage and placement-status, and what a start does.

Source: placement-api.md, "Server commands".
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from placement.server import configuration_files, manage, settings, status
from placement.server.options import GROUPS
from tests.patience import eventually
from tests.probes import probed
from tests.server import BACKENDS, RunningServer, database_url, running_service


@pytest.fixture(autouse=True)
def logging_as_it_was(monkeypatch):
    """Logging is of the whole process, so commands that run inside this one must not set it up."""
    monkeypatch.setattr(settings, "start_logging", lambda _: None)


@pytest.fixture
def use(monkeypatch):
    return lambda url: monkeypatch.setenv(settings.CONNECTION_VARIABLE, url)


@pytest.fixture
def fresh(use, tmp_path: Path) -> Path:
    """A migrated database on SQLite."""
    use(f"sqlite:///{tmp_path}/x.sqlite")
    assert manage.main(["db", "sync"]) == 0
    return tmp_path / "x.sqlite"


@pytest.mark.parametrize("backend", BACKENDS)
def test_sync_is_idempotent_version_follows_and_nothing_is_to_be_healed(backend: str, use, capsys):
    def printed(main: Callable[[list[str]], int], *arguments: str) -> str:
        capsys.readouterr()
        assert main([*arguments]) == 0
        return capsys.readouterr().out

    with database_url(backend, migrated=False) as url:
        use(url)
        assert printed(manage.main, "db", "version") == "None\n"
        # A stamp records without migrating.
        printed(manage.main, "db", "stamp", "0001")
        assert printed(manage.main, "db", "version") == "0001\n"
    with database_url(backend, migrated=False) as url:
        use(url)
        for _ in range(2):
            printed(manage.main, "db", "sync")
        assert printed(manage.main, "db", "version").strip() not in ("", "None", "0001")
        healed = printed(manage.main, "db", "online_data_migrations")
        assert "Running batches of 50 until complete" in healed
        cells = [cell.strip() for cell in healed.splitlines()[2].split("|")[1:4]]
        assert cells == ["Migration", "Total Found", "Completed"]
        printed(manage.main, "db", "online_data_migrations", "--max-count", "5")
        checked = printed(status.main, "upgrade", "check")
        assert checked.count("Result: Success") == 3
        assert "Check: Policy File JSON to YAML Migration" in checked


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


def test_what_needs_healing_is_told_and_healed_in_steps_and_at_once(fresh: Path, capsys):
    """3 providers lack their root, and 2 consumers lack a record."""
    connection = sqlite3.connect(fresh)
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
    assert status.main(["upgrade", "check"]) == 2
    printed = capsys.readouterr().out
    for told in (
        *("Check: Missing Root Provider IDs", "Result: Failure", "Result: Warning"),
        *("3 providers lack a root", "2 consumers lack a record"),
    ):
        assert told in printed
    assert manage.main(["db", "online_data_migrations", "--max-count", "1"]) == 1
    assert manage.main(["db", "online_data_migrations"]) == 0
    assert manage.main(["db", "online_data_migrations", "--max-count", "1"]) == 0
    assert status.main(["upgrade", "check"]) == 0
    roots = connection.execute("SELECT DISTINCT root_provider_id FROM resource_providers").fetchall()
    assert roots == [(1,)]
    assert connection.execute("SELECT uuid FROM consumers ORDER BY uuid").fetchall() == [("c1",), ("c2",)]
    connection.close()


def test_json_policy_file_fails_the_check(fresh: Path):
    fresh.with_name("policy.json").write_text("{}")
    file = fresh.with_name("placement.conf")
    file.write_text("[oslo_policy]\npolicy_file = policy.json\n")
    assert status.main(["--config-file", str(file), "upgrade", "check"]) == 2


def test_a_database_without_tables_is_255(use, tmp_path: Path, capsys):
    use(f"sqlite:///{tmp_path}/empty.sqlite")
    assert status.main(["upgrade", "check"]) == 255
    said = capsys.readouterr().err
    assert "run `placement-manage db sync` first" in said
    assert "Traceback" not in said


def test_a_check_that_crashes_is_255_with_the_place_of_the_error(fresh: Path, capsys, monkeypatch):
    monkeypatch.setattr(status, "online_migrations", lambda _: {}["nothing"])
    assert status.main(["upgrade", "check"]) == 255
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "KeyError: 'nothing'" in said


@pytest.mark.parametrize("module", ["manage", "status"])
def test_version_is_printed(module: str):
    command = [sys.executable, "-m", f"placement.server.{module}", "--version"]
    assert subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.strip()


def test_every_option_is_documented():
    text = (Path(__file__).resolve().parents[1] / "docs" / "operating.md").read_text()
    names = [option.name for options in GROUPS.values() for option in options]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_options_come_from_the_environment_and_the_directory_it_names(monkeypatch, tmp_path: Path):
    assert settings.load().api.auth_strategy == "keystone"
    (tmp_path / "placement.conf").write_text("[placement]\nmax_allocation_candidates = 9\n")
    monkeypatch.setenv(configuration_files.DIRECTORY_VARIABLE, str(tmp_path))
    assert settings.load().placement.max_allocation_candidates == 9
    monkeypatch.setenv("OS_PLACEMENT__MAX_ALLOCATION_CANDIDATES", "7")
    monkeypatch.setenv("OS_PLACEMENT__RANDOMIZE_ALLOCATION_CANDIDATES", "true")
    loaded = settings.load().placement
    assert (loaded.max_allocation_candidates, loaded.randomize_allocation_candidates) == (7, True)


def test_believing_every_caller_is_said_to_be_for_development(served: RunningServer):
    eventually(True, lambda: "auth_strategy is noauth2" in served.log.read_text())


def test_sync_on_startup_migrates_a_server():
    on_startup = {"OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP": "true"}
    with (
        database_url("postgresql", migrated=False) as url,
        running_service(url, workers=2, environment=on_startup) as server,
    ):
        assert server.url


def test_configured_tokens_identify_callers(tmp_path: Path):
    tokens, secret = tmp_path / "tokens.yaml", "s" * 32
    tokens.write_text(f"{secret}: {{user: u, roles: [admin]}}\n")
    tokens.chmod(0o600)
    environment = {"OS_API__AUTH_STRATEGY": "token", "OS_API__TOKENS_FILE": str(tokens)}
    with running_service(f"sqlite:///{tmp_path}/x.sqlite", workers=1, environment=environment) as server:
        bearer = {"Authorization": f"Bearer {secret}"}
        assert probed(server.url, "/resource_providers", **bearer)[0] == 200
        assert probed(server.url, "/resource_providers", **{"X-Auth-Token": "admin"})[0] == 401
