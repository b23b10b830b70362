"""Who asks for the same while somebody is at work is served together; nobody is forgotten, whatever fails."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from placement.allocations.coalescing import RequestCoalescer
from tests.patience import PATIENCE_SECONDS, eventually


class Room:
    """Callers of a coalescer that the test holds up."""

    def __init__(self, work: Callable[[Sequence[int]], Sequence[str | None]], **limits: float) -> None:
        given = {"most": 4, "patience_seconds": PATIENCE_SECONDS, **limits}
        self.coalescer: RequestCoalescer[int, str] = RequestCoalescer(work, **given)
        self.pool = ThreadPoolExecutor(16)
        self.is_busy, self.may_go = threading.Event(), threading.Event()

    def held_up(self, number: int, failing: Exception | None = None) -> Future[str]:
        """One who works by itself until it may go, and has begun."""

        def alone() -> str:
            self.is_busy.set()
            assert self.may_go.wait(PATIENCE_SECONDS)
            if failing is not None:
                raise failing
            return f"{number} alone"

        asked = self.pool.submit(self.coalescer.ask, "key", number, alone)
        assert self.is_busy.wait(PATIENCE_SECONDS)
        return asked

    def asking(self, *numbers: int) -> list[Future[str]]:
        """Those who ask one after another, and wait."""
        asked = []
        for number in numbers:
            asked.append(self.ask(number))
            eventually(len(asked), lambda: len(self.coalescer._waiting["key"]))
        return asked

    def ask(self, number: int, key: str = "key") -> Future[str]:
        return self.pool.submit(self.coalescer.ask, key, number, lambda: f"{number} alone")


def results(asked: Sequence[Future[str]]) -> list[str]:
    return [each.result(PATIENCE_SECONDS) for each in asked]


@pytest.fixture
def rooms() -> Iterator[Callable[..., Room]]:
    made: list[Room] = []

    def room(work: Callable[[Sequence[int]], Sequence[str | None]], **limits: float) -> Room:
        made.append(Room(work, **limits))
        return made[-1]

    yield room
    for each in made:
        each.may_go.set()
        each.pool.shutdown()
        assert each.coalescer._waiting == {}


def test_who_waits_is_served_with_the_others_who_wait(rooms):
    crowds = []

    def work(numbers: Sequence[int]) -> list[str | None]:
        crowds.append(list(numbers))
        return [f"{number} together" for number in numbers]

    room = rooms(work)
    first = room.held_up(0)
    others = room.asking(1, 2, 3, 4, 5, 6)
    assert room.ask(9, "another key").result(PATIENCE_SECONDS) == "9 alone"
    room.may_go.set()
    assert first.result(PATIENCE_SECONDS) == "0 alone"
    assert results(others) == [f"{number} together" for number in range(1, 7)]
    assert crowds == [[1, 2, 3, 4], [5, 6]]


def test_a_failure_meets_who_works_and_nobody_else(rooms):
    def work(_: Sequence[int]) -> list[str | None]:
        raise ZeroDivisionError

    room = rooms(work)
    first = room.held_up(0, KeyError())
    leader, *others = room.asking(1, 2, 3)
    room.may_go.set()
    assert isinstance(first.exception(PATIENCE_SECONDS), KeyError)
    assert isinstance(leader.exception(PATIENCE_SECONDS), ZeroDivisionError)
    assert results(others) == ["2 alone", "3 alone"]


def test_who_waits_too_long_begins_all_the_same(rooms):
    room = rooms(lambda _: pytest.fail("nobody is to be served together"), patience_seconds=0.01)
    first = room.held_up(0)
    assert [room.ask(number).result(PATIENCE_SECONDS) for number in (1, 2)] == ["1 alone", "2 alone"]
    room.may_go.set()
    assert first.result(PATIENCE_SECONDS) == "0 alone"


def test_who_waited_too_long_serves_the_others_and_whoever_was_late_calls_nobody(rooms):
    crowds, may_end = [], threading.Event()

    def work(numbers: Sequence[int]) -> list[str | None]:
        crowds.append(list(numbers))
        assert may_end.wait(PATIENCE_SECONDS)
        return [f"{number} together" for number in numbers]

    room = rooms(work)
    first = room.held_up(0)
    others = room.asking(1, 2)
    room.coalescer._patience_seconds = 0
    others.append(room.ask(3))
    eventually([[3, 1, 2]], lambda: crowds)
    room.coalescer._patience_seconds = PATIENCE_SECONDS
    (last,) = room.asking(4)
    room.may_go.set()
    assert first.result(PATIENCE_SECONDS) == "0 alone"
    assert [caller.asked for caller in room.coalescer._waiting["key"]] == [4]
    may_end.set()
    assert results(others) == ["1 together", "2 together", "3 together"]
    assert last.result(PATIENCE_SECONDS) == "4 alone"
