"""A stand-in of memcached that stores what it is given, or takes connections and says nothing.

Source: the text protocol of memcached, `protocol.txt`.
"""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Memcached:
    """One of them, at `address`; `values` are what it stores."""

    def __init__(self, *, is_silent: bool = False) -> None:
        self.values: dict[bytes, tuple[bytes, bytes]] = {}
        self.connections = 0
        self._ends = threading.Event()
        self._is_silent = is_silent
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[Memcached]:
        """Answer for the time of the block."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            self._ends.set()
            self._server.shutdown()
            self._server.server_close()

    def serve(self, file: Any, send: Any) -> None:
        """Answer the commands of one connection."""
        self.connections += 1
        if self._is_silent:
            self._ends.wait(300)
            return
        while line := file.readline():
            command, *words = line.split()
            if command == b"set":
                key, flags, _, size = words[:4]
                self.values[key] = flags, file.read(int(size) + 2)[:-2]
                send(b"STORED\r\n")
            elif command == b"get":
                for key in words:
                    if key in self.values:
                        flags, value = self.values[key]
                        send(b"VALUE %s %s %d\r\n%s\r\n" % (key, flags, len(value), value))
                send(b"END\r\n")
            else:
                send(b"STAT pid 1\r\nEND\r\n")


def _handler(memcached: Memcached) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            memcached.serve(self.rfile, self.wfile.write)

    return Handler
