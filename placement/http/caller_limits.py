"""What server and application know of callers: how many requests of one are in work, how long, and their log.

A request counts for its address until its credentials are accepted, from then on for their user. So random
tokens from one address share the quota of one caller, and so do new tokens of one user.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Hashable
from functools import lru_cache
from urllib.parse import quote

ARRIVAL = "placement.arrival"
"""The place in the WSGI environment of the moment at which a request arrived, on the monotonic clock.

Only our own server sets it.
"""
# A database that no longer responds is given up 2.25 s after the deadline; then the answer is made and sent.
_ANSWERING_SECONDS = 3.0


def deadline_of(arrival: float, seconds: float) -> float:
    """Return the moment at which the work for a request ends, so that its answer is sent within `seconds`.

    Clients that wait for 30 seconds then learn why it was given up. Moments are of the monotonic clock.
    """
    return arrival + seconds - min(_ANSWERING_SECONDS, seconds / 2)


KNOWN_AS = "placement.known_as"
"""The place in the WSGI environment of a function that takes user id and project id of an accepted caller.

It counts the request for this user, returns False if the user has too many of them, and raises OutOfTurn if
the request has to wait. Only our own server sets it, which has counted the request for its address already.
"""
SIGNED_IN_AS = "placement.signed_in_as"
"""The place in the WSGI environment of a function that takes a new session with its user id and project id.

Only our own server sets it. Requests of the session count for its user from the first one on.
"""
TOO_MANY = "Too many requests of this caller are being answered; nothing was done."


class OutOfTurn(BaseException):
    """A signal that a request has to wait for threads of its user, and then begins again.

    It is for the server alone: handlers of errors, which would answer the request, do not catch it.
    """


class Callers:
    """A count of the requests of each caller, from their start until their answer is sent or given up."""

    def __init__(self, most: int) -> None:
        """Allow at most `most` requests of a caller at a time; 0 means any number."""
        self._most = most
        self._lock = threading.Lock()
        self._in_work: Counter[Hashable] = Counter()

    def enter(self, caller: Hashable) -> bool:
        """Count one more request; False if the caller has as many as it may have."""
        with self._lock:
            if self._most and self._in_work[caller] >= self._most:
                return False
            self._in_work[caller] += 1
            return True

    def leave(self, caller: Hashable) -> None:
        """Count one less."""
        with self._lock:
            self._leave(caller)

    def move(self, former: Hashable, caller: Hashable) -> bool:
        """Count a request for another caller than before; False if this one has as many as it may have."""
        with self._lock:
            if self._most and self._in_work[caller] >= self._most:
                return False
            self._in_work[caller] += 1
            self._leave(former)
            return True

    def _leave(self, caller: Hashable) -> None:
        self._in_work[caller] -= 1
        if not self._in_work[caller]:
            del self._in_work[caller]


# Characters of a query that are logged as they are.
AS_SENT = "%/?&=:,!+"
AUDIT = logging.getLogger("placement.audit")


# A few callers send most of the requests.
@lru_cache(maxsize=1024)
def in_log(text: str | None) -> str | None:
    """Return a name as one word of a log line, whatever characters it has."""
    return quote(text, safe="@:+~") if text else None


def note_attempt(
    user_id: str | None, project_id: str | None, address: str | None, method: str, uri: str, status: str | int
) -> None:
    """Log a request that tried to change something, and its answer; what is not known is `-`."""
    AUDIT.info(
        'user: %s project: %s address: %s "%s %s" status: %s',
        in_log(user_id) or "-",
        in_log(project_id) or "-",
        address or "-",
        method,
        uri,
        status,
    )
