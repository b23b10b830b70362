"""When the request at hand must be answered: whoever waits for something waits no longer than that."""

from __future__ import annotations

import contextvars
import time

# Where an HTTP server leaves the deadline in the WSGI environment, in seconds of time.monotonic().
DEADLINE_KEY = "placement.deadline"
_deadline: contextvars.ContextVar[float | None] = contextvars.ContextVar("deadline", default=None)


def set_deadline(monotonic_seconds: float | None) -> None:
    """Say when the present request has to be answered, in seconds of time.monotonic(); None for never."""
    _deadline.set(monotonic_seconds)


def remaining() -> float | None:
    """Seconds until the deadline, 0.0 if it has passed; None if there is none."""
    deadline = _deadline.get()
    return None if deadline is None else max(0.0, deadline - time.monotonic())
