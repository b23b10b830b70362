"""gunicorn, set up for this service."""

from __future__ import annotations

import ctypes
import errno
import http.client
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.errors import HaltServer
from gunicorn.util import import_app

from placement.domain.errors import PlacementError
from placement.metrics.sharing import forget
from placement.operations.http.limits import Limits
from placement.operations.http.tls import Tls
from placement.operations.ports import holder_of
from placement.operations.reloading import CarefulArbiter
from placement.services.health.probes import LIVE

_GRACE_SECONDS = 30
_WORKER = "placement.operations.http.worker.LaneWorker"
_BACKLOG = 2048
_ANSWERS_WITHIN_SECONDS = 30
_A_TRY_SECONDS = 1
# Workers of a master that was killed leave within this time.
_PORT_IS_FREE_WITHIN_SECONDS = 8
# M_ARENA_MAX of malloc.h.
_MOST_ARENAS = -8


class Server(BaseApplication):  # type: ignore[misc]
    """A master with worker processes, each with a forest of its own.

    `read_limits` is called at the start and at each SIGHUP, `greet` once, when a worker has answered.
    """

    def __init__(
        self,
        listener: socket.socket,
        workers: int,
        read_limits: Callable[[], Limits],
        greet: Callable[[], None] = lambda: None,
        tls: Tls | None = None,
    ) -> None:
        self.read_limits = read_limits
        self.limits = limits = read_limits()
        self.tls = tls
        self.greeted = False
        self._greet = greet
        self._asked_since: float | None = None
        self._address = listener.getsockname()[:2]
        self._options: dict[str, Any] = {
            "bind": f"fd://{listener.detach()}",
            "workers": workers,
            "worker_class": _WORKER,
            "backlog": _BACKLOG,
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
            "child_exit": _forget_figures,
            # Only for the scheme that applications are told.
            "certfile": tls and tls.files.certificate,
        }
        super().__init__()

    def greet(self) -> None:
        """Print that the service is ready if a worker answers now; else the next call tries again.

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
            raise HaltServer(reason, CarefulArbiter.WORKER_BOOT_ERROR) from None
        self.greeted = True
        self._greet()

    def run(self) -> None:
        """Serve until stopped."""
        _share_one_heap()
        # Else each worker would write the buffered output once more.
        sys.stdout.flush()
        CarefulArbiter(self).run()

    def load_config(self) -> None:
        """Hand the options to gunicorn."""
        for name, value in self._options.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Any:
        """The application, built in each worker."""
        return import_app("placement.wsgi:application")


def _forget_figures(_: Any, worker: Any) -> None:
    """What gunicorn calls when a worker has ended."""
    forget(worker.pid)


def _await_answer(host: str, port: int, *, encrypted: bool) -> None:
    """Ask a worker what it answers without waiting for anybody. Raises OSError, HTTPException."""
    # Who listens on all addresses answers on loopback.
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


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; waits some seconds while another is leaving. Raises PlacementError."""
    limit = time.monotonic() + _PORT_IS_FREE_WITHIN_SECONDS
    while True:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise PlacementError(f"--host {host} --port {port}: {error.strerror or error}") from None
            if time.monotonic() >= limit:
                raise PlacementError(_taken(host, port)) from None
            time.sleep(0.2)
        else:
            return listener


def _taken(host: str, port: int) -> str:
    who = holder_of(port) or "another program"
    return f"--port: {who} listens on {host}, port {port}; end it, or choose another port with --port"


def _share_one_heap() -> None:
    """Keep each of the threads from holding on to freed megabytes of its own; only glibc does that."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MOST_ARENAS, 1)


def default_workers() -> int:
    """As many as there are cores, at most four."""
    return min(4, os.cpu_count() or 1)
