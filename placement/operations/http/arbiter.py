"""The gunicorn master: says so when it serves, ends if it cannot, and reloads without a gap."""

from __future__ import annotations

import time
from typing import Any

import gunicorn.arbiter
from gunicorn.errors import HaltServer

_STARTS_WITHIN_SECONDS = 120
_LOOK_EVERY_SECONDS = 0.05
# Between attempts to replace a worker whose successors do not start.
_TRY_AGAIN_AFTER_SECONDS = 2


class _NotReplaced(Exception):
    """All new workers ended; the previous ones still run."""


class Arbiter(gunicorn.arbiter.Arbiter):  # type: ignore[misc]
    """Waits for new workers, at the start and before it stops old ones."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        self._awaiting = True
        self._served = False
        self._before: set[int] = set()
        self._next_attempt = 0.0

    def reload(self) -> None:
        """Start workers with the present configuration, then stop the previous ones.

        If the new ones do not start, those of before go on.
        """
        self._before = set(self.WORKERS)
        self._awaiting = True
        try:
            super().reload()
        except _NotReplaced:
            self.log.error("New workers do not start, those of before go on.")
        self._before = set()

    def manage_workers(self) -> None:
        """Start and stop workers until as many run as wanted.

        Raises HaltServer if none has ever served and one ends.
        """
        if self._awaiting and self.WORKERS:
            self._awaiting = False
            self._await_workers()
        if self._served and not self.app.greeted:
            self.app.greet()
        # Of more workers than wanted it stops the oldest; if new ones cannot start, there are no more.
        super().manage_workers()
        if self.WORKERS and self._before >= set(self.WORKERS):
            # gunicorn would wait for their end.
            raise _NotReplaced

    def reap_workers(self) -> None:
        """Take note of workers that ended. Raises HaltServer as above."""
        before = set(self.WORKERS.values())
        self._served = self._served or any(worker.serves for worker in before)
        self._reap()
        ended = before - set(self.WORKERS.values())
        if self.LISTENERS and not self._served and ended:
            raise HaltServer("The service cannot start.", self.WORKER_BOOT_ERROR)
        if any(not worker.serves for worker in ended):
            self._next_attempt = time.monotonic() + _TRY_AGAIN_AFTER_SECONDS

    def _reap(self) -> None:
        """Keep the workers that serve when one cannot start. Raises HaltServer if none has ever served."""
        while True:
            workers = set(self.WORKERS.values())
            try:
                super().reap_workers()
                return
            except HaltServer as halt:
                if not self._served:
                    raise
                self.log.error("%s The others go on.", halt.reason)
                for worker in workers - set(self.WORKERS.values()):
                    worker.tmp.close()

    def spawn_workers(self) -> None:
        """Start the workers that are missing, after a while if the last ones did not start."""
        if time.monotonic() < self._next_attempt:
            return
        super().spawn_workers()
        if self._awaiting:
            self.manage_workers()

    def _await_workers(self) -> None:
        limit = time.monotonic() + _STARTS_WITHIN_SECONDS
        # Signals to stop must not wait for this.
        while time.monotonic() < limit and not self._has_signals():
            self.reap_workers()
            if all(worker.serves for worker in self.WORKERS.values()):
                self._served = True
                return
            time.sleep(_LOOK_EVERY_SECONDS)

    def _has_signals(self) -> bool:
        """Whether a signal waits for the master, other than that a worker has ended."""
        children = {gunicorn.arbiter.signal.SIGCHLD}
        waiting = [self.SIG_QUEUE.get_nowait() for _ in range(self.SIG_QUEUE.qsize())]
        for signal in waiting:
            self.SIG_QUEUE.put_nowait(signal)
        return bool(set(waiting) - children)
