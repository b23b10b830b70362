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
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from placement.engine.domain import request_scope

# How often a process asks for a lock of another one.
_POLL_SECONDS = 0.002
# A process that was stopped while it had a lock does not stop the others: then SQLite finds the next writer.
_ORDER_SECONDS = 5.0
# Once in this time the wait is worth trying again: others may have passed the locks among themselves.
_AGAIN_SECONDS = 60.0
_PERMISSIONS = 0o777


class WriterTurn:
    """The turn to write to one SQLite file."""

    def __init__(self, file: Path | None) -> None:
        """Take the file of the database; None: there is none, and no other process has this database."""
        self._file = file
        self.begin_anew()
        _turns.add(self)

    def begin_anew(self) -> None:
        """Begin with no thread that waits and no open files, in a process that was forked as well."""
        self._guard = threading.Lock()
        # The threads that wait, in order; the first has the turn.
        self._threads: deque[threading.Event] = deque()
        self._locks: tuple[int, int] | None = None
        # Since when this process asks for the locks in vain.
        self._locked_out_since: float | None = None

    @contextmanager
    def taken(self, seconds: float) -> Iterator[bool]:
        """Yield whether the turn of this process came within that time; it is given back after the block."""
        mine = threading.Event()
        with self._guard:
            self._threads.append(mine)
            self._threads[0].set()
        is_taken = False
        try:
            is_taken = mine.wait(seconds)
            yield is_taken
        finally:
            if is_taken:
                self._unlock_files()
            with self._guard:
                self._threads.remove(mine)
                # A turn that came too late is passed on as well.
                if self._threads:
                    self._threads[0].set()

    def lock_files(self) -> None:
        """Let the processes that came before go first; the thread has the turn, and gives all back with it.

        Writers do without where the locks come too late, or the file system has none.
        """
        if self._locks is None and self._file is not None:
            self._locks = _open_locks(self._file)
        if self._locks is None:
            return
        queue, turn = self._locks
        now = time.monotonic()
        # Writers that come after the first do not wait as long again for a process that was stopped.
        if self._locked_out_since is None or now - self._locked_out_since > _AGAIN_SECONDS:
            self._locked_out_since = now
        until = min(self._locked_out_since + _ORDER_SECONDS, request_scope.deadline())
        if not _lock(queue, until):
            return
        try:
            if _lock(turn, until):
                self._locked_out_since = None
        finally:
            fcntl.flock(queue, fcntl.LOCK_UN)

    def _unlock_files(self) -> None:
        # It may be that they were not locked, or the file system has no locks.
        if self._locks is not None:
            with suppress(OSError):
                fcntl.flock(self._locks[1], fcntl.LOCK_UN)


_turns: weakref.WeakSet[WriterTurn] = weakref.WeakSet()


def _begin_all_anew() -> None:
    for turn in _turns:
        # Files that were opened before a fork are one lock for all processes of that family.
        for descriptor in turn._locks or ():
            os.close(descriptor)
        turn.begin_anew()


os.register_at_fork(after_in_child=_begin_all_anew)


def _open_locks(file: Path) -> tuple[int, int] | None:
    """Return the open files of the queue and of the turn, None where there can be none."""
    opened: list[int] = []
    try:
        place = file.resolve(strict=True)
        database = place.stat()
        opened += (_open(database, f"{place}-{name}") for name in ("queue", "turn"))
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        return None
    return opened[0], opened[1]


def _open(database: os.stat_result, name: str) -> int:
    """Open a file, or make it with the owner and the permissions of the database, where these can be set."""
    with suppress(FileExistsError):
        made = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        # A command of root must not keep the service out.
        with suppress(OSError):
            os.fchown(made, database.st_uid, database.st_gid)
        with suppress(OSError):
            os.fchmod(made, database.st_mode & _PERMISSIONS)
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
