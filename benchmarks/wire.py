"""A lean HTTP client, so that what is measured is the server."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

_HEADERS = {
    "X-Roles": "admin,service",
    "OpenStack-API-Version": "placement 1.39",
    "Accept": "application/json",
}


class Wire:
    """One kept-alive connection."""

    def __init__(self, url: str, timeout: float = 300, token: str = "admin") -> None:
        self._headers = {**_HEADERS, "X-Auth-Token": token}
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)

    def call(
        self, method: str, path: str, body: Any = None, more: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body of one request, with more headers than usual."""
        headers = {**self._headers, **(more or {})}
        text = None
        if body is not None:
            text = json.dumps(body)
            headers["Content-Type"] = "application/json"
        self._connection.request(method, path, body=text, headers=headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def timed(self, method: str, path: str, body: Any = None) -> tuple[float, int, bytes]:
        """Milliseconds until the whole answer was read, status, body."""
        started = time.perf_counter()
        status, content = self.call(method, path, body)
        return (time.perf_counter() - started) * 1000, status, content

    def must(self, method: str, path: str, body: Any = None, more: Mapping[str, str] | None = None) -> bytes:
        """The body of an answer that has to be a success."""
        status, content = self.call(method, path, body, more)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {content[:300]!r}")
        return content
