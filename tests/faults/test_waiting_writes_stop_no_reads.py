"""Writes that wait take no thread that reads need; what waits too long or is too much is refused at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests import lane_server
from tests.client import unique
from tests.faults.test_slow_clients_stop_nobody import eventually
from tests.hostile import KNOWN, Answer, Wire, request


@contextmanager
def asking(url: str, count: int, method: str, path: str, known: str = KNOWN) -> Iterator[list[Wire]]:
    """That many clients who have asked and wait for the answer; {} in the path is their number."""
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(url)) for _ in range(count)]
        for number, wire in enumerate(wires):
            wire.send(request(method, path.format(number), b"{}", known=known))
        yield wires


def test_reads_are_answered_while_all_writers_wait():
    with lane_server.running() as server, asking(server.url, 60, "PUT", "/?held=all") as writers:
        with Wire(server.url) as wire:
            for path in ("/", "/anything", "/healthcheck"):
                assert wire.get(path).answer().status == 200
            assert (
                wire.send(request("POST", "/ext/v1/clusters/edge/pods/preview", b"")).answer().status == 200
            )
        assert all(wire.is_open() for wire in writers)


def test_the_version_document_is_answered_while_all_readers_wait():
    with lane_server.running() as server, asking(server.url, 60, "GET", "/any?held=all") as readers:
        with Wire(server.url) as wire:
            assert wire.get("/").answer().status == 200
        assert all(wire.is_open() for wire in readers)


def test_what_waits_beyond_its_deadline_is_refused_and_not_carried_out():
    name = unique()
    path = f"/?held=all&name={name}{{}}"
    with lane_server.running(write_threads=1, request_seconds=3) as server:
        with asking(server.url, 3, "PUT", path) as writers:
            assert eventually(lambda: sum(not wire.is_open() for wire in writers) == 2)
            server.free("all")
            answers = [wire.answer() for wire in writers]
        assert sorted(answer.status for answer in answers) == [200, 503, 503]
        with Wire(server.url) as wire:
            assert wire.send(request("PUT", "/", b"")).answer().status == 200
        for number, answer in enumerate(answers):
            assert server.has_noted("begun", f"{name}{number}") == (answer.status == 200)
            if answer.status == 503:
                assert answer.headers["retry-after"]
                assert answer.error


def test_more_than_may_wait_are_refused_at_once():
    server = lane_server.running(write_threads=1, most_waiting=4)
    with server as running, asking(running.url, 10, "PUT", "/?held=all") as writers:
        assert eventually(lambda: sum(not wire.is_open() for wire in writers) >= 5)
        running.free("all")
        answers = [wire.answer() for wire in writers]
        refused = [answer for answer in answers if answer.status != 200]
        assert len(refused) >= 5
        assert all(answer.status == 503 and "retry-after" in answer.headers for answer in refused)


def test_one_caller_leaves_threads_to_others():
    """Three quarters of the threads are all that one caller gets."""
    server, path = lane_server.running(read_threads=4), "/any?held=all"
    with server as running:
        for token in ("known-greedy", "known-other"):
            assert answer_to(running.url, "GET", token).status == 200
        with asking(running.url, 20, "GET", path, "X-Auth-Token: known-greedy") as greedy:
            assert answer_to(running.url, "GET", "known-other").status == 200
            assert answer_to(running.url, "GET", "never-seen").status == 200
            assert all(wire.is_open() for wire in greedy)


def answer_to(url: str, method: str, token: str) -> Answer:
    """What a request with this token is answered."""
    with Wire(url) as wire:
        return wire.send(request(method, "/any", b"", known=f"X-Auth-Token: {token}")).answer()


@pytest.mark.parametrize(("method", "threads"), [("GET", "read_threads"), ("PUT", "write_threads")])
def test_strangers_with_a_token_each_are_one_caller(method: str, threads: str):
    """Random tokens neither take all threads nor have a quota each."""
    with lane_server.running(requests_per_caller=30, **{threads: 4}) as server, ExitStack() as stack:
        assert answer_to(server.url, method, "known-service").status == 200
        wires = [stack.enter_context(Wire(server.url)) for _ in range(40)]
        for wire in wires:
            wire.send(request(method, "/any?held=all", b"", known=f"X-Auth-Token: {unique()}"))
        assert eventually(lambda: sum(not wire.is_open() for wire in wires) >= 10)
        refused = [wire.answer().status for wire in wires if not wire.is_open()]
        assert refused == [429] * 10
        # The fourth thread, and a quota of its own.
        assert [answer_to(server.url, method, "known-service").status for _ in range(5)] == [200] * 5


def test_the_tokens_of_a_user_share_its_quota():
    with lane_server.running(requests_per_caller=4) as server, ExitStack() as stack:
        for token in ("known-one/a", "known-one/b", "known-two/a"):
            assert answer_to(server.url, "PUT", token).status == 200
        for token in "abab":
            server.hold(stack, "PUT", f"X-Auth-Token: known-one/{token}")
        assert answer_to(server.url, "PUT", "known-one/a").status == 429
        assert answer_to(server.url, "PUT", "known-two/a").status == 200


def test_one_caller_has_a_bounded_number_of_requests_in_work():
    with lane_server.running(requests_per_caller=5) as server, ExitStack() as stack:
        assert answer_to(server.url, "PUT", "known-greedy").status == 200
        held = [server.hold(stack, "PUT", "X-Auth-Token: known-greedy", "/?held=all") for _ in range(5)]
        for _ in range(4):
            refused = answer_to(server.url, "PUT", "known-greedy")
            assert refused.status == 429
            assert refused.headers["retry-after"]
            assert refused.error
        with Wire(server.url) as other:
            assert other.get("/").answer().status == 200
            assert other.send(request("GET", "/any", b"", known="X: y")).answer().status == 200
        server.free("all")
        assert [wire.answer().status for wire in held] == [200] * 5

        def is_served_again() -> bool:
            with asking(server.url, 5, "PUT", "/", "X-Auth-Token: known-greedy") as wires:
                return [wire.answer().status for wire in wires] == [200] * 5

        # An answer may arrive a moment before the server has counted it as done.
        assert eventually(is_served_again)


def test_a_streamed_answer_counts_until_it_is_sent():
    with lane_server.running(requests_per_caller=1, send_seconds=600) as server:
        with Wire(server.url).narrow() as reader, Wire(server.url) as wire:
            reader.get("/stream").receive()
            assert wire.get("/any").answer().status == 429
        assert eventually(lambda: status_of(server.url) == 200)


def status_of(url: str) -> int:
    with Wire(url) as wire:
        return wire.get("/any").answer().status
