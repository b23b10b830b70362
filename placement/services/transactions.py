"""Running a use case as one transaction, again if the database asks for it.

Whatever another writer got in the way of is repeated (services.retrying).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from placement.domain.errors import Unavailable
from placement.services.retrying import RetryPolicy
from placement.storage.database import Database, Transaction
from placement.storage.failures import TryAgain, Unreachable

Result = TypeVar("Result")

_PATIENTLY = RetryPolicy()
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
            attempts.pause()
