"""The ambient values of a request: its deadline, the clusters that it may see, the initiator of its changes.

The deadline is one moment for all attempts and waits of a request; every wait asks here how long it may take.
It is earlier where the caller has gone away. Outside of requests there is no deadline.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from placement.engine.domain.errors import Forbidden

_end: ContextVar[float] = ContextVar("placement_deadline", default=math.inf)
_caller_is_gone: ContextVar[Callable[[], bool] | None] = ContextVar("placement_caller_is_gone", default=None)


set_deadline = _end.set
"""Give the work of this thread (or context) time until a moment on the monotonic clock, or infinity."""
deadline = _end.get
"""Return the moment on the monotonic clock at which time is up; infinity without a deadline."""


def remaining(at_most: float = math.inf) -> float:
    """Return the seconds that are left, at most `at_most` and never below 0."""
    return max(0.0, min(at_most, _end.get() - time.monotonic()))


def is_over() -> bool:
    """Return whether time is up."""
    return time.monotonic() >= _end.get()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Give the block this many seconds, or the seconds left if these are fewer."""
    token = _end.set(min(_end.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _end.reset(token)


watch_caller = _caller_is_gone.set
"""Note how to find out whether the caller of this thread left (None: never)."""


def caller_is_gone() -> bool:
    """Return whether the caller of this thread went away; the system call is too slow for every step."""
    is_gone = _caller_is_gone.get()
    return is_gone is not None and is_gone()


ClusterNames = frozenset[str] | None
"""Names of clusters, None for everything, including hosts that are in no cluster."""
EVERYTHING: ClusterNames = None
NOTHING: ClusterNames = frozenset()
# Each request has its clusters set (`http.middleware`, `http.gate`), and everything that reads heeds them
# (`providers.view`). Before its gate ran, a request sees nothing: a forgotten gate shows nothing. Outside of
# requests all is visible: commands and threads of the service itself are bound to no cluster.
_seen: ContextVar[ClusterNames] = ContextVar("placement_scope", default=EVERYTHING)


show_only = _seen.set
"""Let this thread (or context) see some clusters from now on, and nothing else."""
visible_clusters = _seen.get
"""Return the clusters that may be seen at the moment."""


def admits(cluster: str | None) -> bool:
    """Return whether a cluster may be seen; None stands for everything."""
    clusters = _seen.get()
    return clusters is None or cluster in clusters


def require_everything() -> None:
    """Raise Forbidden unless all there is may be seen: the use case knows no clusters."""
    if not admits(None):
        raise Forbidden("This concerns all clusters, and the token is bound to some.")


@dataclass(frozen=True, slots=True)
class Initiator:
    """The initiator of a change; without a user it is the service itself, or a command on its machine.

    `request_id` is the id that this service gave, `global_request_id` the caller's if there is one; `address`
    is where the request came from.
    """

    user_id: str | None = None
    project_id: str | None = None
    roles: tuple[str, ...] = ()
    request_id: str | None = None
    global_request_id: str | None = None
    address: str | None = None


SERVICE_ITSELF = Initiator()
_initiator: ContextVar[Initiator] = ContextVar("placement_initiator", default=SERVICE_ITSELF)


act_as = _initiator.set
"""Record what this thread (or context) changes from now on under an initiator."""
initiator = _initiator.get
"""Return the initiator of the changes that this thread (or context) makes now."""
