"""The state of the request at hand: its id, version and caller, and the use cases that its caller may ask."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

from flask import current_app
from oslo_context import context as log_context

from placement.common.microversions import OLDEST, Feature, Microversion
from placement.engine.domain import request_scope
from placement.engine.domain.request_scope import Initiator, act_as, initiator
from placement.http.caller_limits import in_log

ENVIRONMENT_KEY = "placement.request"
"""The place in the WSGI environment of the RequestContext, which the layers around the application share."""
REGISTRY = "placement_registry"
"""The key of the extension that has the objects of an application by class, a `http.registry.Registry`."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, with lower-case role names.

    `domain_id` is set for a token of a whole domain. `clusters` is None for a token bound to no clusters.
    """

    user_id: str | None
    project_id: str | None
    roles: frozenset[str]
    system_scope: bool = False
    domain_id: str | None = None
    clusters: frozenset[str] | None = None


ANONYMOUS = Caller(None, None, frozenset())


@dataclass(slots=True)
class RequestContext:
    """The state of the current request.

    `version` is None until agreed, `body` unless it is read early. `leave` is called once the answer is sent.
    `rule` is the path of the route, if there is one, `candidates` how many were found, if they were sought.
    `is_own`: the path is one of ours, and the errors are in our words.
    `reads`: the request tries to change nothing, whatever its method, so it has no line in the audit log.
    `status` is what is logged and counted where the caller gets another one. `problem` is the message of the
    error, if there is one. `begun` is what `begin` returned.
    """

    request_id: str
    version: Microversion | None = None
    caller: Caller = field(default=ANONYMOUS)
    body: bytes | None = None
    leave: Callable[[], object] | None = None
    rule: str | None = None
    candidates: int | None = None
    is_own: bool = False
    reads: bool = False
    status: int | None = None
    problem: str | None = None
    begun: Token[RequestContext] | None = None


_current: ContextVar[RequestContext] = ContextVar("placement_request")


begin = _current.set
"""Make a request the current one of this thread (or context), and return the token that `end` needs."""
current = _current.get
"""Return the context of the current request. Raises LookupError where no request is current."""
end = _current.reset
"""Make the request the current one that was so before `begin`, usually none."""


def identify(caller: Caller) -> None:
    """Note the caller for the handler, and for every audit record and log line from now on."""
    current().caller = caller
    before, known = initiator(), _caller_names(caller)
    act_as(
        Initiator(
            caller.user_id,
            caller.project_id,
            known.roles,
            before.request_id,
            before.global_request_id,
            before.address,
        )
    )
    given = log_context.get_current()
    if given is not None:
        given.user_id, given.project_id, given.domain_id = known.user_id, known.project_id, known.domain_id
        given.roles = list(known.roles_in_log)
        given.system_scope = "all" if caller.system_scope else None


class _CallerNames(NamedTuple):
    """The roles of a caller in order, and what log lines say of it."""

    roles: tuple[str, ...]
    user_id: str | None
    project_id: str | None
    domain_id: str | None
    roles_in_log: tuple[str, ...]


# A few callers send most of the requests.
@lru_cache(maxsize=1024)
def _caller_names(caller: Caller) -> _CallerNames:
    roles = tuple(sorted(caller.roles))
    names = in_log(caller.user_id), in_log(caller.project_id), in_log(caller.domain_id)
    return _CallerNames(roles, *names, tuple(sorted(in_log(role) or "" for role in roles)))


def version() -> Microversion:
    """Return the agreed version, the oldest before it is agreed."""
    return current().version or OLDEST


def offers(feature: Feature) -> bool:
    """Return whether the request's version has the feature."""
    return version() >= feature.value


def is_own() -> bool:
    """Return whether errors are in our words: on our paths and pages."""
    return current().is_own


def roles_in(text: str) -> frozenset[str]:
    return frozenset(role.strip().lower() for role in text.split(",") if role.strip())


def service(kind: type[T]) -> T:
    """Return the use case of this class for the current caller.

    A caller that is bound to clusters gets classes with `for_bound_callers`, which show such a caller nothing
    else (see `providers.view`). Raises Forbidden for all others.
    """
    if request_scope.visible_clusters() is not None and not vars(kind).get("for_bound_callers"):
        request_scope.require_everything()
    found: T = current_app.extensions[REGISTRY].objects[kind]
    return found


def component(kind: type[T]) -> T:
    """Return the object of this class that serves the requests of all callers, such as the policy."""
    found: T = current_app.extensions[REGISTRY].objects[kind]
    return found
