"""What is done again ends: after so many attempts, so many seconds, or with the request."""

from __future__ import annotations

import pytest

from placement.engine.domain import request_scope
from placement.storage import database
from placement.storage.database import Attempts


class Clock:
    """Time that goes on when somebody waits, or is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(database, "time", made)
    return made


def failures(attempts: Attempts, clock: Clock, each_takes: float = 0.0) -> int:
    """How many attempts are made if all fail."""
    made = 0
    while True:
        made += 1
        clock.now += each_takes
        if not attempts.may_go_on():
            return made
        attempts.pause()


def test_so_many_attempts(clock: Clock):
    assert failures(Attempts(most=4), clock) == 4


def test_so_many_seconds(clock: Clock):
    made = failures(Attempts(patience_seconds=10), clock, each_takes=3.0)
    assert made == 4, "the fourth ends after 12 seconds"


def test_some_failures_are_worth_less_patience(clock: Clock):
    attempts = Attempts(patience_seconds=10)
    clock.now += 3
    assert attempts.may_go_on()
    assert not attempts.may_go_on(2.0)


def test_no_attempt_begins_when_the_request_is_over(clock: Clock):
    attempts = Attempts(first_pause_seconds=1000.0)
    assert attempts.may_go_on()
    with request_scope.within(1000.0):
        assert not attempts.may_go_on(), "the pause alone may take longer"


def test_pauses_double_up_to_the_longest_and_never_are_the_same(clock: Clock):
    attempts = Attempts(most=8, patience_seconds=1000, first_pause_seconds=1.0, longest_pause_seconds=8.0)
    failures(attempts, clock)
    for pause, usual in zip(clock.pauses, (1, 2, 4, 8, 8, 8, 8), strict=True):
        assert 0.5 * usual <= pause <= 1.5 * usual
    assert len(set(clock.pauses)) == len(clock.pauses)
