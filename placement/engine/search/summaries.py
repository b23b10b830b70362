"""Summaries of trees as texts, kept until something in the tree changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

import numpy as np

from placement.engine.forest.arrays import Amounts, Columns, Indices, column_of
from placement.engine.forest.forest import Forest
from placement.engine.forest.texts import TextList

_NEVER = -1


class _SummaryTexts(Columns):
    # Arrays: looking up thousands of texts in a dict takes longer than joining them.
    stamp: Amounts = column_of(np.int64, _NEVER)
    text: TextList = column_of(object, None)


class SummaryCache:
    """A cache of one text per tree, within a limit of bytes that the texts of one answer may exceed."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._texts = _SummaryTexts()
        self._bytes = 0

    def of(self, forest: Forest, roots: Indices, write: Callable[[Indices], list[bytes]]) -> list[bytes]:
        """Return the texts of the trees; `write` writes anew the texts of trees that changed."""
        present = forest.providers.tree_stamp[roots]
        with self._lock:
            self._texts.ensure(forest.count)
            stale = self._texts.stamp[roots] != present
            texts = self._texts.text[roots].tolist()
        if stale.any():
            places, changed, stamps = np.flatnonzero(stale), roots[stale], present[stale]
            fresh = write(changed)
            for place, text in zip(places.tolist(), fresh, strict=True):
                texts[place] = text
            self._keep(changed, stamps, fresh)
        return cast(list[bytes], texts)

    def _keep(self, roots: Indices, stamps: Amounts, texts: list[bytes]) -> None:
        with self._lock:
            if self._bytes > self._most_bytes:
                self._forget()
            # The texts may have been forgotten, or an answer from a newer snapshot may have been faster.
            kept = self._texts
            kept.ensure(int(roots.max()) + 1)
            newer = stamps > kept.stamp[roots]
            for root, text, is_newer in zip(roots.tolist(), texts, newer.tolist(), strict=True):
                if is_newer:
                    self._bytes += len(text) - len(kept.text[root] or b"")
                    kept.text[root] = text
            kept.stamp[roots[newer]] = stamps[newer]
