"""A TCP relay in front of a server, which can freeze, drop or delay what passes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CHUNK = 65536
_LOOK_SECONDS = 0.05


class _Line:
    """One connection through the relay."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.ends = (near, far)
        self.is_frozen = threading.Event()

    def close(self) -> None:
        """Cut it."""
        for end in self.ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Relay:
    """Listens on a port of loopback and passes everything on to another one."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.delay = 0.0
        # New connections are taken by the kernel, and nobody ever answers on them.
        self.refuses = False
        self._lines: list[_Line] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        """Let nothing more pass on the connections there are, without closing them; new ones work."""
        with self._lock:
            for line in self._lines:
                line.is_frozen.set()

    def thaw(self) -> None:
        """Let everything pass again, also what was sent meanwhile."""
        with self._lock:
            for line in self._lines:
                line.is_frozen.clear()

    def drop(self) -> None:
        """Close the connections there are."""
        with self._lock:
            lines, self._lines = self._lines, []
        for line in lines:
            line.close()

    def lead_to(self, target: int) -> None:
        """Pass on to another port from now on."""
        self._target = target
        self.drop()

    def lead_new_to(self, target: int) -> None:
        """Pass new connections on to another port; those there are go on as they are."""
        self._target = target

    def close(self) -> None:
        """Pass nothing any more."""
        self._listener.close()
        self.drop()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.refuses:
                # Kept, so that it stays open.
                with self._lock:
                    self._lines.append(_Line(near, near))
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            line = _Line(near, far)
            with self._lock:
                self._lines.append(line)
            for source, sink in (line.ends, line.ends[::-1]):
                threading.Thread(target=self._pass_on, args=(line, source, sink), daemon=True).start()

    def _pass_on(self, line: _Line, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                while line.is_frozen.is_set():
                    time.sleep(_LOOK_SECONDS)
                if self.delay:
                    time.sleep(self.delay)
                sink.sendall(data)
        if not line.is_frozen.is_set():
            line.close()


@contextmanager
def relay_to(port: int) -> Iterator[Relay]:
    """A relay to a port of loopback."""
    made = Relay(port)
    try:
        yield made
    finally:
        made.close()
