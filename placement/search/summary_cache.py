"""Summaries of trees as texts, kept until something in the tree changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

import numpy as np

from placement.forest.arrays import Amounts, Columns, Indices
from placement.forest.forest import Forest
from placement.forest.texts import TextList

_NEVER = -1
Writer = Callable[[Indices], list[bytes]]


class _Stamps(Columns):
    stamp: Amounts


class SummaryCache:
    """One text per tree, at most so many bytes in all (and those of one answer more)."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._forget()

    def forget(self) -> None:
        """Forget all texts, so that they are written anew."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        self._stamps = _Stamps({"stamp": (np.int64, _NEVER)})
        # Beside the stamps: looking thousands of them up in a dict takes longer than joining them.
        self._texts: TextList = np.empty(0, object)
        self._bytes = 0

    def _ensure(self, rows: int) -> None:
        self._stamps.ensure(rows)
        missing = self._stamps.capacity - len(self._texts)
        if missing:
            self._texts = np.concatenate([self._texts, np.empty(missing, object)])

    def of(self, forest: Forest, roots: Indices, write: Writer) -> list[bytes]:
        """The texts of the trees; `write` is asked for those that changed since they were written."""
        present = forest.providers.tree_stamp[roots]
        with self._lock:
            self._ensure(forest.count)
            stale = self._stamps.stamp[roots] != present
            texts = self._texts[roots].tolist()
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
            # Texts were forgotten meanwhile, or an answer from a newer snapshot was faster.
            self._ensure(int(roots.max()) + 1)
            newer = stamps > self._stamps.stamp[roots]
            for root, text, is_newer in zip(roots.tolist(), texts, newer.tolist(), strict=True):
                if is_newer:
                    self._bytes += len(text) - len(self._texts[root] or b"")
                    self._texts[root] = text
            self._stamps.stamp[roots[newer]] = stamps[newer]
