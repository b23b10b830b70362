"""A client's connection: what it has sent so far, and which phase it is in."""

from __future__ import annotations

import os
import re
import socket
import struct
import tempfile
import time
from contextlib import suppress
from enum import Enum, auto
from typing import IO, Any
from urllib.parse import quote, unquote

from gunicorn.http import errors
from gunicorn.http.message import Request
from gunicorn.http.unreader import Unreader

from placement.common.probes import PATHS
from placement.http.caller_limits import AS_SENT
from placement.http.worker import refusals
from placement.http.worker.lanes import WorkerLimits
from placement.http.worker.refusals import HttpRefusal, RequestRefused
from placement.http.worker.tls import is_stranger

# gunicorn reads pieces of this size from sockets, too; for each chunk it copies the rest of the piece.
_PIECE, _LARGEST_PIECE = 8 * 1024, 2**20


class RequestBuffer(Unreader):  # type: ignore[misc]
    """A reader that gives gunicorn, in place of a socket, the head, then the body that was received."""

    def __init__(self, head: bytes, in_memory_bytes: int) -> None:
        super().__init__()
        self.buf.write(head)
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
        """Return the next piece of the body, empty at the end."""
        return self._body.read(min(max(size_hint or 0, _PIECE), _LARGEST_PIECE))

    def close(self) -> None:
        """Forget everything."""
        # The rest of the body may not fit into the temporary file; it is not wanted any more.
        with suppress(OSError):
            self._body.close()


_LINE_BREAK = b"\r\n"
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;[^\r\n]*)?")
_LONGEST_SIZE_LINE = 4096
_LONGEST_TRAILERS = 32 * 1024
# Chunks of a byte each would cost more to read than to work on.
_FREE_FRAMING, _DATA_PER_FRAMING = 64 * 1024, 16


class Chunks:
    """A parser that finds where a chunked body ends. Source: RFC 9112, section 7.1."""

    def __init__(self) -> None:
        # What comes next: so many bytes of data, the line break behind them, or a line.
        self._data = 0
        self._data_ends = False
        self._trailers: int | None = None
        self._all_data = self._all_framing = 0

    def take(self, buffer: bytearray) -> tuple[bytes, bool]:
        """Remove the body with its framing from the buffer; return these bytes, and whether it ends there.

        Raises RequestRefused.
        """
        taken = bytearray()
        while buffer:
            if self._data:
                piece = buffer[: self._data]
                self._data -= len(piece)
                self._data_ends = not self._data
            elif self._data_ends:
                piece = buffer[: len(_LINE_BREAK)]
                if not _LINE_BREAK.startswith(piece):
                    raise _bad_request("the data of a chunk does not end where its size says")
                if len(piece) < len(_LINE_BREAK):
                    break
                self._data_ends = False
            else:
                piece = buffer[: buffer.find(b"\n") + 1]
                if not piece and len(buffer) > _LONGEST_SIZE_LINE:
                    raise _bad_request("a line of a chunked body is too long")
                if not piece:
                    break
                self._read_line(piece)
            taken += piece
            del buffer[: len(piece)]
            if self._trailers is not None and piece == _LINE_BREAK:
                return bytes(taken), True
        return bytes(taken), False

    def _read_line(self, line: bytearray) -> None:
        """Read the size of the next chunk, or a trailer."""
        self._all_framing += len(line)
        if self._all_framing > _FREE_FRAMING + self._all_data // _DATA_PER_FRAMING:
            raise _bad_request("the chunks are too small")
        if not line.endswith(_LINE_BREAK):
            raise _bad_request("a line of a chunked body does not end as it must")
        content = line[: -len(_LINE_BREAK)]
        if self._trailers is None:
            size = _SIZE.fullmatch(content)
            if size is None or len(content) > _LONGEST_SIZE_LINE:
                raise _bad_request("the size of a chunk is not a hexadecimal number")
            self._data = int(size[1], 16)
            self._all_data += self._data
            if not self._data:
                self._trailers = 0
            return
        self._trailers += len(line)
        if self._trailers > _LONGEST_TRAILERS:
            raise _bad_request("the trailers of a chunked body are too long")
        if b"\r" in content:
            raise _bad_request("a trailer of a chunked body contains a line break")


def _bad_request(message: str) -> RequestRefused:
    return RequestRefused(HttpRefusal(400, message))


class Phase(Enum):
    """A phase of a connection, which waits for the client or for our answer."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    BUSY = auto()
    SENDING = auto()
    DRAIN = auto()


_END_OF_HEAD = b"\r\n\r\n"
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_RECEIVED_AT_ONCE = 64 * 1024
# Of a request that is refused so much is logged.
_SHOWN_BYTES = 2048
_METHOD = re.compile(r"[A-Za-z]{1,20}")
# The pages are below it; clients without a token may send their forms.
_PAGES = "/ui/"
# struct linger of socket.h: on, for no seconds.
_AT_ONCE = struct.pack("ii", 1, 0)
# What gunicorn's parser quotes that does not come from the client.
_HARMLESS = tuple(map(repr, ("CONTENT-LENGTH", "TRANSFER-ENCODING", "bare LF as line terminator")))
# The statuses for what gunicorn's parser cannot read; others are 400.
_STATUS: dict[type[Exception], int] = {
    errors.LimitRequestLine: 414,
    errors.LimitRequestHeaders: 431,
    errors.ExpectationFailed: 417,
    errors.UnsupportedTransferCoding: 501,
    errors.ForbiddenProxyRequest: 403,
}


class Connection:
    """A connection that receives requests one after the other, without ever waiting."""

    def __init__(
        self, wire: socket.socket, address: Any, server_address: Any, cfg: Any, limits: WorkerLimits
    ):
        wire.setblocking(False)
        self.wire = wire
        self.address = address
        # What unknown callers count for.
        self.client = str(address[0] if isinstance(address, tuple) else address)
        self.server_address = server_address
        self.limits = limits
        self.phase = Phase.IDLE
        self.deadline = time.monotonic() + limits.head_seconds
        self.request: Request | None = None
        # Whether threads have the request and what was received of it.
        self.is_in_work = False
        # How the head of the present request begins, once all of it is there.
        self._head_start = b""
        self.received: RequestBuffer | None = None
        self.ended = False
        # What the event loop waits for on the wire.
        self.watched = 0
        self._cfg = cfg
        self._buffer = bytearray()
        self._searched = 0
        self._number = 0
        # How many bytes of the body are missing, or its chunks.
        self._framing: int | Chunks = 0
        self._largest_body = limits.largest_body_bytes

    @property
    def held(self) -> int:
        """Return how many bytes are kept for this connection."""
        return len(self._buffer) + (self.received.size if self.received is not None else 0)

    def asked(self) -> tuple[str, str]:
        """Return method and address of the present request for logs; `-` for what has not arrived."""
        method, target = self._begun()
        return method or "-", quote(target, safe=AS_SENT, encoding="latin-1") or "-"

    @property
    def path(self) -> str:
        """Return the path of the present request, empty for what has not arrived."""
        return unquote(self._begun()[1].partition("?")[0])

    def _begun(self) -> tuple[str, str]:
        """Return method and target as far as they have arrived, both empty without a method."""
        start = self._head_start or bytes(self._buffer[:_SHOWN_BYTES])
        words = start.partition(b"\r\n")[0].decode("latin-1").split(" ")
        return (words[0], words[1]) if len(words) > 1 and _METHOD.fullmatch(words[0]) else ("", "")

    def receive(self) -> bool:
        """Take in what has arrived; False if nothing has. Raises OSError."""
        try:
            data = self.wire.recv(_RECEIVED_AT_ONCE)
        except (BlockingIOError, InterruptedError):
            return False
        self.ended = not data
        if self.phase is not Phase.DRAIN:
            self._buffer += data
        return True

    def advance(self) -> bool:
        """Parse what has arrived; return whether a request is complete. Raises RequestRefused, OSError."""
        if self.phase is Phase.IDLE and self._buffer:
            self.phase = Phase.HEAD
            self.deadline = time.monotonic() + self.limits.head_seconds
        if self.phase is Phase.HEAD:
            self._take_head()
        return self.phase is Phase.BODY and self._take_body()

    def _take_head(self) -> None:
        end = self._buffer.find(_END_OF_HEAD, max(0, self._searched - len(_END_OF_HEAD)))
        # The parser names what is wrong with lines that do not end as they must.
        is_complete = end >= 0 or _BARE_LINE_FEED.search(self._buffer, self._searched) is not None
        size = end if end >= 0 else len(self._buffer)
        line = self._buffer.find(b"\r\n", 0, self.limits.largest_line_bytes + 2)
        if line < 0 and size > self.limits.largest_line_bytes:
            raise RequestRefused(refusals.LINE_TOO_LONG)
        if size > self.limits.largest_head_bytes:
            raise RequestRefused(refusals.HEAD_TOO_LONG)
        if not is_complete:
            self._searched = size
            return
        head = bytes(self._buffer[: size + len(_END_OF_HEAD)])
        del self._buffer[: len(head)]
        self._head_start = head[:_SHOWN_BYTES]
        self._number += 1
        self.received = RequestBuffer(head, self.limits.body_in_memory_bytes)
        try:
            self.request = Request(self._cfg, self.received, self.address, self._number)
        except (errors.ParseException, OSError, StopIteration) as error:
            status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 400)
            raise RequestRefused(HttpRefusal(status, _complaint(error))) from None
        _require_unambiguous(self.request)
        if self.request.path not in PATHS and is_stranger(self.wire):
            raise RequestRefused(refusals.NO_CERTIFICATE)
        self._expect_body(self.request)

    def _expect_body(self, request: Request) -> None:
        self.phase = Phase.BODY
        self.deadline = time.monotonic() + self.limits.body_seconds
        length: int | None = getattr(request.body.reader, "length", None)
        self._framing = Chunks() if length is None else length
        is_form = unquote(path_of(request)).startswith(_PAGES)
        self._largest_body = self.limits.largest_form_bytes if is_form else self.limits.largest_body_bytes
        if length is not None and length > self._largest_body:
            raise RequestRefused(refusals.BODY_TOO_LONG)
        if request._expected_100_continue:
            request._expected_100_continue = False
            if not self._buffer:
                # A client that is gone is noticed at the next read.
                with suppress(OSError):
                    self.wire.send(_CONTINUE)

    def _take_body(self) -> bool:
        assert self.received is not None
        if isinstance(self._framing, Chunks):
            piece, complete = self._framing.take(self._buffer)
        else:
            piece = bytes(self._buffer[: self._framing])
            del self._buffer[: len(piece)]
            self._framing -= len(piece)
            complete = self._framing == 0
        self.received.append(piece)
        if self.received.body_size > self._largest_body:
            raise RequestRefused(refusals.BODY_TOO_LONG)
        # The application refuses a body that breaks off.
        if complete or self.ended:
            self.received.complete()
            return True
        return False

    def rest(self, seconds: float) -> None:
        """Wait for the next request for so many seconds at most."""
        self.phase = Phase.IDLE
        self.deadline = time.monotonic() + seconds
        self.request = self.received = None
        self._head_start = b""
        self._searched = 0

    def drain(self) -> None:
        """End our side of the connection, and give the client time to read what was sent. Raises OSError.

        Closing at once would make the system drop what the client has not read yet.
        """
        self.phase = Phase.DRAIN
        self.deadline = time.monotonic() + self.limits.drain_seconds
        self._forget()
        self.wire.shutdown(socket.SHUT_WR)

    def close(self, *, aborting: bool = False) -> None:
        """Close the connection; `aborting` discards what the system has still to send."""
        self._forget()
        with suppress(OSError):
            if aborting:
                self.wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        with suppress(OSError):
            self.wire.close()

    def _forget(self) -> None:
        if self.received is not None and not self.is_in_work:
            self.received.close()
        self._buffer.clear()
        self.request = self.received = None


def path_of(request: Request) -> str:
    """Return the path of a request without the prefix at which the service is mounted.

    As in `gunicorn.http.wsgi.create` the prefix is SCRIPT_NAME, of a trusted proxy or of the environment.
    """
    sent = [value for name, value in request.headers if name == "SCRIPT_NAME"]
    path: str = request.path
    return path.removeprefix(sent[-1] if sent else os.environ.get("SCRIPT_NAME", ""))


def _complaint(error: Exception) -> str:
    """Return what the parser found wrong, and of what it quotes only what is known to be no part of a token.

    A token that was pasted with a line break in it makes a line that is no header.
    """
    found = str(error)
    kind, _, quoted = found.partition(": ")
    return found if quoted in _HARMLESS else kind


def _require_unambiguous(request: Request) -> None:
    """Raise RequestRefused for what RFC 9112 forbids in a head and the parser lets pass.

    Sources: RFC 9112, 3.2 "Request Target" (Host) and 6.1 "Transfer-Encoding".
    """
    for name, value in request.headers:
        # A proxy may take `identity, chunked` for another framing than the parser does.
        if name == "TRANSFER-ENCODING" and value.strip().lower() != "chunked":
            raise _bad_request(f"Transfer-Encoding: {value} is not supported; chunked is, alone.")
    if request.version >= (1, 1) and all(name != "HOST" for name, _ in request.headers):
        raise _bad_request("A request of HTTP/1.1 needs the header Host.")
