"""`placement serve` greets when it serves; if it cannot, it says why and ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from placement.engine.domain.errors import PlacementError
from placement.server import processes
from tests.patience import PATIENCE_SECONDS
from tests.server import database_url, free_port

_ROOT = Path(__file__).resolve().parents[1]
_SERVE = [sys.executable, "-m", "placement.client", "serve"]


def served(
    *arguments: str, connection: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command, which must end by itself; on an embedded database unless another is given."""
    with database_url("sqlite") as embedded:
        return subprocess.run(
            [*_SERVE, "--database", connection or embedded, *arguments],
            cwd=_ROOT,
            env={**os.environ, "OS_API__AUTH_STRATEGY": "noauth2", **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )


def refusal(*arguments: str, connection: str | None = None, **environment: str) -> str:
    """The one line that says why nothing is served."""
    ended = served(*arguments, connection=connection, **environment)
    assert ended.returncode != 0
    assert "listens on http" not in ended.stdout
    (line,) = ended.stderr.splitlines()
    return line


@pytest.mark.parametrize("mode", [None, 0o644])
def test_a_tokens_file_that_is_not_there_or_open_to_others_is_named(tmp_path: Path, mode: int | None):
    file = tmp_path / "tokens.yaml"
    if mode is not None:
        file.write_text("sha256:" + 64 * "0" + ": {user: somebody}\n")
        file.chmod(mode)
    said = refusal("--port", str(free_port()), OS_API__AUTH_STRATEGY="token", OS_API__TOKENS_FILE=str(file))
    assert str(file) in said


def test_an_extra_that_is_missing_is_named(tmp_path: Path):
    # A package that cannot be imported stands in for one that is not installed.
    (tmp_path / "keystonemiddleware.py").write_text("raise ImportError('not installed')")
    said = refusal("--port", str(free_port()), OS_API__AUTH_STRATEGY="keystone", PYTHONPATH=str(tmp_path))
    assert "install this package with its extra `keystone`" in said


def test_a_port_that_somebody_has_is_named_with_its_option_and_its_holder(monkeypatch: pytest.MonkeyPatch):
    # Nobody is leaving it.
    monkeypatch.setattr(processes, "_PORT_IS_FREE_WITHIN_SECONDS", 0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PlacementError) as refused:
            processes.listening("127.0.0.1", port)
    said = str(refused.value)
    assert said.startswith(f"--port: process {os.getpid()} (")
    assert f"listens on 127.0.0.1, port {port}; end it, or choose another port with --port" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--workers", "0"), "--workers: must be a whole number from 1 on, not '0'"),
        (("--port", "99999"), "--port: must be a port from 1 to 65535, not '99999'"),
    ],
)
def test_numbers_that_make_no_sense_are_named_with_their_option(arguments: tuple[str, ...], said: str):
    ended = served(*arguments)
    assert ended.returncode == 2
    assert said in ended.stderr


def test_a_database_that_does_not_answer_is_told_with_host_name_user_and_reason():
    port = free_port()
    said = refusal(
        connection=f"postgresql://somebody@127.0.0.1:{port}/inventory",
        OS_PLACEMENT_DATABASE__MAX_RETRIES="0",
    )
    for part in (f"host 127.0.0.1 port {port}", "database inventory", "user somebody", "refused", "Start it"):
        assert part in said


def test_what_waiting_does_not_mend_is_told_at_once():
    with database_url("postgresql") as url:
        known = sa.make_url(url)
    missing = known.set(database="no_such_database").render_as_string(hide_password=False)
    assert '"no_such_database" does not exist' in (said := refusal(connection=missing))
    assert "Create it" in said
    stranger = known.set(username="nobody_known").render_as_string(hide_password=False)
    assert "nobody_known" in refusal(connection=stranger)


def test_waiting_for_a_database_is_told_once_each_time():
    connection = f"postgresql://somebody@127.0.0.1:{free_port()}/inventory"
    ended = served(
        connection=connection,
        OS_PLACEMENT_DATABASE__MAX_RETRIES="1",
        OS_PLACEMENT_DATABASE__RETRY_INTERVAL="0",
    )
    (waiting,) = ended.stdout.strip().splitlines()
    (given_up,) = ended.stderr.splitlines()
    assert waiting.count("The database cannot be reached") == 1
    assert "Trying again in 0 seconds" in waiting
    assert given_up.startswith("placement: The database cannot be reached")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[api]\nauth_strategy = noauth2\n", "[placement_database] connection"),
        ("[placement_database]\nconection = sqlite:///x\n", "did you mean connection?"),
    ],
)
def test_a_file_without_a_database_or_with_an_option_nobody_knows_is_refused(
    tmp_path: Path, text: str, said: str
):
    file = tmp_path / "placement.conf"
    file.write_text(text)
    ended = subprocess.run(
        [*_SERVE, "--demo", "--config-file", str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.returncode == 1
    assert said in ended.stderr
    assert not (tmp_path / "var").exists()


_STUCK = """
import sys, time
from placement.client import cli
from placement.server import processes as server
from placement.http.worker.worker import LaneWorker

def run(worker):
    worker._serves[0] = 1
    while worker.alive:
        time.sleep(0.1)

LaneWorker.run = run
server._ANSWERS_WITHIN_SECONDS = 1
sys.exit(cli.main(sys.argv[1:]))
"""


def test_nobody_is_greeted_before_a_worker_has_answered():
    port = free_port()
    command = ["serve", "--workers", "1", "--port", str(port)]
    with database_url("sqlite") as connection:
        ended = subprocess.run(
            [sys.executable, "-c", _STUCK, *command, "--database", connection, "--auth", "noauth2"],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
    assert ended.returncode != 0
    assert f"The service does not answer on port {port}" in ended.stderr
    assert "listens on" not in ended.stdout
