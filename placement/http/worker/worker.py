"""The gunicorn worker: a process that serves from its start until it has to stop or its master is gone."""

from __future__ import annotations

import gc
import logging
import mmap
import os
import sys
import time
from typing import Any

from gunicorn.workers.base import Worker

from placement.http.worker.event_loop import EventLoop
from placement.http.worker.lanes import WorkerLimits, end_in_any_case
from placement.http.worker.tls import Tls

LOG = logging.getLogger(__name__)


class LaneWorker(Worker):  # type: ignore[misc]
    """A worker in which slow clients keep no thread, and waiting writes keep no thread from reads."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Shared by the process and its master.
        self._serves = mmap.mmap(-1, 1)

    @property
    def serves(self) -> bool:
        """Return whether the process has begun to serve."""
        return self._serves[0] == 1

    def init_process(self) -> None:
        """Prepare what the process needs, and serve until it has to stop."""
        self.limits: WorkerLimits = getattr(self.app, "limits", WorkerLimits())
        self.tls: Tls | None = getattr(self.app, "tls", None)
        super().init_process()

    def run(self) -> None:
        """Serve until it has to stop or its master is gone, then finish what was begun."""
        loop = EventLoop(self.cfg, self.limits, self.wsgi, lambda: self.alive, self.notify, self.tls)
        loop.wake_by(self.PIPE[0])
        for listener in self.sockets:
            listener.setblocking(False)
            loop.listen(listener)
        # The objects loaded so far stay; every full collection would walk through all of them.
        gc.collect()
        gc.freeze()
        self._serves[0] = 1
        while self.alive and not self._is_orphan():
            loop.turn()
        self._stop(loop)

    def _stop(self, loop: EventLoop) -> None:
        """Take no more connections, answer what is there, and leave within the grace."""
        self.alive = False
        limit = time.monotonic() + self.cfg.graceful_timeout
        end_in_any_case(self.cfg.graceful_timeout)
        loop.finish(self.sockets)
        orphan = False
        while loop and time.monotonic() < limit:
            if not orphan and self._is_orphan():
                orphan = True
                limit = min(limit, time.monotonic() + self.limits.orphan_seconds)
                end_in_any_case(self.limits.orphan_seconds)
            loop.turn()
        if loop:
            # Threads that hang would hold up the interpreter, too.
            LOG.warning("%d connections were not finished in time", len(loop))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def _is_orphan(self) -> bool:
        return bool(self.ppid != os.getppid())
