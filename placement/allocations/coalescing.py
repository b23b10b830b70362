"""Callers who ask for the same at the same time are served by one of them.

The first begins at once and by itself. Whoever comes while it is at work waits, and when it is done one of
those who waited works for all of them: their number follows from how long the work takes, and nobody waits
for others to come. Where the work takes too long, who has waited long enough begins all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Given = TypeVar("Given")


class _Caller(Generic[Asked, Given]):
    """One who asks; whom it works for, itself first, and who came since it began, if it is its turn."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.given: Given | None = None
        self.crowd: Sequence[_Caller[Asked, Given]] = ()
        self.later: list[_Caller[Asked, Given]] = []
        self.is_called = threading.Event()


class Gathering(Generic[Asked, Given]):
    """Gathers what is asked for by a key; callers are threads."""

    def __init__(
        self,
        work: Callable[[Sequence[Asked]], Sequence[Given | None]],
        *,
        most: int,
        patience_seconds: float,
    ) -> None:
        """`work` serves up to `most` callers, and says None for those that it has nothing for.

        Nobody waits for longer than `patience_seconds` until its turn comes or it is taken along; how long it
        takes from then on is up to `work`.
        """
        self._work = work
        self._most = most
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        # Who came since somebody began to work, by key; a key is there while somebody works.
        self._waiting: dict[Hashable, list[_Caller[Asked, Given]]] = {}

    def ask(self, key: Hashable, asked: Asked, alone: Callable[[], Given]) -> Given:
        """What `alone` gives, or what somebody who worked for many was given for this caller.

        `alone` is called by who is the only one, and by those whom the work for many had nothing for, or for
        whom it failed. Raises what `alone` raises, and where it works for many what that raises.
        """
        caller = _Caller[Asked, Given](asked)
        with self._lock:
            if key in self._waiting:
                self._waiting[key].append(caller)
            else:
                self._begin(key, [caller], [])
        if not caller.is_called.wait(self._patience_seconds):
            self._take_turn(key, caller)
        # Who was taken along is called when it is served.
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
        crowd: Sequence[_Caller[Asked, Given]],
        later: list[_Caller[Asked, Given]],
    ) -> None:
        """Let the first of the crowd work for it; others come later."""
        self._waiting[key] = crowd[0].later = later
        crowd[0].crowd = crowd
        crowd[0].is_called.set()

    def _take_turn(self, key: Hashable, caller: _Caller[Asked, Given]) -> None:
        """Let it begin for all who wait, unless it was called or taken along meanwhile."""
        with self._lock:
            waiting = self._waiting.get(key, [])
            if caller in waiting:
                waiting.remove(caller)
                crowd = [caller, *waiting[: self._most - 1]]
                self._begin(key, crowd, waiting[len(crowd) - 1 :])

    def _end(self, key: Hashable, caller: _Caller[Asked, Given]) -> None:
        """Call the next, unless somebody who had to wait too long has begun already."""
        with self._lock:
            waiting = caller.later
            if self._waiting.get(key) is not waiting:
                return
            crowd = waiting[: self._most]
            if crowd:
                self._begin(key, crowd, waiting[len(crowd) :])
            else:
                del self._waiting[key]

    def _serve(self, crowd: Sequence[_Caller[Asked, Given]]) -> None:
        try:
            found = self._work([caller.asked for caller in crowd])
            for caller, given in zip(crowd, found, strict=True):
                caller.given = given
        finally:
            for caller in crowd[1:]:
                caller.is_called.set()
