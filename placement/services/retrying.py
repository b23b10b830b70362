"""How often, how long and with which pauses something is done again that others got in the way of.

There is one policy for all who do that: transactions that the database asks to repeat
(services.transactions), and claims that decide again because another consumer was faster
(services.placement.best_fit). Time is never more than the request has left (domain.deadline).
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass

from placement.domain import deadline

# Jitter keeps those who collided from colliding again.
_LEAST_PART, _LARGEST_PART = 0.5, 1.5


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits: `attempts` None sets no number. Pauses double from the first to the longest; in seconds."""

    patience_seconds: float = 30.0
    attempts: int | None = None
    first_pause_seconds: float = 0.005
    longest_pause_seconds: float = 0.5

    def begin(self) -> Attempts:
        """The first attempt of somebody begins now."""
        return Attempts(self)


class Attempts:
    """What one caller has tried so far."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._begun = time.monotonic()
        self._failed = 0
        self._pause = policy.first_pause_seconds

    def may_go_on(self, patience_seconds: float = math.inf) -> bool:
        """An attempt failed: whether there may be another one.

        `patience_seconds`: what this failure is worth waiting for in all, if that is less than usual.
        """
        self._failed += 1
        if self._failed == self._policy.attempts:
            return False
        taken = time.monotonic() - self._begun
        if taken > min(patience_seconds, self._policy.patience_seconds):
            return False
        return deadline.remaining() > _LARGEST_PART * self._pause

    def pause(self) -> None:
        """Wait for the next attempt."""
        time.sleep(self._pause * random.uniform(_LEAST_PART, _LARGEST_PART))
        self._pause = min(2 * self._pause, self._policy.longest_pause_seconds)
