"""What comes in while a request is in work waits for its turn, and does not keep the event loop busy."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from gunicorn.config import Config

from placement.http.worker.event_loop import EventLoop
from placement.http.worker.lanes import WorkerLimits
from tests.patience import PATIENCE_SECONDS

_REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Turns:
    """An event loop with one client, whose requests are answered when `release` is set."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.asked = 0
        self.count = 0
        self.loop = EventLoop(Config(), WorkerLimits(), self._answer, lambda: True, lambda: None)
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.loop.listen(listener)
        self.client = socket.create_connection(listener.getsockname())

    def _answer(self, _environ: Any, start_response: Callable[..., Any]) -> list[bytes]:
        self.asked += 1
        self.release.wait(PATIENCE_SECONDS)
        start_response("200 OK", [("Content-Length", "0")])
        return []

    def until(self, done: Callable[[], bool]) -> None:
        """Turn until something is so."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not done():
            assert time.monotonic() < end
            self.loop.turn()
            self.count += 1

    def take(self, count: int) -> None:
        """Turn until the client has so many answers."""
        received = bytearray()
        self.client.setblocking(False)

        def has_all() -> bool:
            with suppress(BlockingIOError):
                received.extend(self.client.recv(65536))
            return received.count(b"200 OK") == count

        self.until(has_all)


@pytest.fixture
def turns() -> Iterator[Turns]:
    made = Turns()
    yield made
    made.release.set()
    made.client.close()


@pytest.mark.parametrize("leaves", [False, True])
def test_a_request_that_comes_early_is_heard_once(turns: Turns, leaves: bool):
    # The first of a connection comes with the connection: it is watched from then on.
    turns.release.set()
    turns.client.sendall(_REQUEST)
    turns.until(lambda: turns.asked == 1)
    turns.take(1)
    turns.release.clear()
    turns.client.sendall(_REQUEST)
    turns.until(lambda: turns.asked == 2)
    turns.client.sendall(_REQUEST)
    if leaves:
        turns.client.shutdown(socket.SHUT_WR)
    began, turns.count = time.monotonic(), 0
    turns.until(lambda: time.monotonic() - began > 1)
    # Once for the request, and then only for the looks at the deadlines, twice a second.
    assert turns.count <= 6
    turns.release.set()
    turns.take(2)
    assert turns.asked == 3
