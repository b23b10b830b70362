"""The bound on the requests of one caller behind servers that do not count them."""

from __future__ import annotations

from collections.abc import Callable

from flask import Response, after_this_request, request

from placement.api import context
from placement.api.errors import HttpError
from placement.services.callers import KNOWN_AS, TOO_MANY, Callers

_LATER = {"Retry-After": "1"}


def bound(most: int) -> Callable[[], None]:
    """Return what counts a request for its user. It raises HttpError 429 beyond `most` at a time.

    `most` 0 means any number. Our own server counts by itself and learns here which user its request is of.
    What needs no token is not limited (services.health.probes.OPEN_PATHS, api.openapi.page.PATHS).
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
