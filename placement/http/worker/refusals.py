"""Answers to requests that never reach the application: refusals in the shape of its errors, and probes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from placement.common.extender_protocol import failure, verb_at
from placement.http import caller_limits

_TRY_AGAIN = (429, 503)
_RETRY_AFTER_SECONDS = 1


@dataclass(frozen=True, slots=True)
class HttpRefusal:
    """A status and a message that answer a request before its connection is closed."""

    status: int
    message: str


class RequestRefused(Exception):
    """An error for a request that is answered with a refusal.

    The refusals below are constants, but no exceptions: an exception that is raised again keeps the frames of
    each raise, and with them every connection that it ended.
    """

    def __init__(self, refusal: HttpRefusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


TOO_LATE = HttpRefusal(503, "The request waited too long for its turn; nothing was done.")
TOO_MANY = HttpRefusal(503, "Too many requests are waiting; nothing was done.")
TOO_MANY_OF_CALLER = HttpRefusal(429, caller_limits.TOO_MANY)
NO_ROOM = HttpRefusal(503, "Too many requests are being received; nothing was done.")
BODY_TOO_LONG = HttpRefusal(413, "The body is too long.")
LINE_TOO_LONG = HttpRefusal(414, "The request line is too long.")
HEAD_TOO_LONG = HttpRefusal(431, "The headers are too long.")
HEAD_TOO_SLOW = HttpRefusal(408, "The head of the request did not arrive in time.")
BODY_TOO_SLOW = HttpRefusal(408, "The body of the request did not arrive in time.")
NO_CERTIFICATE = HttpRefusal(403, "Only clients with a certificate are answered here.")
FAILED = HttpRefusal(500, "The failure was logged.")


def written(refusal: HttpRefusal, path: str = "") -> bytes:
    """Return the whole answer; verbs of the scheduler extender answer 200, in their form."""
    request_id, verb = f"req-{uuid.uuid4()}", verb_at(path)
    headers = {"Content-Type": "application/json", "x-openstack-request-id": request_id}
    if verb is not None:
        body = json.dumps(failure(verb, refusal.message)).encode()
        return whole_answer(HTTPStatus.OK, {**headers, "Content-Length": str(len(body))}, body)
    title = HTTPStatus(refusal.status).phrase
    error = {
        "status": refusal.status,
        "title": title,
        "detail": f"{title}\n\n {' '.join(refusal.message.split())}  ",
        "request_id": request_id,
    }
    body = json.dumps({"errors": [error]}).encode()
    headers["Content-Length"] = str(len(body))
    if refusal.status in _TRY_AGAIN:
        headers["Retry-After"] = str(_RETRY_AFTER_SECONDS)
    return whole_answer(refusal.status, headers, body)


def whole_answer(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return an answer as it is sent before its connection is closed."""
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Connection: close",
        "X-Content-Type-Options: nosniff",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
