"""`placement serve` greets when it serves; if it cannot, it says why and ends."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path
from unittest import mock

import pytest
import sqlalchemy as sa

from placement.client import cli
from placement.engine.domain.errors import PlacementError
from placement.server import ports
from tests import commands
from tests.commands import errors_of_start, refused_start, run
from tests.patience import PATIENCE_SECONDS
from tests.server import database_url, free_port, running_service

_ROOT = Path(__file__).resolve().parents[1]
_TOKEN = "o" * 40
_BELIEVING = {"OS_API__AUTH_STRATEGY": "noauth2"}


def ended(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process that must end by itself."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=_ROOT,
        env={**os.environ, **_BELIEVING, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def refusal(connection: str, *arguments: str, **environment: str) -> str:
    """What is said of a start on this database."""
    return refused_start("--database", connection, *arguments, **{**_BELIEVING, **environment})


@pytest.mark.parametrize(
    ("name", "text", "mode"),
    [
        ("tokens.yaml", "yes: {user: u}\n", 0o600),
        ("tokens.yaml", f"{_TOKEN}: {{user: u, roles: [admin]}}\n", 0o644),
        ("tokens.yaml", None, 0),
        ("policy.yaml", '"placement:traits:list": [', 0o600),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, name: str, text: str | None, mode: int):
    file, configuration = tmp_path / name, tmp_path / "placement.conf"
    (tmp_path / "tokens.yaml").write_text(f"{_TOKEN}: {{user: u, roles: [admin]}}\n")
    (tmp_path / "tokens.yaml").chmod(0o600)
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
        file.chmod(mode)
    configuration.write_text(f"[api]\nauth_strategy = token\ntokens_file = {tmp_path}/tokens.yaml\n")
    said = refused_start("--config-file", str(configuration), "--database", f"sqlite:///{tmp_path}/x.sqlite")
    assert str(file) in said


def test_an_extra_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "keystonemiddleware.auth_token", None)
    said = refusal(f"sqlite:///{tmp_path}/x.sqlite", OS_API__AUTH_STRATEGY="keystone")
    assert "install this package with its extra `keystone`" in said


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path):
    file = tmp_path / "placement.conf"
    file.write_text(
        "[api]\nauth_strategy = token\nrequest_timeout = soon\nzebra = 1\n"
        "[placement_database]\nconnection = postgresql://placement@127.0.0.1/placement\n"
        "password_file = none\n"
        "[ssl]\ncert_file = none.crt\n[scoring]\norder_by = nothing\n[capacity]\nwatch = small VCPU=2\n"
    )
    said = errors_of_start("--config-file", str(file))
    assert said[0] == "placement: 7 errors in the configuration"
    expected = (
        f"{file}: there is no option zebra in [api]",
        f"{file}: [api] request_timeout: could not convert string to float: 'soon'",
        "[api] tokens_file",
        "[placement_database] password_file: none: No such file",
        "[ssl] key_file is not set",
        "[scoring] order_by",
        "[capacity] watch",
    )
    for line, start in zip(said[1:], expected, strict=True):
        assert start in line, said


def test_a_value_that_an_option_cannot_have_is_told_in_plain_words(tmp_path: Path):
    file = tmp_path / "placement.conf"
    file.write_text("[api]\nauth_strategy = nobody\n")
    said = refused_start("--config-file", str(file), "--database", f"sqlite:///{tmp_path}/x.sqlite")
    values = "Valid values are [keystone, token, noauth2], but found 'nobody'"
    assert said == f"{file}: [api] auth_strategy: {values}"
    said = refusal(f"sqlite:///{tmp_path}/x.sqlite", OS_API__REQUEST_TIMEOUT="soon")
    assert said.startswith("OS_API__REQUEST_TIMEOUT: [api] request_timeout: ")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_listening_beyond_loopback_without_authentication_is_refused(tmp_path: Path, host: str):
    said = refusal(f"sqlite:///{tmp_path}/x.sqlite", "--host", host)
    assert said.startswith(f"--host: {host} ")
    assert "--allow-remote-noauth" in said


def test_a_port_that_somebody_has_is_named_with_its_option_and_its_holder(monkeypatch: pytest.MonkeyPatch):
    # Nobody is leaving it.
    monkeypatch.setattr(ports, "_PORT_IS_FREE_WITHIN_SECONDS", 0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PlacementError) as refused:
            ports.listening("127.0.0.1", port)
    said = str(refused.value)
    assert said.startswith(f"--port: process {os.getpid()} (")
    assert f"listens on 127.0.0.1, port {port}; end it, or choose another port with --port" in said


def test_numbers_that_make_no_sense_are_named_with_their_option():
    for option, value, said in (
        ("--workers", "0", "must be a whole number from 1 on, not '0'"),
        ("--port", "99999", "must be a port from 1 to 65535, not '99999'"),
    ):
        refused = run("serve", option, value)
        assert (refused.returncode, f"{option}: {said}" in refused.stderr) == (2, True), refused


def test_a_database_that_does_not_answer_is_told_with_host_name_user_and_reason():
    port = free_port()
    said = refusal(
        f"postgresql://somebody@127.0.0.1:{port}/inventory", OS_PLACEMENT_DATABASE__MAX_RETRIES="0"
    )
    for part in (f"host 127.0.0.1 port {port}", "database inventory", "user somebody", "refused", "Start it"):
        assert part in said


def test_what_waiting_does_not_mend_is_told_at_once():
    with database_url("postgresql", migrated=False) as url:
        assert "placement db upgrade" in refusal(url)
        known = sa.make_url(url)
    missing = known.set(database="no_such_database").render_as_string(hide_password=False)
    assert '"no_such_database" does not exist' in (said := refusal(missing))
    assert "Create it" in said
    stranger = known.set(username="nobody_known").render_as_string(hide_password=False)
    assert "nobody_known" in refusal(stranger)


def test_waiting_for_a_database_is_told_once_each_time():
    """In a process of its own, with the logging of the service."""
    refused = ended(
        *("-m", "placement.client", "serve", "--port", str(free_port())),
        *("--database", f"postgresql://somebody@127.0.0.1:{free_port()}/inventory"),
        OS_PLACEMENT_DATABASE__MAX_RETRIES="1",
        OS_PLACEMENT_DATABASE__RETRY_INTERVAL="0",
    )
    assert refused.returncode == 1
    (waiting,) = refused.stdout.strip().splitlines()
    (given_up,) = refused.stderr.splitlines()
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "placement.conf"
    file.write_text(text)
    assert said in "\n".join(errors_of_start("--demo", "--config-file", str(file)))
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


def test_nobody_is_greeted_before_a_worker_has_answered(tmp_path: Path):
    port, path = str(free_port()), str(tmp_path / "notify")
    with database_url("sqlite") as url, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.setblocking(False)
        serve = ("serve", "--workers", "1", "--port", port, "--database", url)
        stuck = ended("-c", _STUCK, *serve, NOTIFY_SOCKET=path)
        with pytest.raises(BlockingIOError):
            manager.recv(100)
    assert stuck.returncode != 0
    assert f"The service does not answer on port {port}" in stuck.stderr
    assert "listens on" not in stuck.stdout


def test_systemd_is_notified_when_a_worker_has_answered(tmp_path: Path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, database_url("sqlite") as url:
        manager.bind(path)
        manager.settimeout(PATIENCE_SECONDS)
        with running_service(url, workers=1, environment={"NOTIFY_SOCKET": path}) as server:
            assert manager.recv(100) == b"READY=1"
            assert "Placement listens on" in server.log.read_text()
            manager.setblocking(False)
            with pytest.raises(BlockingIOError):
                manager.recv(100)


def test_a_command_writes_to_no_stream_of_a_former_one(tmp_path: Path):
    missing = ("serve", "--config-file", str(tmp_path / "missing.conf"))
    # What a start leaves in the environment ends with it.
    with mock.patch.dict(os.environ), io.StringIO() as closed, redirect_stderr(closed):
        assert cli.main(missing) == 1
    assert "missing.conf" in commands.refusal(*missing)
