"""Callers who ask for the same at the same time are served by one of them.

The first begins at once and by itself. Whoever comes while it is at work waits, and when it is done one of
those who waited works for all of them: their number follows from how long the work takes, and nobody waits
for others to come.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Given = TypeVar("Given")
Result = TypeVar("Result")


class _Caller(Generic[Asked, Given]):
    """One who waits; `crowd` are those it is to work for, itself first, if it is to."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.crowd: Sequence[_Caller[Asked, Given]] = ()
        self.given: Given | None = None
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

        A caller whose turn does not come in time goes by itself, so that what delays others delays nobody
        for longer than that.
        """
        self._work = work
        self._most = most
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        # Who waits, by key; a key is there while somebody works.
        self._waiting: dict[Hashable, list[_Caller[Asked, Given]]] = {}

    def ask(self, key: Hashable, asked: Asked, alone: Callable[[], Given]) -> Given:
        """What `alone` gives, or what somebody who worked for many was given for this caller.

        Raises what `alone` raises; it is called by those who come first, and by those whom the work for many
        had nothing for, or for whom it failed.
        """
        caller = _Caller[Asked, Given](asked)
        with self._lock:
            comes_first = key not in self._waiting
            self._waiting.setdefault(key, [])
            if not comes_first:
                self._waiting[key].append(caller)
        if comes_first:
            return self._leading(key, alone)
        if not caller.is_called.wait(self._patience_seconds) and self._leaves(key, caller):
            return alone()
        # Whoever was called works; whoever was taken along is served by somebody who came before.
        caller.is_called.wait()
        if len(caller.crowd) == 1:
            return self._leading(key, alone)
        if caller.crowd:
            self._leading(key, lambda: self._serve(caller.crowd))
        return alone() if caller.given is None else caller.given

    def _leaves(self, key: Hashable, caller: _Caller[Asked, Given]) -> bool:
        """Have it wait no longer; False if its turn has come, or it was taken along."""
        with self._lock:
            waiting = self._waiting.get(key, [])
            if caller not in waiting:
                return False
            waiting.remove(caller)
            return True

    def _leading(self, key: Hashable, work: Callable[[], Result]) -> Result:
        """Work, and call the next when it is done."""
        try:
            return work()
        finally:
            self._call_next(key)

    def _call_next(self, key: Hashable) -> None:
        with self._lock:
            crowd = self._waiting[key][: self._most]
            if not crowd:
                del self._waiting[key]
                return
            del self._waiting[key][: len(crowd)]
            crowd[0].crowd = crowd
        crowd[0].is_called.set()

    def _serve(self, crowd: Sequence[_Caller[Asked, Given]]) -> None:
        try:
            found = self._work([caller.asked for caller in crowd])
            for caller, given in zip(crowd, found, strict=True):
                caller.given = given
        finally:
            for caller in crowd[1:]:
                caller.is_called.set()
