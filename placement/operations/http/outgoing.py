"""Bytes on their way to a client, sent as far as the client takes them."""

from __future__ import annotations

import socket
import time
from collections import deque
from itertools import islice

from placement.operations.http.limits import Limits

# How many buffers one call to the system takes.
_MOST_BUFFERS = 64


class Outgoing:
    """Stands in for the socket where gunicorn writes an answer: nothing waits for the client."""

    def __init__(self, wire: socket.socket, limits: Limits) -> None:
        self._wire = wire
        self._limits = limits
        self._buffers: deque[memoryview] = deque()
        self.waiting = 0
        self._sent = 0
        # How long the client has let us wait: before, and since when now.
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
        """Until when the client must have taken the rest, in seconds of time.monotonic()."""
        allowed = self._limits.send_seconds + self._sent / self._limits.slowest_reader_bytes_per_second
        return (self._waits_since or time.monotonic()) + allowed - self._waited

    def _has_sent(self, count: int) -> None:
        self._sent += count
        self.waiting -= count
        while self._buffers and count >= len(self._buffers[0]):
            count -= len(self._buffers.popleft())
        if count:
            self._buffers[0] = self._buffers[0][count:]
