"""The time one search may take. Work of unknown length spends from it, step by step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

# Steps between two looks at the clock: a step is some tens of microseconds of work at most.
_STEPS = 128
# A long search lets other threads run; the interpreter alone would make them wait for longer.
_UNNOTICED_SECONDS = 0.02
_BETWEEN_PAUSES_SECONDS = 0.005
_PAUSE_SECONDS = 0.00005


class SearchEnded(Exception):
    """An error that ends a search before it is through: its time is up, or its caller has gone away."""

    def __init__(self, *, abandoned: bool) -> None:
        super().__init__("the caller went away" if abandoned else "the time is up")
        self.abandoned = abandoned


class Budget:
    """The time of one search, `seconds` from now; None for no bound.

    `abandoned` returns whether the caller went away. `dead_ends` counts per slot how often it found no place,
    `stage_seconds` has the seconds that each stage took.
    """

    def __init__(self, seconds: float | None = None, abandoned: Callable[[], bool] | None = None) -> None:
        self._began = time.monotonic()
        self._seconds = seconds
        self._abandoned = abandoned
        self._left = _STEPS
        self._pause_after = _UNNOTICED_SECONDS
        self.dead_ends: Counter[int] = Counter()
        self.stage_seconds: dict[str, float] = {}
        self._stage_began = self._began

    def half(self) -> Budget:
        """Return a budget of half the time that is left, for work without which there is an answer."""
        left = None if self._seconds is None else self._seconds - (time.monotonic() - self._began)
        return Budget(None if left is None else left / 2, self._abandoned)

    def renew(self, seconds: float) -> None:
        """Allow so many seconds from now on, whatever was spent before."""
        self._seconds = time.monotonic() - self._began + seconds

    def begin_stages(self) -> None:
        """Start the stages now: time that was spent before counts for none of them."""
        self._stage_began = time.monotonic()

    def note_stage(self, name: str) -> None:
        """End a stage of the search; it took the time since the last one ended, or the first began."""
        now = time.monotonic()
        self.stage_seconds[name] = self.stage_seconds.get(name, 0.0) + now - self._stage_began
        self._stage_began = now

    def spend(self, steps: int = 1) -> None:
        """Account for some steps of work. Raises SearchEnded when the budget is used up."""
        self._left -= steps
        if self._left < 0:
            self._left = _STEPS
            self.look()

    def look(self) -> None:
        """Look at the clock now, before work that cannot be divided. Raises SearchEnded."""
        passed = time.monotonic() - self._began
        if self._seconds is not None and passed > self._seconds:
            raise SearchEnded(abandoned=False)
        if passed > self._pause_after:
            self._pause_after = passed + _BETWEEN_PAUSES_SECONDS
            if self._abandoned is not None and self._abandoned():
                raise SearchEnded(abandoned=True)
            time.sleep(_PAUSE_SECONDS)
