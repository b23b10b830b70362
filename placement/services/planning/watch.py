"""Kinds that are watched: how many more of them there is room for, counted beside requests.

Who asks is told what was counted last. If that is old, a thread counts again, so that nobody waits for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from placement.domain import deadline
from placement.domain.errors import PlacementError
from placement.services.flavors import ParseQuery
from placement.services.planning.answer import KindRoom
from placement.services.planning.planning import Planning, Question

LOG = logging.getLogger(__name__)
_OLD_SECONDS = 15.0
# A kind that takes longer is left out.
_MOST_SECONDS = 10.0


class Watch:
    """The rooms of some questions, at most seconds old where somebody asks again and again."""

    def __init__(self, planning: Planning, questions: Sequence[Question], parse: ParseQuery) -> None:
        self._planning = planning
        self._questions = questions
        self._parse = parse
        self._counted: dict[str, KindRoom] = {}
        self._since = -_OLD_SECONDS
        self._counting = threading.Lock()

    def latest(self) -> Mapping[str, KindRoom]:
        """What was counted last, by kind; nothing before the first count."""
        is_old = time.monotonic() - self._since >= _OLD_SECONDS
        if self._questions and is_old and self._counting.acquire(blocking=False):
            threading.Thread(target=self._count_all, name="capacity", daemon=True).start()
        return self._counted

    def _count_all(self) -> None:
        try:
            counted: dict[str, KindRoom] = {}
            for question in self._questions:
                counted |= self._count(question)
            self._counted = counted
        finally:
            self._since = time.monotonic()
            self._counting.release()

    def _count(self, question: Question) -> Mapping[str, KindRoom]:
        try:
            with deadline.within(_MOST_SECONDS):
                return self._planning.capacity(question, self._parse)
        except PlacementError as error:
            LOG.warning("%s is left out of /metrics: %s", ", ".join(question.kinds), error)
        except Exception:
            LOG.exception("%s is left out of /metrics", ", ".join(question.kinds))
        return {}
