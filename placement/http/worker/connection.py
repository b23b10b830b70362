"""A client's connection: what it has sent so far, and which phase it is in."""

from __future__ import annotations

import re
import socket
import struct
import time
from contextlib import suppress
from enum import Enum, auto
from typing import Any
from urllib.parse import unquote

from gunicorn.http.errors import ParseException
from gunicorn.http.message import Request

from placement.common.probes import PATHS
from placement.http.worker import exchange
from placement.http.worker.exchange import (
    BadChunks,
    Chunks,
    Exchange,
    HttpRefusal,
    Length,
    RequestBuffer,
    RequestRefused,
    framing_of,
)
from placement.http.worker.lanes import WorkerLimits
from placement.http.worker.tls import is_stranger

_END_OF_HEAD = b"\r\n\r\n"
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PIECE = 64 * 1024
# The pages are below it; clients without a token may send their forms.
_PAGES = "/ui/"
# struct linger of socket.h: on, for no seconds.
_AT_ONCE = struct.pack("ii", 1, 0)


class Phase(Enum):
    """A phase of a connection, which waits for the client or for our answer."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    BUSY = auto()
    SENDING = auto()
    DRAIN = auto()


class Connection:
    """A connection that receives requests one after the other, without ever waiting."""

    def __init__(
        self, wire: socket.socket, address: Any, server_address: Any, cfg: Any, limits: WorkerLimits
    ):
        wire.setblocking(False)
        self.wire = wire
        self.address = address
        self.server_address = server_address
        self.phase = Phase.IDLE
        self.deadline = time.monotonic() + limits.head_seconds
        self.exchange: Exchange | None = None
        self.request: Request | None = None
        self.received: RequestBuffer | None = None
        self.ended = False
        # What the event loop waits for on the wire.
        self.watched = 0
        self._cfg = cfg
        self._limits = limits
        self._buffer = bytearray()
        self._searched = 0
        self._framing: Length | Chunks | None = None
        self._largest_body = limits.largest_body_bytes
        self._number = 0

    @property
    def held(self) -> int:
        """Return how many bytes are kept for this connection."""
        return len(self._buffer) + (self.received.size if self.received is not None else 0)

    def receive(self) -> bool:
        """Take in what has arrived; False if nothing has. Raises OSError."""
        try:
            data = self.wire.recv(_PIECE)
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
            self.deadline = time.monotonic() + self._limits.head_seconds
        if self.phase is Phase.HEAD:
            self._take_head()
        return self.phase is Phase.BODY and self._take_body()

    def rest(self, seconds: float) -> None:
        """Wait for the next request for so many seconds at most."""
        self.phase = Phase.IDLE
        self.deadline = time.monotonic() + seconds
        self.exchange = self.request = self.received = self._framing = None
        self._searched = 0

    def drain(self) -> None:
        """End our side of the connection, and give the client time to read what was sent.

        Closing at once would make the system drop what the client has not read yet.
        """
        self.phase = Phase.DRAIN
        self.deadline = time.monotonic() + self._limits.drain_seconds
        self._forget()
        self.wire.shutdown(socket.SHUT_WR)

    def abort(self) -> None:
        """Close the connection, and discard what the system has still to send."""
        with suppress(OSError):
            self.wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._forget()
        with suppress(OSError):
            self.wire.close()

    def _forget(self) -> None:
        if self.received is not None and self.exchange is None:
            self.received.close()
        self._buffer.clear()
        self.request = self.received = None

    def _take_head(self) -> None:
        end = self._buffer.find(_END_OF_HEAD, max(0, self._searched - len(_END_OF_HEAD)))
        if end < 0:
            # The parser names what is wrong with lines that do not end as they must.
            if not _BARE_LINE_FEED.search(self._buffer, self._searched):
                self._searched = len(self._buffer)
                return self._check_head(len(self._buffer))
            end = len(self._buffer)
        self._check_head(end)
        head = bytes(self._buffer[: end + len(_END_OF_HEAD)])
        del self._buffer[: len(head)]
        self._number += 1
        self.received = RequestBuffer(head, self._limits.body_in_memory_bytes)
        try:
            self.request = Request(self._cfg, self.received, self.address, self._number)
        except (ParseException, OSError, StopIteration) as error:
            raise RequestRefused(exchange.of_parser(error)) from None
        if (objection := _objection(self.request)) is not None:
            raise RequestRefused(HttpRefusal(400, objection))
        if self.request.path not in PATHS and is_stranger(self.wire):
            raise RequestRefused(exchange.NO_CERTIFICATE)
        self._expect_body()

    def _check_head(self, size: int) -> None:
        line = self._buffer.find(b"\r\n", 0, self._limits.largest_line_bytes + 2)
        if line < 0 and size > self._limits.largest_line_bytes:
            raise RequestRefused(exchange.LINE_TOO_LONG)
        if size > self._limits.largest_head_bytes:
            raise RequestRefused(exchange.HEAD_TOO_LONG)

    def _expect_body(self) -> None:
        assert self.request is not None
        self.phase = Phase.BODY
        self.deadline = time.monotonic() + self._limits.body_seconds
        self._framing = framing_of(self.request)
        if unquote(self.request.path).startswith(_PAGES):
            self._largest_body = self._limits.largest_form_bytes
        else:
            self._largest_body = self._limits.largest_body_bytes
        if self._framing.missing > self._largest_body:
            raise RequestRefused(exchange.BODY_TOO_LONG)
        if self.request._expected_100_continue:
            self.request._expected_100_continue = False
            if not self._buffer:
                # A client that is gone is noticed at the next read.
                with suppress(OSError):
                    self.wire.send(_CONTINUE)

    def _take_body(self) -> bool:
        assert self._framing is not None
        assert self.received is not None
        try:
            piece, complete = self._framing.take(self._buffer)
        except BadChunks as error:
            raise RequestRefused(HttpRefusal(400, str(error))) from None
        self.received.append(piece)
        if self.received.body_size > self._largest_body:
            raise RequestRefused(exchange.BODY_TOO_LONG)
        # The application refuses a body that breaks off.
        if complete or self.ended:
            self.received.complete()
            return True
        return False


def _objection(request: Request) -> str | None:
    """Return what RFC 9112 forbids in a head and the parser lets pass, None if nothing.

    Sources: RFC 9112, 3.2 "Request Target" (Host) and 6.1 "Transfer-Encoding".
    """
    has_host = False
    for name, value in request.headers:
        has_host = has_host or name == "HOST"
        # A proxy may take `identity, chunked` for another framing than the parser does.
        if name == "TRANSFER-ENCODING" and value.strip().lower() != "chunked":
            return f"Transfer-Encoding: {value} is not supported; chunked is, alone."
    if not has_host and request.version >= (1, 1):
        return "A request of HTTP/1.1 needs the header Host."
    return None
