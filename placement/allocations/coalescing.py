"""The coalescing of requests: of callers that ask for one thing at one time, one serves the others.

The first caller begins at once and works for itself. Callers that come meanwhile wait; when it is done, one
of them works for all of them. Their number follows from how long the work takes: no caller waits for others
to come. If the work takes too long, a caller that has waited long enough begins nevertheless.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

CoalescedRequest = TypeVar("CoalescedRequest")
CoalescedResponse = TypeVar("CoalescedResponse")


class _Caller(Generic[CoalescedRequest, CoalescedResponse]):
    """A caller; in its turn, `crowd` are the callers it works for, itself first, and `later` came since."""

    def __init__(self, asked: CoalescedRequest) -> None:
        self.asked = asked
        self.given: CoalescedResponse | None = None
        self.crowd: Sequence[_Caller[CoalescedRequest, CoalescedResponse]] = ()
        self.later: list[_Caller[CoalescedRequest, CoalescedResponse]] = []
        self.is_called = threading.Event()


class RequestCoalescer(Generic[CoalescedRequest, CoalescedResponse]):
    """The coalescing of requests that have one key; callers are threads."""

    def __init__(
        self,
        work: Callable[[Sequence[CoalescedRequest]], Sequence[CoalescedResponse | None]],
        *,
        most: int,
        patience_seconds: float,
    ) -> None:
        """Set up `work`, which serves up to `most` callers, and gives None to callers it has nothing for.

        No caller waits longer than `patience_seconds` until its turn comes or it is taken along. How long it
        takes from then on is up to `work`.
        """
        self._work = work
        self._most = most
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        # The callers that came since work began, by key; a key is present while a caller works.
        self._waiting: dict[Hashable, list[_Caller[CoalescedRequest, CoalescedResponse]]] = {}

    def ask(
        self, key: Hashable, asked: CoalescedRequest, alone: Callable[[], CoalescedResponse]
    ) -> CoalescedResponse:
        """Return what `alone` gives, or what a caller that worked for many got for this one.

        `alone` is called for a single caller, and if the work for many failed or had nothing for the caller.
        Raises what `alone` raises, and in the caller that works for many what `work` raises.
        """
        caller = _Caller[CoalescedRequest, CoalescedResponse](asked)
        with self._lock:
            if key in self._waiting:
                self._waiting[key].append(caller)
            else:
                self._begin(key, [caller], [])
        if not caller.is_called.wait(self._patience_seconds):
            with self._lock:
                waiting = self._waiting.get(key, [])
                # It begins for all that wait, unless it was called or taken along meanwhile.
                if caller in waiting:
                    waiting.remove(caller)
                    crowd = [caller, *waiting[: self._most - 1]]
                    self._begin(key, crowd, waiting[len(crowd) - 1 :])
        # A caller that was taken along is called when it is served.
        caller.is_called.wait()
        if caller.crowd:
            try:
                if len(caller.crowd) == 1:
                    return alone()
                self._serve(caller.crowd)
            finally:
                self._end(key, caller)
        return alone() if caller.given is None else caller.given

    def _begin(
        self,
        key: Hashable,
        crowd: Sequence[_Caller[CoalescedRequest, CoalescedResponse]],
        later: list[_Caller[CoalescedRequest, CoalescedResponse]],
    ) -> None:
        """Let the first of the crowd work for all of it; `later` holds the callers that wait."""
        self._waiting[key] = crowd[0].later = later
        crowd[0].crowd = crowd
        crowd[0].is_called.set()

    def _end(self, key: Hashable, caller: _Caller[CoalescedRequest, CoalescedResponse]) -> None:
        """Call the next caller, unless one that had to wait too long has begun already."""
        with self._lock:
            waiting = caller.later
            if self._waiting.get(key) is not waiting:
                return
            crowd = waiting[: self._most]
            if crowd:
                self._begin(key, crowd, waiting[len(crowd) :])
            else:
                del self._waiting[key]

    def _serve(self, crowd: Sequence[_Caller[CoalescedRequest, CoalescedResponse]]) -> None:
        try:
            found = self._work([caller.asked for caller in crowd])
            for caller, given in zip(crowd, found, strict=True):
                caller.given = given
        finally:
            for caller in crowd[1:]:
                caller.is_called.set()
