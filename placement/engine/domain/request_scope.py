"""The ambient values of a request: its deadline, the clusters that it may see, the initiator of its changes.

The deadline is one moment for all attempts and waits of a request; every wait asks here how long it may take.
It is earlier where the caller has gone away. Outside of requests there is no deadline.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

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
    """Give the block this many seconds, or what is left if that is less."""
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


# A bound on how many threads wait for another server at once.


_PATIENCE_SECONDS = 1.0


class Full(Exception):
    """The error of a waiting room in which too many threads wait already."""


class WaitingRoom:
    """A room that lets a number of threads in at once.

    As many others may wait for a second until one leaves. Once a thread has been inside for longer than that,
    no thread may wait any more: all others are refused at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._since: dict[int, float] = {}
        self._queued = 0
        self._changed = threading.Condition()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Stay inside the room while the block runs. Raises Full."""
        with self._changed:
            if not self._has_room():
                oldest = min(self._since.values())
                if self._queued >= self._most or time.monotonic() - oldest > _PATIENCE_SECONDS:
                    raise Full
                self._queued += 1
                try:
                    if not self._changed.wait_for(self._has_room, _PATIENCE_SECONDS):
                        raise Full
                finally:
                    self._queued -= 1
            self._since[threading.get_ident()] = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                del self._since[threading.get_ident()]
                self._changed.notify()

    def _has_room(self) -> bool:
        return len(self._since) < self._most


# The clusters that the current work may see: everything, or what some clusters have.
#
# Each request has them set (`http.middleware`, `http.gate`), and everything that reads heeds them
# (`providers.view`). Before its gate ran, a request sees nothing: a forgotten gate shows nothing. Outside of
# requests all is visible: commands and threads of the service itself are bound to no cluster.


Clusters = frozenset[str] | None
"""Names of clusters, None for everything, including hosts that are in no cluster."""
EVERYTHING: Clusters = None
NOTHING: Clusters = frozenset()
_seen: ContextVar[Clusters] = ContextVar("placement_scope", default=EVERYTHING)


show_only = _seen.set
"""Let this thread (or context) see some clusters from now on, and nothing else."""
visible_clusters = _seen.get
"""Return the clusters that may be seen at the moment."""


def admits(cluster: str | None) -> bool:
    """Return whether a cluster may be seen; None stands for everything."""
    clusters = _seen.get()
    return clusters is None or cluster in clusters


# The initiator of the changes that this thread makes.


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
