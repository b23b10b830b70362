"""The bound on the requests of one caller behind servers that do not count them."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable

from flask import Response, after_this_request, request

from placement.http import context
from placement.http.responses import HttpError

# The bound on how many requests of one caller a process works on, for servers of any kind.
#
# A request counts for the user of its credentials once they have been accepted, before that for its address.
# So random tokens from one address share the quota of one caller.


KNOWN_AS = "placement.known_as"
"""The place in the WSGI environment of a function that takes the user id of an authenticated request.

Only our own server sets it, which has counted the request already.
"""
TOO_MANY = "Too many requests of this caller are being answered; nothing was done."
_MOST_KNOWN = 10_000

KnownAs = Callable[[str], None]


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
            self._in_work[caller] -= 1
            if not self._in_work[caller]:
                del self._in_work[caller]


class KnownCredentials:
    """A bounded map from accepted credentials, by SHA-256, to their user ids; the latest used stay."""

    def __init__(self, most: int = _MOST_KNOWN) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._users: OrderedDict[bytes, str] = OrderedDict()

    def user_of(self, digest: bytes) -> str | None:
        """Return the user id, None for credentials that were not accepted."""
        with self._lock:
            if digest in self._users:
                self._users.move_to_end(digest)
            return self._users.get(digest)

    def note(self, digest: bytes, user_id: str) -> None:
        """Remember that the credentials were accepted."""
        with self._lock:
            self._users[digest] = user_id
            self._users.move_to_end(digest)
            if len(self._users) > self._most:
                self._users.popitem(last=False)


_LATER = {"Retry-After": "1"}


def bound(most: int) -> Callable[[], None]:
    """Return a function that counts a request for its user, and raises HttpError 429 beyond `most` at a time.

    `most` 0 means any number. Our own server counts by itself; it only receives the user of the request here.
    Routes that need no token are not limited (common.probes.OPEN_PATHS, http.openapi_routes.PATHS).
    """
    callers = Callers(most)

    def enter() -> None:
        user = context.current().caller.user_id
        if user is None:
            return
        known_as = request.environ.get(KNOWN_AS)
        if known_as is not None:
            known_as(user)
            return
        if not callers.enter(user):
            raise HttpError(429, TOO_MANY, headers=_LATER)

        @after_this_request
        def leave_once_sent(response: Response) -> Response:
            response.call_on_close(lambda: callers.leave(user))
            return response

    return enter
