"""The bound on the requests of one caller behind servers that do not count them."""

from __future__ import annotations

from flask import Flask, Response, g, request

from placement.api import context
from placement.api.errors import HttpError
from placement.services.callers import KNOWN_AS, TOO_MANY, Callers

_LATER = {"Retry-After": "1"}


def limit(application: Flask, most: int) -> None:
    """Answer 429 to more than `most` requests of a user at a time; 0 means any number.

    Our own server counts by itself and learns here which user its request is of. What needs no token is not
    limited (services.health.probes.OPEN_PATHS, api.openapi.page.PATHS).
    """
    callers = Callers(most)

    def enter() -> None:
        user = context.current().caller.user_id
        if user is None:
            return
        known_as = request.environ.get(KNOWN_AS)
        if known_as is not None:
            known_as(user)
        elif callers.enter(user):
            g.placement_counted_for = user
        else:
            raise HttpError(429, TOO_MANY, headers=_LATER)

    def leave(response: Response) -> Response:
        user = g.pop("placement_counted_for", None)
        if user is not None:
            response.call_on_close(lambda: callers.leave(user))
        return response

    application.before_request(enter)
    application.after_request(leave)
