"""One request and its answer, produced by threads of a lane as fast as the client takes it."""

from __future__ import annotations

import contextvars
import hashlib
import json
import logging
import re
import socket
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

from gunicorn.http import errors, wsgi
from gunicorn.http.message import Request
from gunicorn.http.unreader import Unreader
from oslo_context import context as log_context
from oslo_context.context import RequestContext

from placement.common.probes import Probe
from placement.engine.domain import request_scope
from placement.http import gate
from placement.http.gate import KNOWN_AS, KnownCredentials
from placement.http.worker.lanes import Lane, WorkerLimits

if TYPE_CHECKING:
    from placement.http.worker.connection import Connection


# Bytes on their way to a client, sent as far as the client takes them.


# How many buffers one call to the system takes.
_MOST_BUFFERS = 64


class Outgoing:
    """A stand-in for the socket where gunicorn writes an answer; it does not wait for the client."""

    def __init__(self, wire: socket.socket, limits: WorkerLimits) -> None:
        self._wire = wire
        self._limits = limits
        self._buffers: deque[memoryview] = deque()
        self.waiting = 0
        self._sent = 0
        # The seconds of former waits for the client, and the begin of the present one.
        self._waited = 0.0
        self._waits_since: float | None = None

    def sendall(self, data: bytes) -> None:
        """Keep the bytes until they are flushed."""
        if data:
            self._buffers.append(memoryview(data))
            self.waiting += len(data)

    send = sendall

    def flush(self) -> bool:
        """Send as much as the client takes now; True if that was everything. Raises OSError."""
        while self._buffers:
            try:
                self._has_sent(self._wire.sendmsg(list(islice(self._buffers, _MOST_BUFFERS))))
            except (BlockingIOError, InterruptedError):
                if self._waits_since is None:
                    self._waits_since = time.monotonic()
                return False
        if self._waits_since is not None:
            self._waited += time.monotonic() - self._waits_since
            self._waits_since = None
        return True

    def deadline(self) -> float:
        """Return when the client must have taken the rest, in seconds of time.monotonic()."""
        allowed = self._limits.send_seconds + self._sent / self._limits.slowest_reader_bytes_per_second
        return (self._waits_since or time.monotonic()) + allowed - self._waited

    def _has_sent(self, count: int) -> None:
        self._sent += count
        self.waiting -= count
        while self._buffers and count >= len(self._buffers[0]):
            count -= len(self._buffers.popleft())
        if count:
            self._buffers[0] = self._buffers[0][count:]


# A request as it was received, handed to gunicorn's parser.


# gunicorn reads pieces of this size from sockets, too; for each chunk it copies the rest of the piece.
_PIECE, _LARGEST_PIECE = 8 * 1024, 2**20
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;[^\r\n]*)?")
_TRAILER = re.compile(rb"[^\r\n]*")
_LINE_BREAK = b"\r\n"
_LONGEST_SIZE_LINE = 4096
_LONGEST_TRAILERS = 32 * 1024
# Chunks of a byte each would cost more to read than to work on.
_FREE_FRAMING, _DATA_PER_FRAMING = 64 * 1024, 16


class BadChunks(Exception):
    """An error for a chunked body that is not framed as HTTP has it."""


class RequestBuffer(Unreader):  # type: ignore[misc]
    """A reader that gives gunicorn, in place of a socket, the head, then the body that was received."""

    def __init__(self, head: bytes, in_memory_bytes: int) -> None:
        super().__init__()
        self._head = head
        self._body: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=in_memory_bytes)  # noqa: SIM115
        self.size = len(head)
        self.body_size = 0

    def append(self, data: bytes) -> None:
        """Keep a piece of the body. Raises OSError if the temporary file cannot be written."""
        self._body.write(data)
        self.size += len(data)
        self.body_size += len(data)

    def complete(self) -> None:
        """Make the body, which is whole now, readable from its start."""
        self._body.seek(0)

    def chunk(self, size_hint: int | None = None) -> bytes:
        """Return the next piece, empty at the end."""
        if self._head:
            head, self._head = self._head, b""
            return head
        return self._body.read(min(max(size_hint or 0, _PIECE), _LARGEST_PIECE))

    def close(self) -> None:
        """Forget everything."""
        # The rest of the body may not fit into the temporary file; it is not wanted any more.
        with suppress(OSError):
            self._body.close()


class Length:
    """A counter that finds where a body of known length ends."""

    def __init__(self, size: int) -> None:
        self.missing = size

    def take(self, buffer: bytearray) -> tuple[bytes, bool]:
        """Remove the bytes of the body from the buffer; return them, and whether the body ends there."""
        taken = bytes(buffer[: self.missing])
        del buffer[: len(taken)]
        self.missing -= len(taken)
        return taken, self.missing == 0


class Chunks:
    """A parser that finds where a chunked body ends. Source: RFC 9112, section 7.1."""

    # How many bytes are missing is not known.
    missing = 0

    def __init__(self) -> None:
        self._data = 0
        self._data_ends = False
        self._trailers: int | None = None
        self._all_data = self._all_framing = 0

    def take(self, buffer: bytearray) -> tuple[bytes, bool]:
        """Remove the body with its framing from the buffer; return these bytes, and whether it ends there.

        Raises BadChunks.
        """
        taken = bytearray()
        while buffer and (piece := self._piece(buffer)) is not None:
            taken += piece
            del buffer[: len(piece)]
            if self._trailers is not None and piece == _LINE_BREAK:
                return bytes(taken), True
        return bytes(taken), False

    def _piece(self, buffer: bytearray) -> bytearray | None:
        """Return data, the line break behind it, or a line; None while its end is missing."""
        if self._data:
            piece = buffer[: self._data]
            self._data -= len(piece)
            self._data_ends = not self._data
            return piece
        if self._data_ends:
            piece = buffer[: len(_LINE_BREAK)]
            if not _LINE_BREAK.startswith(piece):
                raise BadChunks("the data of a chunk does not end where its size says")
            if len(piece) < len(_LINE_BREAK):
                return None
            self._data_ends = False
            return piece
        return self._line(buffer)

    def _line(self, buffer: bytearray) -> bytearray | None:
        """Return the line at the beginning of the buffer, None while its end is missing."""
        end = buffer.find(b"\n")
        if end < 0:
            if len(buffer) > _LONGEST_SIZE_LINE:
                raise BadChunks("a line of a chunked body is too long")
            return None
        line = buffer[: end + 1]
        self._all_framing += len(line)
        if self._all_framing > _FREE_FRAMING + self._all_data // _DATA_PER_FRAMING:
            raise BadChunks("the chunks are too small")
        if not line.endswith(_LINE_BREAK):
            raise BadChunks("a line of a chunked body does not end as it must")
        if self._trailers is None:
            self._begin_chunk(line[: -len(_LINE_BREAK)])
            return line
        self._trailers += len(line)
        if self._trailers > _LONGEST_TRAILERS:
            raise BadChunks("the trailers of a chunked body are too long")
        if not _TRAILER.fullmatch(line[: -len(_LINE_BREAK)]):
            raise BadChunks("a trailer of a chunked body contains a line break")
        return line

    def _begin_chunk(self, line: bytearray) -> None:
        size = _SIZE.fullmatch(line)
        if size is None or len(line) > _LONGEST_SIZE_LINE:
            raise BadChunks("the size of a chunk is no hexadecimal number")
        self._data = int(size[1], 16)
        self._all_data += self._data
        if not self._data:
            self._trailers = 0


def framing_of(request: Request) -> Length | Chunks:
    """Return how to find the end of the body, as gunicorn has understood the head."""
    length: Any = getattr(request.body.reader, "length", None)
    return Chunks() if length is None else Length(length)


# Answers to requests that never reach the application: refusals in the shape of its errors, and probes.


_STATUS: dict[type[Exception], int] = {
    errors.LimitRequestLine: 414,
    errors.LimitRequestHeaders: 431,
    errors.ExpectationFailed: 417,
    errors.UnsupportedTransferCoding: 501,
    errors.ForbiddenProxyRequest: 403,
}
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
TOO_MANY_OF_CALLER = HttpRefusal(429, gate.TOO_MANY)
NO_ROOM = HttpRefusal(503, "Too many requests are being received; nothing was done.")
BODY_TOO_LONG = HttpRefusal(413, "The body is too long.")
LINE_TOO_LONG = HttpRefusal(414, "The request line is too long.")
HEAD_TOO_LONG = HttpRefusal(431, "The headers are too long.")
HEAD_TOO_SLOW = HttpRefusal(408, "The head of the request did not arrive in time.")
BODY_TOO_SLOW = HttpRefusal(408, "The body of the request did not arrive in time.")
NO_CERTIFICATE = HttpRefusal(403, "Only clients with a certificate are answered here.")
FAILED = HttpRefusal(500, "The failure was logged.")


def of_parser(error: Exception) -> HttpRefusal:
    """Return the refusal for what gunicorn's parser could not read."""
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 400)
    return HttpRefusal(status, str(error))


def written(refusal: HttpRefusal) -> bytes:
    """Return the whole answer."""
    request_id = f"req-{uuid.uuid4()}"
    title = HTTPStatus(refusal.status).phrase
    error = {
        "status": refusal.status,
        "title": title,
        "detail": f"{title}\n\n {' '.join(refusal.message.split())}  ",
        "request_id": request_id,
    }
    body = json.dumps({"errors": [error]}).encode()
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "x-openstack-request-id": request_id,
    }
    if refusal.status in _TRY_AGAIN:
        headers["Retry-After"] = str(_RETRY_AFTER_SECONDS)
    return _head(refusal.status, headers) + body


def probe_written(probe: Probe) -> bytes:
    """Return the whole answer to a probe."""
    return _head(probe.status, probe.headers) + probe.body.encode()


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Connection: close",
        "X-Content-Type-Options: nosniff",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


LOG = logging.getLogger(__name__)
_TOGETHER_BYTES = 16 * 1024
# The headers that identify callers: a token, else the headers of other clients and browsers.
_TOKEN, _OTHER_CREDENTIALS = "X-AUTH-TOKEN", ("AUTHORIZATION", "COOKIE")

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class State(Enum):
    """A state of an exchange, by which the event loop goes on with it."""

    BLOCKED = auto()
    ANSWERED = auto()
    BROKEN = auto()


class Exchange:
    """A complete request in work. A thread may leave it while the client reads slowly; another continues."""

    def __init__(
        self,
        connection: Connection,
        request: Request,
        received: RequestBuffer,
        limits: WorkerLimits,
        known: KnownCredentials,
        application: Application,
        report: Callable[[Exchange, State], None],
    ) -> None:
        self.connection = connection
        self.request = request
        self.received = received
        self.outgoing = Outgoing(connection.wire, limits)
        self._credentials = _credentials(request)
        self._known = known
        user = known.user_of(self._credentials) if self._credentials is not None else None
        address = _host(connection.address)
        # Lanes let each token of a user have its turn; a caller without a known token has its address's turn.
        self.caller: Hashable = address if user is None else self._credentials
        # The number of requests is bounded by this; no user id is a tuple.
        self.counts_for: Hashable = ("address", address) if user is None else user
        self.is_counted = False
        self.arrival = time.monotonic()
        self.deadline = request_scope.of(self.arrival, limits.request_seconds)
        self.keep_alive = True
        self.abandoned = False
        # The lane where it waits for threads; set when it is handed over.
        self.lane: Lane
        self._application = application
        self._report = report
        self._context = contextvars.copy_context()
        self._log_context: RequestContext | None = None
        self._response: Any = None
        self._answer: Iterable[bytes] = ()
        self._pieces: Iterator[bytes] | None = None
        self._produced = False

    @property
    def begun(self) -> bool:
        """Return whether the application was asked."""
        return self._pieces is not None

    def run(self) -> None:
        """Produce the answer, or more of it, until it is sent or the client does not keep up."""
        # The log keeps its context by thread, and a thread serves one exchange after the other.
        _set_log_context(self._log_context)
        state = self._run()
        self._log_context = log_context.get_current()
        _set_log_context(None)
        self._report(self, state)

    def _run(self) -> State:
        try:
            state = self._context.run(self._advance)
        except (BrokenPipeError, ConnectionError) as error:
            LOG.debug("the client went away: %s", error)
            state = State.BROKEN
        except (Exception, SystemExit):
            LOG.exception("an answer failed")
            state = self._failed()
        if state is not State.BLOCKED:
            self._context.run(self._close)
        return state

    def _advance(self) -> State:
        if self.abandoned:
            return State.BROKEN
        if self._pieces is None:
            if time.monotonic() >= self.deadline:
                self.refuse(TOO_LATE)
                return State.ANSWERED if self.outgoing.flush() else State.BLOCKED
            self._begin()
        return self._send()

    def _begin(self) -> None:
        connection, outgoing = self.connection, self.outgoing
        self._response, environ = wsgi.create(
            self.request, outgoing, connection.address, connection.server_address, self.request.cfg
        )
        environ["wsgi.multithread"] = True
        environ[request_scope.KEY] = self.arrival
        environ[KNOWN_AS] = self._known_as
        # By this the application sees whether the caller is still there.
        environ["gunicorn.socket"] = connection.wire
        if not self.keep_alive:
            self._response.force_close()
        self._answer = self._application(environ, self._response.start_response)
        self._pieces = iter(self._answer)

    def _known_as(self, user_id: str) -> None:
        if self._credentials is not None:
            self._known.note(self._credentials, user_id)

    def _send(self) -> State:
        assert self._pieces is not None
        while not self._produced:
            piece = next(self._pieces, None)
            if piece is None:
                self._response.close()
                self._produced = True
            else:
                self._response.write(piece)
            # Small pieces leave together, unless an empty one says that nothing may follow for long.
            is_due = piece == b"" or self.outgoing.waiting >= _TOGETHER_BYTES
            if is_due and not self.outgoing.flush():
                return State.BLOCKED
        if not self.outgoing.flush():
            return State.BLOCKED
        self.keep_alive = self.keep_alive and not self._response.should_close()
        return State.ANSWERED

    def refuse(self, refusal: HttpRefusal) -> None:
        """Answer with the refusal instead of asking the application."""
        self._pieces, self._produced, self.keep_alive = iter(()), True, False
        self._response = _Closing()
        self.outgoing.sendall(written(refusal))

    def _failed(self) -> State:
        self.keep_alive = False
        if self._response is not None and self._response.headers_sent:
            return State.BROKEN
        self.refuse(FAILED)
        try:
            return State.ANSWERED if self.outgoing.flush() else State.BLOCKED
        except OSError:
            return State.BROKEN

    def _close(self) -> None:
        self.received.close()
        close = getattr(self._answer, "close", None)
        self._answer = ()
        if close is not None:
            try:
                close()
            except Exception:
                LOG.exception("the end of an answer failed")


def _set_log_context(wanted: RequestContext | None) -> None:
    """Have the lines that this thread logs carry that request."""
    if wanted is not None:
        wanted.update_store()
    else:
        # oslo.context has no other way to forget.
        vars(log_context._request_store).pop("context", None)


class _Closing:
    """The response of a refusal, which is written already."""

    headers_sent = True

    def should_close(self) -> bool:
        """Return True: its connection is always closed."""
        return True


def _credentials(request: Request) -> bytes | None:
    """Return the SHA-256 of what identifies the caller, None if the request has nothing of that kind."""
    found = [value for name, value in request.headers if name == _TOKEN]
    found = found or [value for name, value in request.headers if name in _OTHER_CREDENTIALS]
    return hashlib.sha256("\n".join(found).encode("latin-1", "replace")).digest() if found else None


def _host(address: Any) -> str:
    """Return the address of a client without its port."""
    return str(address[0]) if isinstance(address, tuple) else str(address)
