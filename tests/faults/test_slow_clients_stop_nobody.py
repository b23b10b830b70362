"""Clients that send or read slowly keep no thread, have a bounded time, and are told so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests import lane_server
from tests.client import unique
from tests.hostile import KNOWN, PATIENCE_SECONDS, Wire, chunked, request
from tests.server import RunningServer

JSON = "Content-Type: application/json"


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether it holds within our patience."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def held(url: str, count: int) -> Iterator[list[Wire]]:
    """That many connections which have sent half of something."""
    halves = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n",
        request("PUT", "/traits/CUSTOM_SLOW", b"{" * 1000, JSON)[:-500],
        b"G",
        request(
            "POST", "/resource_providers", chunked(b"{}"), JSON, "Transfer-Encoding: chunked", length=False
        )[:-5],
    ]
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(url)) for _ in range(count)]
        for number, wire in enumerate(wires):
            wire.send(halves[number % len(halves)])
        yield wires


def test_200_half_requests_keep_nobody_from_being_answered(served: RunningServer):
    name = unique().encode()
    with Wire(served.url) as wire:
        assert wire.get("/allocation_candidates?resources=VCPU:1&limit=10").answer().status == 200
    with held(served.url, 200) as senders:
        for wire in senders:
            wire.send(b"X")
        with Wire(served.url) as wire:
            assert wire.get("/").answer().status == 200
            assert wire.get("/allocation_candidates?resources=VCPU:1&limit=10").answer().status == 200
            assert (
                wire.send(request("POST", "/resource_providers", b'{"name": "%b"}' % name, JSON))
                .answer()
                .status
                == 200
            )
        assert sum(wire.is_open() for wire in senders) >= 100


@pytest.fixture(scope="module")
def impatient() -> Iterator[lane_server.Running]:
    """A server that waits for nobody for long, with few threads."""
    limits = {
        "head_seconds": 1,
        "body_seconds": 2,
        "send_seconds": 1,
        "slowest_reader_bytes_per_second": 10**9,
    }
    with lane_server.running(read_threads=2, write_threads=2, keep_alive_seconds=3, **limits) as server:
        yield server


def test_heads_and_bodies_that_do_not_come_are_answered_408(impatient: lane_server.Running):
    with Wire(impatient.url) as head, Wire(impatient.url) as body, Wire(impatient.url) as chunks:
        head.send("GET / HTTP/1.1\r\n")
        body.send(request("PUT", "/", b"12345")[:-1])
        chunks.send(request("PUT", "/", chunked(b"12345"), "Transfer-Encoding: chunked", length=False)[:-1])
        for wire in (head, body, chunks):
            answer = wire.answer()
            assert answer.status == 408
            assert answer.error
            assert wire.ends()


def test_the_time_is_counted_in_total_and_not_from_the_last_byte(impatient: lane_server.Running):
    with Wire(impatient.url) as wire:
        wire.send("GET / HTTP/1.1\r\n")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while wire.is_open() and time.monotonic() < deadline:
            wire.send("X: y\r\n")
            time.sleep(0.1)
        assert wire.answer().status == 408


def test_a_connection_on_which_nothing_was_sent_is_closed_without_a_word(impatient: lane_server.Running):
    with Wire(impatient.url) as fresh, Wire(impatient.url) as used:
        assert used.get("/").answer().status == 200
        assert fresh.ends()
        assert used.ends()


def test_slow_readers_keep_no_thread_and_are_sent_away(impatient: lane_server.Running):
    with ExitStack() as stack:
        readers = [stack.enter_context(Wire(impatient.url).narrow()) for _ in range(6)]
        for reader in readers:
            reader.get("/large")
        with Wire(impatient.url) as wire:
            for _ in range(6):
                assert wire.get("/").answer().status == 200
        assert eventually(lambda: all(reader.is_reset() for reader in readers))
        for reader in readers:
            with pytest.raises(EOFError):
                reader.answer()


def test_large_answers_arrive_whole():
    with lane_server.running(read_threads=2) as server, Wire(server.url) as wire:
        assert wire.get("/large").answer().body == b"x" * lane_server.LARGE
        streamed = wire.get("/stream?pieces=500").answer()
        assert len(streamed.body) == 500 * 8000
        assert streamed.body[8000 * 123 : 8000 * 123 + 8] == b"0000123\n"
        assert wire.get("/").answer().status == 200


def test_a_stream_ends_when_its_reader_is_gone_or_too_slow(impatient: lane_server.Running):
    gone, slow = unique(), unique()
    with Wire(impatient.url).narrow() as reader:
        reader.get(f"/stream?name={slow}")
        with Wire(impatient.url) as wire:
            wire.get(f"/stream?name={gone}").receive()
        assert eventually(lambda: impatient.has_noted("closed", gone))
        assert eventually(lambda: impatient.has_noted("closed", slow))


def await_all_heard(url: str) -> None:
    """Wait until the server has heard all who sent before, as who comes after one who was answered is."""
    for _ in range(2):
        with Wire(url) as wire:
            assert wire.get("/").answer().status == 200


def test_the_oldest_sender_makes_room_for_the_next():
    with (
        lane_server.running(most_senders=20, head_seconds=600, body_seconds=600) as server,
        held(server.url, 20) as oldest,
    ):
        await_all_heard(server.url)
        assert all(wire.is_open() for wire in oldest)
        with held(server.url, 20) as others:
            assert [wire.answer().status for wire in oldest] == [503] * 20
            await_all_heard(server.url)
            assert all(wire.is_open() for wire in others)


def test_what_is_received_is_bounded_in_total():
    with lane_server.running(most_buffered_bytes=2**20, body_seconds=600) as server, ExitStack() as stack:
        senders = [stack.enter_context(Wire(server.url)) for _ in range(8)]
        for sender in senders:
            sender.send(request("PUT", "/echo", b"x" * 300_000)[:-1])
        assert eventually(lambda: sum(wire.is_open() for wire in senders) == 3)
        refused = next(wire for wire in senders if not wire.is_open())
        assert refused.answer().status == 503
        for wire in senders:
            if wire.is_open():
                assert wire.send(b"x").answer().body == b"x" * 300_000
        assert eventually(lambda: echoes(server.url, b"y" * 900_000)), "not everything is free again"


def echoes(url: str, body: bytes) -> bool:
    with Wire(url) as wire:
        return wire.send(request("PUT", "/echo", body)).answer().body == body


def test_many_idle_connections_harm_nobody():
    with lane_server.running(most_connections=50) as server, ExitStack() as stack:
        idle = [stack.enter_context(Wire(server.url)) for _ in range(120)]
        for wire in idle[:100]:
            wire.send("G")
        with Wire(server.url) as wire:
            assert wire.get("/").answer().status == 200


def test_half_requests_do_not_hide_those_who_know_no_manners(served: RunningServer):
    with Wire(served.url) as wire:
        wire.send(f"GET /traits HTTP/1.1\r\n{KNOWN}")
        wire.finish_sending()
        assert wire.ends()


def test_who_holds_the_most_makes_room_and_not_who_sends_little():
    """The connections that fill the bound and stall are refused, whoever comes next."""
    with lane_server.running(most_buffered_bytes=2**20, body_seconds=600) as server, ExitStack() as stack:
        small = stack.enter_context(Wire(server.url)).send(request("PUT", "/echo", b"z" * 1000)[:-1])
        stalled = [stack.enter_context(Wire(server.url)) for _ in range(4)]
        for wire in stalled:
            wire.send(request("PUT", "/echo", b"x" * 330_000)[:-1])
        assert eventually(lambda: sum(wire.is_open() for wire in stalled) == 3)
        for _ in range(3):
            assert echoes(server.url, b"y" * 200_000)
        with Wire(server.url) as wire:
            assert wire.get("/").answer().status == 200
        assert small.send(b"z").answer().body == b"z" * 1000


def test_requests_that_hold_much_and_wait_do_not_keep_out_those_that_are_small():
    with lane_server.running(most_buffered_bytes=2**20) as server, ExitStack() as stack:
        for number in range(3):
            path = f"/echo?held=all&name={number}"
            head = len(request("PUT", path, b"x" * 300_000)) - 300_000
            stack.enter_context(Wire(server.url)).send(request("PUT", path, b"x" * (2**20 // 3 - head)))
            assert eventually(lambda number=number: server.has_noted("begun", str(number)))
        for _ in range(5):
            with Wire(server.url) as wire:
                assert wire.get("/").answer().status == 200


def test_a_refused_client_that_stays_makes_room_before_one_of_use():
    limits = {"most_connections": 3, "drain_seconds": 600}
    with lane_server.running(**limits) as server, ExitStack() as stack:
        used, refused, other = (stack.enter_context(Wire(server.url)) for _ in range(3))
        assert used.get("/").answer().status == 200
        assert refused.send("nonsense\r\n\r\n").answer().status == 400
        assert other.get("/").answer().status == 200
        assert stack.enter_context(Wire(server.url)).get("/").answer().status == 200
        assert used.get("/").answer().status == 200
        assert other.get("/").answer().status == 200
