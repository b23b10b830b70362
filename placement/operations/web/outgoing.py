"""Bytes on their way to a client, sent as far as the client takes them."""

from __future__ import annotations

import socket
import time
from collections import deque

from placement.operations.web.limits import Limits

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
        self._since: float | None = None

    def sendall(self, data: bytes) -> None:
        """Keep the bytes until they are flushed."""
        if data:
            self._buffers.append(memoryview(data))
            self.waiting += len(data)

    send = sendall

    def flush(self) -> bool:
        """Send as much as the client takes now; True if that was everything. Raises OSError."""
        if self._since is None:
            self._since = time.monotonic()
        while self._buffers:
            try:
                count = self._wire.sendmsg(list(self._buffers)[:_MOST_BUFFERS])
            except (BlockingIOError, InterruptedError):
                return False
            self._sent += count
            self.waiting -= count
            while count and count >= len(self._buffers[0]):
                count -= len(self._buffers.popleft())
            if count:
                self._buffers[0] = self._buffers[0][count:]
        return True

    def deadline(self) -> float:
        """Until when the client must have taken the rest, in seconds of time.monotonic()."""
        begun = self._since or time.monotonic()
        return begun + self._limits.send_seconds + self._sent / self._limits.slowest_reader_bytes_per_second
