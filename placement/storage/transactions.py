"""The running of a use case as one transaction, and the policy for repeating it.

One policy serves all work that others got in the way of: transactions that the database asks to repeat, and
claims that decide again because another consumer was faster (allocations.best_fit). Time is never more
than the request has left (engine.domain.deadline).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from placement.engine.domain import deadline
from placement.engine.domain.errors import Unavailable
from placement.metrics.catalog import RETRIES
from placement.storage.database import Database, Transaction
from placement.storage.failures import TryAgain, Unreachable

# Jitter keeps writers that collided from colliding again.
_LEAST_PART, _LARGEST_PART = 0.5, 1.5
Result = TypeVar("Result")
# A database that cannot be reached is not waited for longer: a restart takes a second, an outage many.
_OUTAGE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits: `attempts` None sets no number. Pauses double from the first to the longest; in seconds."""

    patience_seconds: float = 30.0
    attempts: int | None = None
    first_pause_seconds: float = 0.005
    longest_pause_seconds: float = 0.5

    def begin(self) -> Attempts:
        """Begin the first attempt of one caller."""
        return Attempts(self)


class Attempts:
    """A record of what one caller has tried so far."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._begun = time.monotonic()
        self._failed = 0
        self._pause = policy.first_pause_seconds

    def may_go_on(self, patience_seconds: float = math.inf) -> bool:
        """Note that an attempt failed; return whether there may be another one.

        `patience_seconds`: how long this failure is worth waiting for in all, if that is less than usual.
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


_PATIENTLY = RetryPolicy()


def attempt(
    database: Database, work: Callable[[Transaction], Result], before: Callable[[], object] | None = None
) -> Result:
    """Run `work` in a transaction, repeating it a bounded number of times and seconds with jitter.

    `before` is done each time before the transaction begins. Raises Unavailable when the attempts or the time
    are used up; nothing was changed then.
    """

    def once() -> Result:
        if before is not None:
            before()
        with database.write() as transaction:
            return work(transaction)

    return ensure(database, once)


def ensure(database: Database, once: Callable[[], Result]) -> Result:
    """Do something that is a transaction of its own, as often and as long as `attempt` would try.

    Raises Unavailable when the attempts or the time are used up; nothing was changed then.
    """
    return _repeated(once, RetryPolicy(attempts=database.attempts))


def patiently(once: Callable[[], Result]) -> Result:
    """Do something again while other writers get in its way, with jitter and for a bounded time.

    Raises Unavailable when time is up; nothing was changed then.
    """
    return _repeated(once, _PATIENTLY)


def _repeated(once: Callable[[], Result], policy: RetryPolicy) -> Result:
    attempts = policy.begin()
    while True:
        try:
            return once()
        except TryAgain as error:
            patience = _OUTAGE_SECONDS if isinstance(error, Unreachable) else math.inf
            if not attempts.may_go_on(patience):
                raise Unavailable(f"{error} Nothing was changed; try again later.") from error
            RETRIES.labels("unreachable" if isinstance(error, Unreachable) else "concurrent").inc()
            attempts.pause()
