"""A deadline bounds what is waited for, and only where it was set."""

from __future__ import annotations

import math
import threading
import time

import pytest

from placement.engine.domain import request_scope


@pytest.fixture(autouse=True)
def no_request_before():
    """Threads begin each request anew, so tests of requests may leave a deadline behind in this one."""
    request_scope.until(math.inf)


def test_without_a_deadline_there_is_no_end():
    assert request_scope.remaining() == math.inf
    assert request_scope.remaining(10) == 10
    assert not request_scope.is_over()


def test_what_remains_is_what_is_left_or_less():
    with request_scope.within(100):
        assert 0 < request_scope.remaining() <= 100
        assert request_scope.remaining(10) == 10
        with request_scope.within(1000):
            assert request_scope.remaining() <= 100
    assert request_scope.remaining() == math.inf


def test_a_deadline_that_is_over_leaves_nothing():
    with request_scope.within(-1):
        assert request_scope.is_over()
        assert request_scope.remaining(10) == 0


def test_the_next_request_of_a_thread_begins_anew():
    request_scope.until(time.monotonic() - 1)
    request_scope.until(time.monotonic() + 100)
    assert request_scope.remaining() > 0
    request_scope.until(math.inf)
    assert request_scope.at() == math.inf


def test_other_threads_have_their_own():
    found = []
    with request_scope.within(1):
        thread = threading.Thread(target=lambda: found.append(request_scope.remaining()))
        thread.start()
        thread.join()
    assert found == [math.inf]
