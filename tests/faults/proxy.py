"""A proxy in front of an HTTP server, which can withhold requests and answers, or answer itself."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "host", "keep-alive"})


class Lost(Enum):
    """What is lost on the way."""

    REQUEST = "request"
    ANSWER = "answer"


@dataclass(frozen=True)
class Request:
    """A request as the proxy sees it."""

    method: str
    path: str
    body: bytes


Rule = Callable[[Request], Lost | int | None]
"""What happens to a request: something is lost, it is answered with that status, or it passes (None)."""


class Proxy:
    """Where it listens, and the rule that holds now."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.rule: Rule = lambda _: None
        self._met = 0
        self._lock = threading.Lock()

    @property
    def met(self) -> int:
        """How many requests did not simply pass."""
        return self._met

    def decide(self, request: Request) -> Lost | int | None:
        """What the rule says of a request."""
        with self._lock:
            found = self.rule(request)
            self._met += found is not None
            return found


@contextmanager
def proxy_to(target: str, context: ssl.SSLContext | None = None) -> Iterator[Proxy]:
    """A proxy that speaks HTTP and passes on to that URL."""
    parts = urlsplit(target)

    def connect() -> http.client.HTTPConnection:
        if parts.scheme == "https":
            return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=300, context=context)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=300)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def handle_one_request(self) -> None:
            with suppress(ConnectionError):
                super().handle_one_request()

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            decided = proxy.decide(Request(self.command, self.path, body))
            if decided is Lost.REQUEST:
                self.close_connection = True
                return
            if isinstance(decided, int):
                text = json.dumps({"message": f"refused by the proxy with {decided}"}).encode()
                self._begin(
                    decided, [("Content-Type", "application/json"), ("Content-Length", str(len(text)))]
                )
                self.wfile.write(text)
                return
            far = connect()
            try:
                headers = {key: text for key, text in self.headers.items() if key.lower() not in _HOP_BY_HOP}
                far.request(self.command, self.path, body or None, headers)
                answer = far.getresponse()
                if decided is Lost.ANSWER:
                    answer.read()
                    self.close_connection = True
                else:
                    self._stream(answer)
            except (OSError, http.client.HTTPException):
                self.close_connection = True
            finally:
                far.close()

        def _stream(self, answer: http.client.HTTPResponse) -> None:
            headers = [pair for pair in answer.getheaders() if pair[0].lower() not in _HOP_BY_HOP]
            if answer.status in (204, 304):
                self._begin(answer.status, headers)
                return
            self._begin(answer.status, [*headers, ("Transfer-Encoding", "chunked")])
            while data := answer.read1(1 << 16):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def _begin(self, status: int, headers: list[tuple[str, str]]) -> None:
            self.send_response_only(status)
            for key, text in headers:
                self.send_header(key, text)
            self.end_headers()

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    proxy = Proxy(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
