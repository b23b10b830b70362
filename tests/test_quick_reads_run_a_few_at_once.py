"""Jobs that are quick run a few at a time; one that takes long holds up nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import pytest

from placement.operations.http import lanes
from placement.operations.http.lanes import Lane
from tests.patience import PATIENCE_SECONDS

THREADS, AT_ONCE = 6, 2


@dataclass
class Work:
    """A job of some caller that does something."""

    do: Callable[[], None]
    caller: Hashable = "somebody"
    deadline: float = float("inf")
    begun: bool = False
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        self.do()
        self.over.set()


@pytest.fixture
def lane() -> Lane:
    return Lane("tried", THREADS, 1000, AT_ONCE)


def test_no_more_than_that_run_at_once_while_they_are_quick(lane: Lane, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lanes, "_QUICK_SECONDS", 2.0 * PATIENCE_SECONDS)
    lock, running, most = threading.Lock(), 0, 0
    both = threading.Barrier(AT_ONCE)

    def count() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        # Each of them needs another one beside it.
        both.wait(PATIENCE_SECONDS)
        with lock:
            running -= 1

    jobs = [Work(count, caller=number % 3) for number in range(40)]
    assert all(map(lane.submit, jobs))
    assert all(job.over.wait(PATIENCE_SECONDS) for job in jobs)
    assert most == AT_ONCE


def test_those_that_take_long_hold_up_nobody(lane: Lane):
    end, begun = threading.Event(), threading.Semaphore(0)

    def take_long() -> None:
        begun.release()
        end.wait(PATIENCE_SECONDS)

    slow = [Work(take_long, caller=number) for number in range(THREADS - 1)]
    assert all(map(lane.submit, slow))
    for _ in slow:
        assert begun.acquire(timeout=PATIENCE_SECONDS), "none of them has ended, and all have begun"
    quick = [Work(lambda: None, caller="another") for _ in range(10)]
    assert all(map(lane.submit, quick))
    assert all(job.over.wait(PATIENCE_SECONDS) for job in quick)
    end.set()
    assert all(job.over.wait(PATIENCE_SECONDS) for job in slow)


def test_whoever_comes_while_somebody_waits_for_the_slow_is_served(lane: Lane):
    """Again and again there is nothing to do, one thing, or more than may run at once."""
    for number in range(200):
        jobs = [Work(lambda: None, caller=number) for _ in range(number % 5)]
        assert all(map(lane.submit, jobs))
        assert all(job.over.wait(PATIENCE_SECONDS) for job in jobs)
