"""Reloading, stopping, losing the master: requests that were sent are answered, and the port gets free."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests import lane_server
from tests.faults.test_slow_clients_stop_nobody import eventually
from tests.hostile import Wire, request


class Load:
    """Clients that ask one request after the other over kept connections, and note what they get."""

    def __init__(self, url: str, clients: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self.longest_gap = 0.0
        self._url = url
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    @contextmanager
    def running(self) -> Iterator[Load]:
        """Ask during the block."""
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()

    def _ask(self) -> None:
        wire = None
        last = time.monotonic()
        while not self._over.is_set():
            try:
                wire = wire or Wire(self._url)
            except OSError:
                self.outcomes["refused connection"] += 1
                time.sleep(0.02)
                continue
            try:
                answer = wire.send(request("PUT", "/echo?sleep=0.01", b"abc")).answer()
            except EOFError:
                self.outcomes["cut"] += 1
                wire = None
                continue
            self.outcomes[f"{answer.status} {answer.body.decode()}"] += 1
            self.longest_gap = max(self.longest_gap, time.monotonic() - last)
            last = time.monotonic()
            if answer.headers["connection"] == "close":
                wire.close()
                wire = None


def test_a_reload_under_load_answers_every_request_without_a_gap():
    with lane_server.running(workers=2) as server:
        (server.folder / "delay").write_text("3")
        before = server.workers()
        with Load(server.url, 16).running() as load:
            time.sleep(1)
            server.process.send_signal(signal.SIGHUP)
            assert eventually(lambda: len(server.workers()) == 2 and not set(server.workers()) & set(before))
            time.sleep(1)
        assert set(load.outcomes) == {"200 abc"}, load.outcomes


@pytest.mark.parametrize("how", ["broken", "failing"])
def test_new_workers_that_cannot_start_leave_the_old_ones(how: str):
    with lane_server.running(workers=2) as server:
        before = set(server.workers())
        (server.folder / how).touch()
        server.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: set(server.workers()) - before)
        assert eventually(lambda: set(server.workers()) == before)
        time.sleep(3)
        assert set(server.workers()) == before
        with Wire(server.url) as wire:
            assert wire.get("/").answer().status == 200


@pytest.mark.parametrize("how", ["broken", "failing"])
def test_a_lost_worker_that_cannot_be_replaced_leaves_the_others(how: str):
    """The master tries again from time to time, until a new one starts."""
    with lane_server.running(workers=2) as server:
        lost, other = server.workers()
        (server.folder / how).touch()
        os.kill(lost, signal.SIGKILL)
        attempts: set[int] = set()

        def tried(times: int) -> bool:
            attempts.update(set(server.workers()) - {lost, other})
            return len(attempts) >= times

        started = time.monotonic()
        assert eventually(lambda: tried(3))
        # The first attempt comes at once.
        assert time.monotonic() - started > 2
        assert other in server.workers()
        with Wire(server.url) as wire:
            assert int(wire.get("/pid").answer().body) == other
        (server.folder / how).unlink()
        assert eventually(lambda: len(server.workers()) == 2)
        assert other in server.workers()


def test_stopping_under_load_cuts_no_request():
    with lane_server.running(workers=2) as server, Load(server.url, 16).running() as load:
        time.sleep(1)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    assert load.outcomes["200 abc"] > 0
    assert set(load.outcomes) <= {"200 abc", "refused connection"}, load.outcomes


def test_reloads_that_wait_are_one_and_cut_nothing():
    """However often it is asked for, a reload begins at most twice more than those that are over."""
    with lane_server.running(workers=1) as server:
        before = server.workers()
        (server.folder / "delay").write_text("2")
        with Load(server.url, 4).running() as load:
            for _ in range(30):
                server.process.send_signal(signal.SIGHUP)
                time.sleep(0.05)
            assert eventually(lambda: not set(server.workers()) & set(before))
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(120) == 0
        assert len(list(server.folder.glob("loaded-*"))) <= 5
        assert set(load.outcomes) <= {"200 abc", "refused connection"}, load.outcomes


def test_a_signal_to_stop_goes_before_reloads_that_wait():
    with lane_server.running(workers=1) as server:
        (server.folder / "delay").write_text("2")
        for _ in range(30):
            server.process.send_signal(signal.SIGHUP)
            time.sleep(0.02)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 0
        assert len(list(server.folder.glob("loaded-*"))) <= 3


def test_stopping_waits_for_requests_in_work_but_not_for_ever():
    with lane_server.running() as server, Wire(server.url) as short, Wire(server.url) as hanging:
        short.send(request("PUT", "/echo?sleep=3", b"abc"))
        hanging.send(request("PUT", "/?sleep=600&name=hanging", b""))
        assert eventually(lambda: server.has_noted("begun", "hanging"))
        server.process.send_signal(signal.SIGTERM)
        assert short.answer().body == b"abc"
        # The grace is 30 seconds.
        assert server.process.wait(60) == 0


@pytest.mark.parametrize("path", ["/?sleep=600&name=hanging", "/spin?spin=600&name=hanging"])
def test_workers_leave_when_the_master_is_killed_and_a_restart_succeeds(path: str):
    with lane_server.running(workers=2) as server, Wire(server.url) as reading, Wire(server.url) as writing:
        reading.send(request("GET", path, b""))
        writing.send(request("PUT", path, b""))
        assert eventually(lambda: server.has_noted("begun", "hanging"))
        workers = server.workers()
        server.process.kill()
        server.process.wait()
        with lane_server.running(port=server.port) as successor:
            # Those of before may answer until they have noticed.
            assert eventually(lambda: answering(successor.url) in successor.workers())
            assert eventually(lambda: not any(is_alive(worker) for worker in workers))


def answering(url: str) -> int:
    """The process id of the worker that answers, 0 if none does."""
    with suppress(OSError, EOFError), Wire(url) as wire:
        return int(wire.get("/pid").answer().body)
    return 0


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
