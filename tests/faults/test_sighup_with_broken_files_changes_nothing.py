"""SIGHUP reads tokens and rules anew, and a file that cannot be used disturbs neither workers nor callers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from tests.server import RunningServer, running_service

OLD, NEW = "o" * 40, "n" * 40
PATIENCE = 60
BROKEN_RULES = '"placement:traits:list": ['
KEPT = "Everything stays as it was"


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)


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
            f"{server.url}/resource_providers", headers={"X-Auth-Token": token}, timeout=PATIENCE
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


def test_a_worker_that_starts_beside_broken_files_has_what_the_others_have(
    configured: list[str], tmp_path: Path
):
    with running_service(f"sqlite:///{tmp_path}/x.sqlite", workers=1, arguments=configured) as server:
        (before,) = server.workers()
        write(tmp_path / "tokens.yaml", "nonsense")
        write(tmp_path / "policy.yaml", BROKEN_RULES)
        os.kill(before, signal.SIGKILL)
        until(lambda: bool(server.workers()) and server.workers() != [before])
        until(lambda: status(server, OLD) == 200)
        (after,) = server.workers()
        assert status(server, NEW) == 401
        assert server.workers() == [after]
