"""Pods that are placed at the same time, which would all go to the same best node.

Whoever comes second to a node has decided in vain. So where several nodes are equally good, those are taken
on which nobody is placing a pod just now; and while other processes were faster a moment ago, any of them.
What is best stays best: only among equals, which else are taken by name, another one may be chosen.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

from placement.scheduling.pipeline import Ranked

# More equals than there are writers at a time are of no use.
_MOST_EQUALS = 64
_LOSS_LASTS_SECONDS = 1.0


class Contention:
    """Where pods are being placed by this process, and whether others place pods, too; threads share it."""

    def __init__(self) -> None:
        self._taken: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._lost_at = -_LOSS_LASTS_SECONDS

    @contextmanager
    def taking(self, root_id: int) -> Iterator[None]:
        """While a pod is placed on the node with this host provider."""
        self._count(root_id, 1)
        try:
            yield
        finally:
            self._count(root_id, -1)

    def _count(self, root_id: int, change: int) -> None:
        with self._lock:
            self._taken[root_id] += change
            if not self._taken[root_id]:
                del self._taken[root_id]

    def lost(self) -> None:
        """Somebody else was faster."""
        self._lost_at = time.monotonic()

    def spread(self, best_first: Iterable[Ranked]) -> Iterator[Ranked]:
        """The same nodes, the best first; of equals those first where nobody else will come."""
        ranked = iter(best_first)
        best = next(ranked, None)
        if best is None:
            return ranked
        is_lost = time.monotonic() - self._lost_at < _LOSS_LASTS_SECONDS
        if not is_lost and not self._taken[best.node.root_id]:
            return chain([best], ranked)
        equals, rest = [best], []
        for each in ranked:
            if _quality(each) != _quality(best):
                rest = [each]
                break
            equals.append(each)
            if len(equals) == _MOST_EQUALS:
                break
        if is_lost:
            random.shuffle(equals)
        equals.sort(key=lambda each: self._taken[each.node.root_id])
        return chain(equals, rest, ranked)


def _quality(ranked: Ranked) -> tuple[object, ...]:
    used = ranked.used
    return ranked.missed, ranked.score, None if used is None else used.consumer
