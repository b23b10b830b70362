"""A request that is refused costs no memory afterwards, however often it comes and whoever sends it."""

from __future__ import annotations

import gc
import importlib
import logging
import resource
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from gunicorn.config import Config

import placement
from placement.http.caller_limits import Callers
from placement.http.worker import connection as connections
from placement.http.worker import event_loop
from placement.http.worker.connection import Connection
from placement.http.worker.event_loop import EventLoop
from placement.http.worker.lanes import WorkerLimits
from tests.hostile import Wire, request
from tests.patience import eventually
from tests.server import RunningServer

_ROUNDS = 2000
_HEAD = "GET / HTTP/1.1\r\nHost: localhost\r\n"
_FILLED = f"X-Long: {'y' * 7000}\r\n" * 16
_FORM = "Content-Type: application/x-www-form-urlencoded"
REFUSED_BY_THE_SERVER = {
    "bad line": (400, "GET /\r\n\r\n"),
    "bad header": (400, f"{_HEAD}no colon\r\n\r\n"),
    "bad version": (400, "GET / HTTP/9.9\r\n\r\n"),
    "no host": (400, "GET / HTTP/1.1\r\n\r\n"),
    "bad chunk": (400, f"POST{_HEAD[3:]}Transfer-Encoding: chunked\r\n\r\nx\r\n"),
    "long body": (413, f"POST{_HEAD[3:]}{_FILLED}Content-Length: 99999999\r\n\r\n"),
    "long line": (414, f"GET /?{'x' * 80_000} HTTP/1.1\r\n\r\n"),
    "expectation": (417, f"POST{_HEAD[3:]}Content-Length: 2\r\nExpect: 200-ok\r\n\r\n"),
    "long head": (431, f"{_HEAD}{_FILLED * 2}\r\n"),
    "coding": (501, f"POST{_HEAD[3:]}Transfer-Encoding: xchunked\r\n\r\n"),
}
REFUSED_BY_THE_APPLICATION = {
    "no token": (401, "GET /traits HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "no route": (404, "GET /nothing HTTP/1.1\r\nHost: localhost\r\nX-Auth-Token: a\r\n\r\n"),
    "no method": (405, "PATCH /traits HTTP/1.1\r\nHost: localhost\r\nX-Auth-Token: a\r\n\r\n"),
    "no form": (415, request("POST", "/ui/sign-out", b"{}", "Content-Type: application/json")),
    "no key": (403, request("POST", "/ui/sign-out", b"a=1", _FORM)),
    "no JSON": (400, request("POST", "/resource_classes", b"{", "Content-Type: application/json")),
    "no query": (400, request("GET", "/resource_providers?nothing=1", b"")),
    "no such version": (406, f"{_HEAD}OpenStack-API-Version: placement 9.9\r\n\r\n"),
    "no cookie": (403, request("POST", "/ui/sign-out", b"a=1&" * 9000, _FORM)),
}
_WHOLE = f"{_HEAD}\r\n"
# What a limit refuses that is at its end.
REFUSED_BY_A_LIMIT: dict[str, tuple[int, str, dict[str, float]]] = {
    "slow head": (408, _HEAD, {"head_seconds": 0}),
    "slow body": (408, f"POST{_HEAD[3:]}Content-Length: 2\r\n\r\n", {"body_seconds": 0}),
    "no room": (503, f"{_HEAD}{_FILLED}\r\n", {"most_buffered_bytes": 1000}),
    "too many waiting": (503, _WHOLE, {"most_waiting": 0}),
    "too late": (503, _WHOLE, {"request_seconds": 0}),
}


class OneClient:
    """An event loop in this process, and clients one after the other."""

    def __init__(self, application: Flask | None = None, **limits: Any) -> None:
        allowed = WorkerLimits(**{"drain_seconds": 0.1, **limits})
        self.loop = EventLoop(Config(), allowed, application, lambda: True, lambda: None)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.loop.listen(self._listener)

    def status_of(self, sent: str | bytes) -> int:
        """The status of the answer; the connection is closed then."""
        sent = sent.encode() if isinstance(sent, str) else sent
        with socket.create_connection(self._listener.getsockname()) as client:
            client.setblocking(False)
            answer, rest = b"", memoryview(sent)
            while not answer:
                with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                    rest = rest[client.send(rest) :] if rest else rest
                self.loop.turn()
                with suppress(BlockingIOError):
                    answer = client.recv(65536)
        while len(self.loop):
            self.loop.turn()
        return int(answer.split()[1])


def alive() -> int:
    gc.collect()
    return sum(isinstance(each, Connection) for each in gc.get_objects())


def objects() -> int:
    """How many objects of any kind are alive that may hold others."""
    gc.collect()
    return len(gc.get_objects())


def assert_none_stays(client: OneClient, status: int, sent: str) -> None:
    """Be refused so some times, with no connection alive afterwards."""
    before = alive()
    assert {client.status_of(sent) for _ in range(50)} == {status}
    # The thread of the last one may be about to end its work.
    eventually(True, lambda: alive() - before <= 1)


@pytest.mark.parametrize("kind", REFUSED_BY_THE_SERVER)
def test_no_refused_connection_stays_alive(kind: str):
    assert_none_stays(OneClient(), *REFUSED_BY_THE_SERVER[kind])


@pytest.mark.parametrize("kind", REFUSED_BY_A_LIMIT)
def test_no_connection_that_a_limit_refuses_stays_alive(monkeypatch: pytest.MonkeyPatch, kind: str):
    status, sent, limits = REFUSED_BY_A_LIMIT[kind]
    # Each turn looks at the deadlines.
    monkeypatch.setattr(event_loop, "_LOOK_EVERY_SECONDS", 0)
    assert_none_stays(OneClient(**limits), status, sent)


def test_no_connection_of_a_caller_with_too_many_stays_alive(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Callers, "enter", lambda callers, caller: False)
    # The version document is answered to all callers.
    assert_none_stays(OneClient(), 429, _WHOLE.replace("/", "/traits", 1))


def test_no_connection_without_a_certificate_stays_alive(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "is_stranger", lambda wire: True)
    assert_none_stays(OneClient(), 403, _WHOLE)


@pytest.fixture
def _silence() -> Iterator[None]:
    """No log: pytest keeps each record while a test runs, at the level that others in this process left."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("_silence")
def test_thousands_of_refused_requests_leave_no_object_behind(embedded_application: Flask):
    client = OneClient(embedded_application)
    kinds = list({**REFUSED_BY_THE_SERVER, **REFUSED_BY_THE_APPLICATION}.items())

    def refuse(rounds: int) -> None:
        for number in range(rounds):
            kind, (status, sent) = kinds[number % len(kinds)]
            assert client.status_of(sent) == status, kind

    # What is loaded or kept once is there after some of each kind.
    refuse(10 * len(kinds))
    before = objects()
    refuse(_ROUNDS)
    # Another thread of a lane is some dozens of objects; each connection of one kind would be a thousand.
    assert objects() - before < 500


def resident(server: RunningServer) -> int:
    """Bytes of memory of the worker."""
    (worker,) = server.workers()
    return int(Path(f"/proc/{worker}/statm").read_text().split()[1]) * resource.getpagesize()


def test_thousands_of_refused_requests_take_no_memory(served: RunningServer):
    kinds = list({**REFUSED_BY_THE_SERVER, **REFUSED_BY_THE_APPLICATION}.values())
    most = REFUSED_BY_THE_SERVER["long body"]

    def refuse(rounds: int) -> None:
        for number in range(rounds):
            # What weighs most comes every second time.
            status, sent = kinds[number // 2 % len(kinds)] if number % 2 else most
            with Wire(served.url) as wire:
                assert wire.send(sent).answer().status == status, sent[:100]

    # What is loaded or kept once is there after some of each kind.
    refuse(10 * len(kinds))
    before = resident(served)
    refuse(_ROUNDS)
    # Kept connections of these requests would take more than 100 MiB.
    assert resident(served) - before < 40 * 2**20


def test_no_module_keeps_an_exception():
    """An exception that is raised again keeps the frames of each raise."""
    root = Path(next(iter(placement.__path__)))
    files = [each.relative_to(root.parent).with_suffix("") for each in root.rglob("*.py")]
    # Importing what is left out serves.
    names = [".".join(each.parts) for each in files if each.name != "__main__" and "wsgi" not in each.parts]
    modules = [importlib.import_module(name.removesuffix(".__init__")) for name in names]
    assert len(modules) > 100
    spaces = [(module.__name__, vars(module)) for module in modules]
    spaces += [
        (f"{name}.{kind.__name__}", vars(kind))
        for name, space in spaces
        for kind in space.values()
        if isinstance(kind, type) and kind.__module__ == name
    ]
    assert [
        f"{where}.{name}"
        for where, space in spaces
        for name, value in space.items()
        if isinstance(value, BaseException)
        or (isinstance(value, dict) and any(isinstance(each, BaseException) for each in value.values()))
    ] == []
