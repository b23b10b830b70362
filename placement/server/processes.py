"""The gunicorn master of this service, and its workers.

The master says so when it serves, ends if it cannot, and reloads without a gap.
"""

from __future__ import annotations

import ctypes
import gc
import http.client
import logging
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable
from typing import Any

import gunicorn.arbiter
from gunicorn import systemd
from gunicorn.app.base import BaseApplication
from gunicorn.errors import HaltServer
from gunicorn.util import import_app

from placement.common.probes import LIVE
from placement.engine.domain.errors import PlacementError
from placement.http.worker.lanes import WorkerLimits
from placement.http.worker.tls import Tls
from placement.metrics.sharing import forget
from placement.server.ports import BACKLOG

LOG = logging.getLogger(__name__)
_STARTS_WITHIN_SECONDS = 120
_LOOK_EVERY_SECONDS = 0.05
_STOPS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT})
# Between attempts to replace a worker when its successors do not start.
_TRY_AGAIN_AFTER_SECONDS = 2


class _NotReplaced(Exception):
    """All new workers ended; the previous ones still run."""


class Arbiter(gunicorn.arbiter.Arbiter):  # type: ignore[misc]
    """A master that waits for new workers, at the start and before it stops old ones."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        self._awaiting = True
        self._served = False
        self._before: set[int] = set()
        self._next_attempt = 0.0

    def reload(self) -> None:
        """Start workers with the present configuration, then stop the previous ones.

        If it is of no use, or the new ones do not start, everything stays as it was.
        """
        reason = ""
        try:
            limits = self.app.read_limits()
            if self.app.tls is not None:
                self.app.tls.renew()
        except Exception as error:
            # After any failure the present workers can go on.
            kind = "" if isinstance(error, PlacementError) else f"{type(error).__name__}: "
            sentences = "; ".join(line.strip() for line in str(error).splitlines())
            reason = f"{kind}{sentences.removesuffix('.')}"
        if reason:
            # Beside the error itself the log would repeat it.
            LOG.error("SIGHUP: %s. Everything stays as it was.", reason)
            return
        self.app.limits = limits
        self._before = set(self.WORKERS)
        self._awaiting = True
        try:
            super().reload()
        except _NotReplaced:
            self.log.error("New workers do not start; the former ones go on.")
        self._before = set()

    def manage_workers(self) -> None:
        """Start and stop workers until as many run as wanted.

        Raises HaltServer if none has ever served and one ends.
        """
        if self._awaiting and self.WORKERS:
            self._awaiting = False
            limit = time.monotonic() + _STARTS_WITHIN_SECONDS
            # Signals to stop must not wait for this.
            while time.monotonic() < limit and not self._has_to_stop():
                self.reap_workers()
                if all(worker.serves for worker in self.WORKERS.values()):
                    self._served = True
                    break
                time.sleep(_LOOK_EVERY_SECONDS)
        if self._served and not self.app.greeted:
            self.app.greet()
        # If there are too many workers it stops the oldest; if new ones cannot start, there are not too many.
        super().manage_workers()
        if self.WORKERS and self._before >= set(self.WORKERS):
            # gunicorn would wait for their end.
            raise _NotReplaced

    def reap_workers(self) -> None:
        """Take note of workers that ended, and keep the others. Raises HaltServer if none has ever served."""
        before = set(self.WORKERS.values())
        self._served = self._served or any(worker.serves for worker in before)
        while True:
            workers = set(self.WORKERS.values())
            try:
                super().reap_workers()
                break
            except HaltServer as halt:
                # One cannot start.
                if not self._served:
                    raise
                self.log.error("%s The others go on.", halt.reason)
                for worker in workers - set(self.WORKERS.values()):
                    worker.tmp.close()
        ended = before - set(self.WORKERS.values())
        if self.LISTENERS and not self._served and ended:
            raise HaltServer("The service cannot start.", self.WORKER_BOOT_ERROR)
        if any(not worker.serves for worker in ended):
            self._next_attempt = time.monotonic() + _TRY_AGAIN_AFTER_SECONDS

    def spawn_workers(self) -> None:
        """Start the workers that are missing, after a while if the last ones did not start."""
        if time.monotonic() < self._next_attempt:
            return
        super().spawn_workers()
        if self._awaiting:
            self.manage_workers()

    def wait_for_signals(self, timeout: float = 1.0) -> list[Any]:
        """Return the signals that came, SIGHUP once; where one is to stop, no others.

        A reload takes seconds, and the last of several reads what all of them would.
        """
        came = super().wait_for_signals(timeout)
        reloads = [each for each in came if each == signal.SIGHUP]
        others = [each for each in came if each != signal.SIGHUP]
        return [each for each in came if each in _STOPS] or [*others, *reloads[:1]]

    def _has_to_stop(self) -> bool:
        """Return whether a signal to stop waits for the master."""
        waiting = [self.SIG_QUEUE.get_nowait() for _ in range(self.SIG_QUEUE.qsize())]
        for each in waiting:
            self.SIG_QUEUE.put_nowait(each)
        return bool(_STOPS.intersection(waiting))


_GRACE_SECONDS = 30
_WORKER = "placement.http.worker.worker.LaneWorker"
_ANSWERS_WITHIN_SECONDS = 30
_A_TRY_SECONDS = 1
# M_ARENA_MAX, M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h.
_MOST_ARENAS, _TRIMMED_ABOVE, _MAPPED_ABOVE = -8, -1, -3
# The largest that glibc takes is 32 MiB.
_KEPT_BYTES, _LARGE_BYTES = 64 * 2**20, 32 * 2**20
_NOTIFY_VARIABLE = "NOTIFY_SOCKET"


class Server(BaseApplication):  # type: ignore[misc]
    """A master with worker processes, each with a forest of its own.

    `read_limits` is called at the start and at each SIGHUP, `greet` once, when a worker has answered.
    """

    def __init__(
        self,
        listener: socket.socket,
        workers: int,
        read_limits: Callable[[], WorkerLimits],
        greet: Callable[[], None] = lambda: None,
        tls: Tls | None = None,
    ) -> None:
        self.read_limits = read_limits
        self.limits = limits = read_limits()
        self.tls = tls
        self.greeted = False
        self._greet = greet
        # gunicorn would notify systemd before there is a worker.
        self._notify_socket = os.environ.pop(_NOTIFY_VARIABLE, None)
        self._asked_since: float | None = None
        self._address = listener.getsockname()[:2]
        self._options: dict[str, Any] = {
            "bind": f"fd://{listener.detach()}",
            "workers": workers,
            "worker_class": _WORKER,
            "backlog": BACKLOG,
            "keepalive": int(limits.keep_alive_seconds),
            "graceful_timeout": _GRACE_SECONDS,
            "timeout": 120,
            "proc_name": "placement",
            "loglevel": "warning",
            # The worker has bounds of its own; gunicorn's cannot be as long as query strings of many groups.
            "limit_request_line": 0,
            # No header tells where the application is mounted.
            "forwarder_headers": "",
            # It would be one for all instances of a user.
            "control_socket_disable": True,
            # Its figures are forgotten.
            "child_exit": lambda _, worker: forget(worker.pid),
            # Only for the scheme that applications see.
            "certfile": tls and tls.files.certificate,
        }
        super().__init__()

    def greet(self) -> None:
        """Print, and notify systemd, that the service is ready if a worker answers now; else try again later.

        Raises HaltServer if none has answered for long.
        """
        self._asked_since = self._asked_since or time.monotonic()
        try:
            _await_answer(*self._address, encrypted=self.tls is not None)
        except (OSError, http.client.HTTPException) as error:
            # A worker may have ended at this moment, and the master has to start another one meanwhile.
            if time.monotonic() - self._asked_since < _ANSWERS_WITHIN_SECONDS:
                return
            reason = f"The service does not answer on port {self._address[1]}: {error}."
            raise HaltServer(reason, Arbiter.WORKER_BOOT_ERROR) from None
        self.greeted = True
        self._greet()
        if self._notify_socket:
            os.environ[_NOTIFY_VARIABLE] = self._notify_socket
            systemd.sd_notify("READY=1", LOG, unset_environment=True)

    def run(self) -> None:
        """Serve until stopped."""
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            # Else each of the threads would hold on to freed megabytes of its own; only glibc does that.
            mallopt(_MOST_ARENAS, 1)
            # Else the pages of each large answer would go back to the system and come again: a third of it.
            mallopt(_TRIMMED_ABOVE, _KEPT_BYTES)
            mallopt(_MAPPED_ABOVE, _LARGE_BYTES)
        # Else each worker would write the buffered output once more.
        sys.stdout.flush()
        # Else each worker would copy the pages with what was loaded so far, to look for garbage in it.
        gc.collect()
        gc.freeze()
        gc.enable()
        Arbiter(self).run()

    def load_config(self) -> None:
        """Hand the options to gunicorn."""
        for name, value in self._options.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Any:
        """Return the application, built in each worker."""
        return import_app("placement.wsgi:application")


def _await_answer(host: str, port: int, *, encrypted: bool) -> None:
    """Ask a worker whether it lives, which it answers without waiting. Raises OSError, HTTPException."""
    # A worker that listens on all addresses answers on loopback.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    connection = http.client.HTTPConnection(host, port, timeout=_A_TRY_SECONDS)
    if encrypted:
        # The name in the certificate is for others.
        unverified = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(host, port, timeout=_A_TRY_SECONDS, context=unverified)
    try:
        connection.request("GET", LIVE, headers={"Connection": "close"})
        connection.getresponse().read()
    finally:
        connection.close()


def default_workers() -> int:
    """Return as many as there are cores, at most four."""
    return min(4, os.cpu_count() or 1)
