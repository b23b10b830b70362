"""The time between two attempts."""

from __future__ import annotations

import random

_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 30.0


class Pause:
    """A pause that doubles with each failure in a row; jitter keeps callers from coming back together."""

    def __init__(self, longest: float = _LONGEST_SECONDS) -> None:
        self._longest = longest
        self._next = _FIRST_SECONDS

    def after_failure(self) -> float:
        """Return the seconds to wait now."""
        now = self._next
        self._next = min(2 * now, self._longest)
        return now * random.uniform(0.5, 1.0)

    def after_success(self) -> None:
        """Begin again with a short pause."""
        self._next = _FIRST_SECONDS
