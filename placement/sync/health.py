"""The port on which the synchronization answers with its health and its figures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from placement.common import probes
from placement.common.probes import Check
from placement.engine.domain.errors import PlacementError
from placement.metrics.sharing import exposition


def serve_health(host: str, port: int, checks: Callable[[], Sequence[Check]]) -> None:
    """Answer /livez, /readyz, /healthcheck and /metrics there, from threads that end with the process.

    Raises PlacementError naming the options if it cannot listen there.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if path == probes.METRICS:
                figures = exposition()
                size = {"Content-Length": str(len(figures))}
                self._send(200, {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, **size}, figures)
            elif path in probes.PATHS:
                accept = self.headers.get("Accept") or ""
                probe = probes.answer(self.command, path, query, accept, checks)
                self._send(probe.status, probe.headers, probe.body.encode())
            else:
                self._send(404, {"Content-Length": "0"}, b"")

        do_HEAD = do_GET

        def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: requests come every few seconds."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        reason = error.strerror or error
        raise PlacementError(f"--health-host {host} --health-port {port}: {reason}") from None
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
