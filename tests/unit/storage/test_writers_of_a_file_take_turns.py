"""Writers of a SQLite file come in order of arrival: threads of a process, and processes by two locked files.

Two turns of one file have descriptors of their own, so their locks keep each other out as those of two
processes do.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from placement.engine.domain import request_scope
from placement.engine.domain.errors import Unavailable
from placement.storage.backends import sqlite_claims, sqlite_turn
from placement.storage.backends.sqlite_turn import WriterTurn
from placement.storage.database import Database
from placement.storage.failures import TryAgain
from tests.patience import PATIENCE_SECONDS, eventually
from tests.server import database_url


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "placement.sqlite"
    path.touch(0o640)
    return path


class Queue:
    """Writers in threads, and the order in which their turns came."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self._threads: list[threading.Thread] = []

    def arrive(self, name: str, turn: WriterTurn, seconds: float = PATIENCE_SECONDS) -> None:
        def write() -> None:
            with turn.taken(seconds) as is_taken:
                if is_taken:
                    turn.lock_files()
                self.came.append(name if is_taken else f"not {name}")

        self._threads.append(threading.Thread(target=write))
        self._threads[-1].start()

    def end(self) -> list[str]:
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
        return self.came


def is_locked(path: Path) -> bool:
    """Whether anybody has the lock of a file."""
    if not path.exists():
        return False
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def writing(turn: WriterTurn) -> Iterator[None]:
    with turn.taken(1) as is_taken:
        assert is_taken
        turn.lock_files()
        yield


class Clock:
    """A clock that goes on while somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.sleeps = 1000.0, 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps += 1

    def sleeps_to_write(self, turn: WriterTurn) -> int:
        before = self.sleeps
        with writing(turn):
            return self.sleeps - before


def test_threads_come_in_order_of_arrival(file: Path):
    turn, queue = WriterTurn(file), Queue()
    names = [str(number) for number in range(12)]
    with turn.taken(1):
        for place, name in enumerate(names, 2):
            queue.arrive(name, turn)
            eventually(place, lambda: len(turn._threads))
    assert queue.end() == names


def test_a_thread_that_gives_up_leaves_the_queue(file: Path):
    turn, queue = WriterTurn(file), Queue()
    with turn.taken(1):
        queue.arrive("hurried", turn, 0.01)
        eventually(["not hurried"], lambda: queue.came)
        queue.arrive("patient", turn)
        eventually(2, lambda: len(turn._threads))
    assert queue.end() == ["not hurried", "patient"]


def test_a_process_that_comes_again_lets_the_one_that_waits_go_first(file: Path):
    here, there, queue = WriterTurn(file), WriterTurn(file), Queue()
    with writing(here):
        queue.arrive("there", there)
        eventually(True, lambda: is_locked(Path(f"{file}-queue")))
        queue.arrive("here again", here)
        eventually(2, lambda: len(here._threads))
    assert queue.end() == ["there", "here again"]


def test_a_process_waits_as_long_as_its_request_has_time(file: Path, monkeypatch: pytest.MonkeyPatch):
    """Then SQLite is asked, which has the last word."""
    asked: list[float] = []
    monkeypatch.setattr(sqlite_turn, "_lock", lambda _, until: bool(asked.append(until)))
    with request_scope.within(0.0), writing(WriterTurn(file)):
        pass
    assert asked[0] <= sqlite_turn.time.monotonic()


def test_only_the_first_writer_waits_for_a_process_that_was_stopped_in_its_turn(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    clock, turn = Clock(), WriterTurn(file)
    monkeypatch.setattr(sqlite_turn, "time", clock)
    with writing(WriterTurn(file)):
        first = clock.sleeps_to_write(turn)
        assert first > 1000
        assert [clock.sleeps_to_write(turn) for _ in range(5)] == [0] * 5
        clock.now += sqlite_turn._AGAIN_SECONDS
        assert [clock.sleeps_to_write(turn) > 0 for _ in range(2)] == [True, False]
        assert not is_locked(Path(f"{file}-queue"))
    with writing(turn):
        assert is_locked(Path(f"{file}-turn"))
    assert not is_locked(Path(f"{file}-turn"))
    with writing(WriterTurn(file)):
        assert clock.sleeps_to_write(turn) == first


def test_a_wait_that_ended_with_its_request_counts_for_the_next(file: Path, monkeypatch: pytest.MonkeyPatch):
    clock, turn = Clock(), WriterTurn(file)
    monkeypatch.setattr(sqlite_turn, "time", clock)
    with writing(WriterTurn(file)):
        monkeypatch.setattr(request_scope, "deadline", lambda: clock.now + 1)
        waits = [clock.sleeps_to_write(turn) > 0 for _ in range(10)]
    assert waits == [True] * 5 + [False] * 5


@pytest.mark.parametrize("write", [Database.write, Database.single_write], ids=["some", "single"])
def test_a_writer_that_waits_for_a_connection_keeps_no_other_process_waiting(
    write: Callable[[Database], AbstractContextManager[Any]], monkeypatch: pytest.MonkeyPatch
):
    asked = Mock()
    with database_url("sqlite") as url:
        monkeypatch.setattr(sqlite_turn, "_lock", asked)
        database = Database(url, pool_size=1, max_overflow=0)
        with database.read(), request_scope.within(0.05), pytest.raises(Unavailable), write(database):
            pass
        database.dispose()
    assert not asked.called


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_thread_that_is_interrupted_leaves_the_queues(file: Path, monkeypatch: pytest.MonkeyPatch):
    turn = WriterTurn(file)
    with turn.taken(1), monkeypatch.context() as patch:
        patch.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt), turn.taken(1):
            pass
    assert not turn._threads
    monkeypatch.setattr(sqlite_turn.time, "sleep", interrupted)
    with writing(WriterTurn(file)), pytest.raises(KeyboardInterrupt), writing(turn):
        pass
    assert not turn._threads
    assert not is_locked(Path(f"{file}-queue"))


def test_a_forked_process_begins_with_a_queue_and_files_of_its_own(file: Path):
    turn = WriterTurn(file)
    with writing(turn), turn._guard:
        child = os.fork()
        if not child:
            # A guard of the parent would be waited for.
            signal.alarm(round(PATIENCE_SECONDS))
            with turn.taken(0) as is_taken, request_scope.within(0.0):
                turn.lock_files()
                os._exit(7 if is_taken and turn._locked_out_since else 8)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize("name", ["fchown", "fchmod"])
def test_files_whose_owner_or_permissions_cannot_be_set_are_locked(
    name: str, file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, name, Mock(side_effect=OSError(errno.EINVAL, "Invalid argument")))
    with writing(WriterTurn(file)):
        assert is_locked(Path(f"{file}-turn"))


def test_the_files_have_the_permissions_of_the_database(file: Path):
    with writing(WriterTurn(file)):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
    assert modes == {f"placement.sqlite{ending}": 0o640 for ending in ("", "-queue", "-turn")}


def _no_locks(*_: Any) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


def _no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refusing(path: Any, *given: Any, **more: Any) -> int:
        if str(path).endswith(("-queue", "-turn")):
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, *given, **more)

    monkeypatch.setattr(os, "open", refusing)


@pytest.mark.parametrize(
    "prevent", [lambda patch: patch.setattr(fcntl, "flock", _no_locks), _no_files], ids=["locks", "files"]
)
def test_where_there_are_no_locked_files_sqlite_keeps_writers_apart(
    prevent: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
):
    prevent(monkeypatch)
    with database_url("sqlite") as url:
        here, there = Database(url), Database(url)
        with here.write(), request_scope.within(0.05), pytest.raises(TryAgain), there.write():
            pass
        with there.write():
            pass
        for each in (here, there):
            each.dispose()


def test_a_database_in_memory_has_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite://", "sqlite:///:memory:"):
        database = Database(url)
        with database.write():
            pass
        database.dispose()
    assert not list(tmp_path.iterdir())


_TEXTS = ("_CONSUMERS", "_PROVIDERS", "_RISES", "_AMOUNTS", "_RECORDS")


@pytest.mark.parametrize("name", _TEXTS)
def test_texts_of_claims_begin_with_the_claims_and_read_no_whole_table(name: str):
    text = getattr(sqlite_claims, name)
    with database_url("sqlite") as url:
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", {"rows": "[]", "now": "", "stamp": 1})
        scanned = {row[3].split()[1] for row in plan if row[3].startswith("SCAN")}
        connection.close()
    assert scanned <= {"given", "found"}
