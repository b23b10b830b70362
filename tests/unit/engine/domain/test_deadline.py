"""A deadline bounds what is waited for, and only where it was set."""

from __future__ import annotations

import math
import threading
import time

import pytest

from placement.engine.domain import deadline


@pytest.fixture(autouse=True)
def no_request_before():
    """Threads begin each request anew, so tests of requests may leave a deadline behind in this one."""
    deadline.clear()


def test_without_a_deadline_there_is_no_end():
    assert deadline.remaining() == math.inf
    assert deadline.remaining(10) == 10
    assert not deadline.is_over()


def test_what_remains_is_what_is_left_or_less():
    with deadline.within(100):
        assert 0 < deadline.remaining() <= 100
        assert deadline.remaining(10) == 10
        with deadline.within(1000):
            assert deadline.remaining() <= 100
    assert deadline.remaining() == math.inf


def test_a_deadline_that_is_over_leaves_nothing():
    with deadline.within(-1):
        assert deadline.is_over()
        assert deadline.remaining(10) == 0


def test_the_next_request_of_a_thread_begins_anew():
    deadline.until(time.monotonic() - 1)
    deadline.until(time.monotonic() + 100)
    assert deadline.remaining() > 0
    deadline.clear()
    assert deadline.at() == math.inf


def test_other_threads_have_their_own():
    found = []
    with deadline.within(1):
        thread = threading.Thread(target=lambda: found.append(deadline.remaining()))
        thread.start()
        thread.join()
    assert found == [math.inf]
