"""The `placement` command refuses what it must and says what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS
from tests.server import database_url, running_service

DATA = Path(__file__).parent / "data"


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "placement.client", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, **options
    )


def test_upgrade_prints_the_version_and_version_shows_it(tmp_path):
    url = f"sqlite:///{tmp_path}/new/placement.sqlite"
    assert run("db", "version", "--database", url).stdout.strip() == "None"
    upgraded = run("db", "upgrade", "--database", url)
    assert upgraded.returncode == 0, upgraded.stderr
    assert run("db", "version", "--database", url).stdout.strip() == upgraded.stdout.split()[-1]


def test_serving_an_empty_postgresql_asks_for_the_upgrade():
    with database_url("postgresql", migrated=False) as url:
        refused = run("serve", "--auth", "noauth2", "--database", url)
        assert refused.returncode == 1
        assert "placement db upgrade" in refused.stderr
        assert run("db", "upgrade", "--database", url).returncode == 0
        with running_service(url, workers=1):
            pass


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_listening_beyond_loopback_without_authentication_is_refused(tmp_path, host):
    believing = ["--auth", "noauth2", "--database", f"sqlite:///{tmp_path}/x.sqlite"]
    refused = run("serve", "--host", host, *believing)
    assert refused.returncode == 1
    assert "--host" in refused.stderr
    assert "--allow-remote-noauth" in refused.stderr


def test_the_connection_comes_from_a_file_or_the_environment(tmp_path):
    url = f"sqlite:///{tmp_path}/configured.sqlite"
    file = tmp_path / "placement.conf"
    file.write_text(f"[placement_database]\nconnection = {url}\n")
    assert run("db", "upgrade", "--config-file", str(file)).returncode == 0
    environment = {"OS_PLACEMENT_DATABASE__CONNECTION": url, "PATH": ""}
    assert run("db", "version", env=environment).stdout.strip() != "None"


@pytest.mark.parametrize(
    "arguments",
    [
        ["db", "version", "--config-file", "/nonexistent.conf"],
        ["db", "version", "--database", "nonsense"],
        ["db", "version", "--database", "mysql://localhost/x"],
        ["db", "version", "--database", "postgresql://nobody@127.0.0.1:1/none"],
    ],
)
def test_unusable_databases_are_one_clear_line(arguments):
    refused = run(*arguments)
    assert refused.returncode == 1
    assert refused.stderr.startswith("placement: ")
    assert "Traceback" not in refused.stderr


def test_case_files_run_through_the_product():
    command = [sys.executable, "-m", "tests.cases", str(DATA / "granular.json")]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.splitlines()[-1] == "55/55"
