"""The deadline of a request: one moment for all of its attempts and waits.

Every wait asks here how long it may take; outside of requests there is no deadline.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Where an HTTP server leaves the deadline of a request in the WSGI environment, as `until` takes it.
KEY = "placement.deadline"
_end: ContextVar[float] = ContextVar("placement_deadline", default=math.inf)


def begin(seconds: float) -> None:
    """From now on the work of this thread (or context) has so many seconds."""
    _end.set(time.monotonic() + seconds)


def until(moment: float) -> None:
    """From now on the work of this thread (or context) has time until `moment`, on the monotonic clock."""
    _end.set(moment)


def clear() -> None:
    """The work of this thread has no end any more."""
    _end.set(math.inf)


def at() -> float:
    """The moment on the monotonic clock at which time is up; infinity without a deadline."""
    return _end.get()


def remaining(at_most: float = math.inf) -> float:
    """The seconds that are left, `at_most` so many, never below 0."""
    end = _end.get()
    if end == math.inf:
        return at_most
    return max(0.0, min(at_most, end - time.monotonic()))


def is_over() -> bool:
    """Whether time is up."""
    end = _end.get()
    return end != math.inf and time.monotonic() >= end


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """The block has so many seconds, or what is left if that is less."""
    token = _end.set(min(_end.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _end.reset(token)
