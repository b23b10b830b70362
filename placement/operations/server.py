"""gunicorn, set up for this service."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.util import import_app

from placement.operations.reloading import CarefulArbiter

# Enough for the database waits of one process; the search itself runs one at a time per process.
_THREADS = 16
_KEEP_ALIVE_SECONDS = 75
_GRACE_SECONDS = 30
# M_ARENA_MAX of malloc.h.
_MOST_ARENAS = -8


class Server(BaseApplication):  # type: ignore[misc]
    """A master with worker processes, each with a forest of its own."""

    def __init__(self, host: str, port: int, workers: int) -> None:
        self._options: dict[str, Any] = {
            "bind": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            "workers": workers,
            "worker_class": "gthread",
            "threads": _THREADS,
            "keepalive": _KEEP_ALIVE_SECONDS,
            "graceful_timeout": _GRACE_SECONDS,
            "timeout": 120,
            "proc_name": "placement",
            "loglevel": "warning",
            # Query strings of many groups are long.
            "limit_request_line": 65_000,
        }
        super().__init__()

    def run(self) -> None:
        """Serve until stopped."""
        _share_one_heap()
        CarefulArbiter(self).run()

    def load_config(self) -> None:
        """Hand the options to gunicorn."""
        for name, value in self._options.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """The application, built in each worker."""
        return import_app("placement.wsgi:application")


def _share_one_heap() -> None:
    """Keep each of the threads from holding on to freed megabytes of its own; only glibc does that."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MOST_ARENAS, 1)


def default_workers() -> int:
    """As many as there are cores, at most four."""
    return min(4, os.cpu_count() or 1)
