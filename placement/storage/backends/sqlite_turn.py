"""The turn of the writers of a SQLite file: one thread of one process at a time, in order of arrival.

SQLite lets in one writer at a time by itself, and that alone keeps claims right. But its waiting writers
sleep for up to 100 ms and come back in any order, while the threads of another process pass the file among
themselves. So writers queue here: the threads of a process in its memory, then the processes by `flock` on
two files beside the database, `-queue` and `-turn`. The process that has the queue gets the turn next.
Source: flock(2); SQLite documentation, "Register A Callback To Handle SQLITE_BUSY Errors".
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from placement.engine.domain import request_scope

# How often a process asks for a lock of another one.
_POLL_SECONDS = 0.002
# A process that was stopped while it had a lock does not stop the others: then SQLite finds the next writer.
_ORDER_SECONDS = 5.0
_PERMISSIONS = 0o777


class WriterTurn:
    """The turn to write to one SQLite file."""

    def __init__(self, file: Path | None) -> None:
        """Take the file of the database; None: there is none, and no other process has this database."""
        self._file = file
        self._guard = threading.Lock()
        # The threads that wait, in order; the first has the turn.
        self._threads: deque[threading.Event] = deque()
        self._locks: tuple[int, int] | None = None
        self._process = 0

    @contextmanager
    def taken(self, seconds: float) -> Iterator[bool]:
        """Yield whether the turn came within that time; it is given back after the block."""
        if not self._enter(seconds):
            yield False
            return
        try:
            with self._before_other_processes():
                yield True
        finally:
            self._leave()

    def _enter(self, seconds: float) -> bool:
        mine = threading.Event()
        with self._guard:
            self._threads.append(mine)
            if self._threads[0] is mine:
                mine.set()
        if mine.wait(seconds):
            return True
        with self._guard:
            # It may have come just now.
            if mine.is_set():
                return True
            self._threads.remove(mine)
        return False

    def _leave(self) -> None:
        with self._guard:
            self._threads.popleft()
            if self._threads:
                self._threads[0].set()

    @contextmanager
    def _before_other_processes(self) -> Iterator[None]:
        """Hold the lock of the turn, if it comes in time and the file system has locks."""
        locks = self._opened()
        if locks is None:
            yield
            return
        queue, turn = locks
        until = time.monotonic() + request_scope.remaining(_ORDER_SECONDS)
        has_turn = False
        if _lock(queue, until):
            has_turn = _lock(turn, until)
            fcntl.flock(queue, fcntl.LOCK_UN)
        try:
            yield
        finally:
            if has_turn:
                fcntl.flock(turn, fcntl.LOCK_UN)

    def _opened(self) -> tuple[int, int] | None:
        """Return the open files of the queue and of the turn, None where there can be none."""
        if self._file is None:
            return None
        # Files that were opened before a fork are one lock for all processes of that family.
        if self._locks is None or self._process != os.getpid():
            self._locks, self._process = _open_locks(self._file), os.getpid()
        return self._locks


def _open_locks(file: Path) -> tuple[int, int] | None:
    opened: list[int] = []
    try:
        place = file.resolve(strict=True)
        opened += (_open(place, f"{place}-{name}") for name in ("queue", "turn"))
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        return None
    return opened[0], opened[1]


def _open(database: Path, name: str) -> int:
    """Open a file, or make it with the owner and the permissions of the database."""
    with suppress(FileExistsError):
        made = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        found = database.stat()
        # A command of root must not keep the service out.
        with suppress(PermissionError):
            os.fchown(made, found.st_uid, found.st_gid)
        os.fchmod(made, found.st_mode & _PERMISSIONS)
        return made
    return os.open(name, os.O_RDWR | os.O_NOFOLLOW)


def _lock(descriptor: int, until: float) -> bool:
    """Return whether the lock came until that moment; False at once where the file system has no locks."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
        except OSError:
            return False
        time.sleep(_POLL_SECONDS)
