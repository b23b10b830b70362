"""What every request carries: its id, its version, its caller."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field

from flask import g, request

from placement.api.microversions import OLDEST, Feature, Microversion

_GLOBAL_ID = re.compile(r"req-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, with lower-case role names."""

    user_id: str | None
    project_id: str | None
    roles: frozenset[str]
    system_scope: bool = False


ANONYMOUS = Caller(None, None, frozenset())


@dataclass(slots=True)
class RequestContext:
    """The request at hand; `version` is None until it is agreed."""

    request_id: str
    global_id: str | None = None
    version: Microversion | None = None
    caller: Caller = field(default=ANONYMOUS)


def begin() -> None:
    """Start the context of a request."""
    given = request.headers.get("X-Openstack-Request-Id", "")
    g.placement = RequestContext(
        request_id=f"req-{uuid.uuid4()}", global_id=given if _GLOBAL_ID.fullmatch(given) else None
    )


def current() -> RequestContext:
    """The context of the request at hand."""
    context: RequestContext = g.placement
    return context


def version() -> Microversion:
    """The agreed version, the oldest before it is agreed."""
    return current().version or OLDEST


def offers(feature: Feature) -> bool:
    """Whether the request's version has the feature."""
    return version().offers(feature)
