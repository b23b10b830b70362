"""Running a use case as one transaction, again if the database asks for it.

There is one policy: what failed because of another writer is repeated, with jitter, until the attempts are
used up or the time is: the deadline of the request (domain.deadline), or a fixed time outside of requests.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from placement.domain import deadline
from placement.domain.errors import Unavailable
from placement.storage.database import Database, Transaction
from placement.storage.failures import TryAgain, Unreachable

Result = TypeVar("Result")

_FIRST_PAUSE_SECONDS = 0.005
_LONGEST_PAUSE_SECONDS = 0.5
_PATIENCE_SECONDS = 30.0
# A database that cannot be reached is not waited for longer: a restart takes a second, an outage many.
_OUTAGE_SECONDS = 2.0


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
    return _repeated(once, database.attempts)


def patiently(once: Callable[[], Result]) -> Result:
    """Do something again while other writers get in its way, with jitter and for a bounded time.

    Raises Unavailable when time is up; nothing was changed then.
    """
    return _repeated(once, None)


def _repeated(once: Callable[[], Result], most: int | None) -> Result:
    begun = time.monotonic()
    number, pause = 0, _FIRST_PAUSE_SECONDS
    while True:
        try:
            return once()
        except TryAgain as error:
            number += 1
            if number == most or _is_enough(error, time.monotonic() - begun, pause):
                raise Unavailable(f"{error} Nothing was changed; try again later.") from error
            # Jitter keeps writers that collided from colliding again.
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _is_enough(error: TryAgain, taken: float, pause: float) -> bool:
    """Whether another attempt would come too late."""
    patience = _OUTAGE_SECONDS if isinstance(error, Unreachable) else _PATIENCE_SECONDS
    return taken > patience or deadline.remaining() <= 1.5 * pause
