"""How many requests of one caller this process answers at the same time."""

from __future__ import annotations

import threading
from collections import Counter

from flask import Flask, Response, g

from placement.api import context
from placement.api.errors import HttpError

_RETRY_AFTER_SECONDS = 1


class Callers:
    """Counts the requests of each caller from their start until their answer is sent or given up."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._in_work: Counter[str] = Counter()

    def enter(self, caller: str) -> bool:
        """Count one more request; False if the caller has as many as it may have."""
        with self._lock:
            if self._in_work[caller] >= self._most:
                return False
            self._in_work[caller] += 1
            return True

    def leave(self, caller: str) -> None:
        """Count one less."""
        with self._lock:
            self._in_work[caller] -= 1
            if not self._in_work[caller]:
                del self._in_work[caller]


def limit(application: Flask, most: int) -> None:
    """Answer 429 to more than that many requests of a caller at a time; 0 means any number.

    What needs no token is not limited (services.health.probes.OPEN_PATHS).
    """
    if not most:
        return
    callers = Callers(most)

    def enter() -> None:
        caller = context.current().caller.user_id
        if caller is None:
            return
        if not callers.enter(caller):
            raise HttpError(
                429,
                f"This process answers at most {most} requests of one caller at a time.",
                headers={"Retry-After": str(_RETRY_AFTER_SECONDS)},
            )
        g.placement_counted_for = caller

    def leave(response: Response) -> Response:
        caller = g.pop("placement_counted_for", None)
        if caller is not None:
            response.call_on_close(lambda: callers.leave(caller))
        return response

    application.before_request(enter)
    application.after_request(leave)
