"""SIGHUP reads tokens and rules anew, and a file that cannot be used disturbs neither workers nor callers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from tests.hostile import Wire, request
from tests.patience import PATIENCE_SECONDS, eventually
from tests.server import RunningServer, running_service

OLD, NEW = "o" * 40, "n" * 40
BROKEN_RULES = '"placement:traits:list": ['
KEPT = "Everything stays as it was"


def until(condition: Callable[[], bool]) -> None:
    eventually(True, condition)


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


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


def status(server: RunningServer, token: str) -> int:
    session = requests.Session()
    session.trust_env = False
    try:
        answer = session.get(
            f"{server.url}/resource_providers", headers={"X-Auth-Token": token}, timeout=PATIENCE_SECONDS
        )
    except requests.ConnectionError:
        # The worker that had taken the connection was told to end.
        return 0
    return answer.status_code


def test_sighup_reads_the_files_anew_if_they_can_be_used(configured: list[str], tmp_path: Path):
    with running_service(f"sqlite:///{tmp_path}/x.sqlite", workers=2, arguments=configured) as server:
        until(lambda: len(server.workers()) == 2)
        before = server.workers()
        for name, text in (("tokens.yaml", "yes: {user: u}\n"), ("policy.yaml", BROKEN_RULES)):
            good = (tmp_path / name).read_text()
            write(tmp_path / name, text)
            said = server.log.read_text().count(KEPT) + 1
            server.process.send_signal(signal.SIGHUP)
            until(lambda said=said: server.log.read_text().count(KEPT) == said)
            assert server.workers() == before
            assert status(server, OLD) == 200
            write(tmp_path / name, good)
        assert "line 1: a token must be text" in server.log.read_text()
        write(tmp_path / "tokens.yaml", tokens(NEW))
        server.process.send_signal(signal.SIGHUP)
        until(lambda: status(server, NEW) == 200 and status(server, OLD) == 401)
        until(lambda: not set(before) & {*server.workers()})


def greeted(server: RunningServer) -> list[int]:
    """The workers, when the master has found out that they answer: without any of them it would give up."""
    until(lambda: "listens on" in server.log.read_text())
    return server.workers()


def refused_sighup(server: RunningServer) -> None:
    said = server.log.read_text().count(KEPT) + 1
    server.process.send_signal(signal.SIGHUP)
    until(lambda: server.log.read_text().count(KEPT) == said)


def test_new_workers_have_what_the_others_have_while_files_are_broken(configured: list[str], tmp_path: Path):
    with running_service(f"sqlite:///{tmp_path}/x.sqlite", workers=1, arguments=configured) as server:
        greeted(server)
        write(tmp_path / "policy.yaml", BROKEN_RULES)
        write(tmp_path / "tokens.yaml", "nonsense")
        replace_worker(server)
        # A refused SIGHUP hands them nothing new, even if only one of the files is broken.
        write(tmp_path / "tokens.yaml", tokens(NEW))
        refused_sighup(server)
        replace_worker(server)


def replace_worker(server: RunningServer) -> None:
    """Kill the only worker; the next one knows the token of before and no other."""
    (before,) = server.workers()
    os.kill(before, signal.SIGKILL)
    until(lambda: bool(server.workers()) and server.workers() != [before])
    until(lambda: status(server, OLD) == 200)
    (after,) = server.workers()
    assert status(server, NEW) == 401
    assert server.workers() == [after]


def test_an_identity_service_that_cannot_be_asked_changes_nothing(configured: list[str], tmp_path: Path):
    timeout = "auth_type = v3password\nhttp_connect_timeout = soon"
    with running_service(f"sqlite:///{tmp_path}/x.sqlite", workers=1, arguments=configured) as server:
        before = server.workers()
        file = tmp_path / "placement.conf"
        for identity in ("auth_type = nonsense", "auth_type = password", timeout):
            file.write_text(f"[api]\nauth_strategy = keystone\n[keystone_authtoken]\n{identity}\n")
            refused_sighup(server)
            assert server.workers() == before
            assert status(server, OLD) == 200
            line = [line for line in server.log.read_text().splitlines() if KEPT in line][-1]
            assert "[keystone_authtoken]" in line or "http_connect_timeout" in line


def test_a_configuration_that_only_workers_find_broken_leaves_those_of_before(
    configured: list[str], tmp_path: Path
):
    with running_service(f"sqlite:///{tmp_path}/x.sqlite", workers=2, arguments=configured) as server:
        # One that is still starting would read the broken file, too.
        before = set(greeted(server))
        file, logging = tmp_path / "placement.conf", tmp_path / "logging.ini"
        logging.write_text("nonsense")
        file.write_text(f"[DEFAULT]\nlog_config_append = {logging}\n{file.read_text()}")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "the former ones go on" in server.log.read_text())
        assert set(server.workers()) == before
        assert status(server, OLD) == 200


def test_sighup_reads_the_limits_anew(configured: list[str], tmp_path: Path):
    def answered(body: bytes) -> int:
        with Wire(server.url) as wire:
            known = f"X-Auth-Token: {OLD}\r\n"
            return wire.send(request("PUT", "/traits/CUSTOM_X", body, known=known)).answer().status

    with running_service(f"sqlite:///{tmp_path}/x.sqlite", workers=1, arguments=configured) as server:
        before = server.workers()
        assert answered(b" " * 2000) != 413
        file = tmp_path / "placement.conf"
        file.write_text(f"{file.read_text()}max_request_body_bytes = 1024\n")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: len(server.workers()) == 1 and server.workers() != before)
        with Wire(server.url) as wire:
            # The server itself refuses it: the application is asked only when all is there.
            head = request("PUT", "/traits/CUSTOM_X", b" " * 2000)[:-2000]
            assert wire.send(head).answer().status == 413
