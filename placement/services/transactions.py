"""Running a use case as one transaction, again if the database asks for it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from placement.domain.errors import Unavailable
from placement.storage.database import Database, Transaction
from placement.storage.failures import TryAgain

Result = TypeVar("Result")

_FIRST_PAUSE_SECONDS = 0.005
_LONGEST_PAUSE_SECONDS = 0.5
_PATIENCE_SECONDS = 20.0


def attempt(database: Database, work: Callable[[Transaction], Result]) -> Result:
    """Run `work` in a transaction, repeating it a bounded number of times with jitter.

    Raises Unavailable when the attempts are used up; nothing was changed then.
    """
    pause = _FIRST_PAUSE_SECONDS
    for number in range(database.attempts):
        try:
            with database.write() as transaction:
                return work(transaction)
        except TryAgain as error:
            if number == database.attempts - 1:
                raise Unavailable(f"{error} Nothing was changed; try again later.") from error
            # Jitter keeps writers that collided from colliding again.
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    raise AssertionError("unreachable")


def patiently(once: Callable[[], Result]) -> Result:
    """Do something again while other writers get in its way, with jitter and for a bounded time.

    Raises Unavailable when patience is at its end; nothing was changed then.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return once()
        except TryAgain as error:
            if time.monotonic() > deadline:
                raise Unavailable(f"{error} Nothing was changed; try again later.") from error
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
