"""Whatever happens to one connection, the worker and its other connections live on."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import lane_server
from tests.hostile import Wire, request
from tests.patience import eventually

SPINNING_SECONDS = 2


@pytest.fixture
def server() -> Iterator[lane_server.Running]:
    with lane_server.running() as running:
        yield running


def pid_by(wire: Wire) -> bytes:
    return wire.get("/pid").answer().body


def test_a_client_may_leave_before_it_is_asked_for_a_body(server: lane_server.Running):
    expecting = request("POST", "/x", b"12345", "Expect: 100-continue")[:-5]
    with Wire(server.url) as kept:
        before = pid_by(kept)
        for _ in range(40):
            with Wire(server.url) as wire:
                wire.send(b"GET /?sleep=0.02 HTTP/1.1\r\nHost: localhost\r\n\r\n" + expecting)
        time.sleep(0.1)
        assert pid_by(kept) == before


def test_a_mistake_of_ours_costs_one_connection(server: lane_server.Running):
    with Wire(server.url) as kept:
        before = pid_by(kept)
        with Wire(server.url) as wire:
            assert wire.get("/mistake").ends()
        with Wire(server.url) as wire:
            # The second comes while the first is being answered.
            wire.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /mistake HTTP/1.1\r\nHost: a\r\n\r\n")
            assert wire.answer().status == 200
            assert wire.ends()
        assert pid_by(kept) == before


def test_a_worker_without_free_files_waits_for_them_and_does_not_spin(server: lane_server.Running):
    with ExitStack() as stack:
        busy = stack.enter_context(Wire(server.url))
        (worker,) = server.workers()
        assert pid_by(busy) == str(worker).encode()
        busy.get(f"/?sleep={SPINNING_SECONDS + 2}&name=busy")
        eventually(True, lambda: server.has_noted("begun", "busy"))
        usual = resource.prlimit(worker, resource.RLIMIT_NOFILE)
        open_files = max(int(each) for each in os.listdir(f"/proc/{worker}/fd")) + 1
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (open_files, usual[1]))
        waiting = stack.enter_context(Wire(server.url)).get("/pid")
        used = cpu_seconds(worker)
        time.sleep(SPINNING_SECONDS)
        used = cpu_seconds(worker) - used
        resource.prlimit(worker, resource.RLIMIT_NOFILE, usual)
        assert busy.answer().status == 200
        assert waiting.answer().body == str(worker).encode()
        assert used < SPINNING_SECONDS / 10


def cpu_seconds(pid: int) -> float:
    """Of the process until now, for itself and for the system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
