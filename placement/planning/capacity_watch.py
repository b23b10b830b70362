"""Kinds that are watched: how many more of them fit, counted beside requests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from placement.engine.domain import errors, request_scope
from placement.planning.capacity import Planning, Question
from placement.planning.counts import KindCapacity

# Operators know its lines by this name.
LOG = logging.getLogger("placement.planning.capacity")
_OLD_SECONDS = 15.0
# A kind that takes longer is left out.
_MOST_SECONDS = 10.0


class Watch:
    """The counts of some questions, at most seconds old while callers keep asking.

    A caller gets the last counts. Where these are old, a thread counts again, so that no caller waits for it.
    """

    def __init__(self, planning: Planning, questions: Sequence[Question]) -> None:
        self._planning = planning
        self._questions = questions
        self._counted: dict[str, KindCapacity] = {}
        self._since = -_OLD_SECONDS
        self._counting = threading.Lock()

    def latest(self) -> Mapping[str, KindCapacity]:
        """Return the last counts by kind; nothing before the first count."""
        is_old = time.monotonic() - self._since >= _OLD_SECONDS
        if self._questions and is_old and self._counting.acquire(blocking=False):
            threading.Thread(target=self._count_all, name="capacity", daemon=True).start()
        return self._counted

    def _count_all(self) -> None:
        try:
            counted: dict[str, KindCapacity] = {}
            for question in self._questions:
                try:
                    with request_scope.within(_MOST_SECONDS):
                        counted |= self._planning.capacity(question)
                except errors.PlacementError as error:
                    LOG.warning("%s is left out of /metrics: %s", ", ".join(question.kinds), error)
                except Exception:
                    LOG.exception("%s is left out of /metrics", ", ".join(question.kinds))
            self._counted = counted
        finally:
            self._since = time.monotonic()
            self._counting.release()
