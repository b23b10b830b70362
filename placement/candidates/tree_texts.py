"""Texts about trees, kept as long as nothing in the tree changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placement.candidates.arrays import Amounts, Columns, Indices
from placement.candidates.forest import Forest

_NEVER = -1
Writer = Callable[[Indices], list[bytes]]


class _Stamps(Columns):
    stamp: Amounts


class TreeTexts:
    """One text per tree, at most so many bytes in all (and those of one answer more)."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.forget()

    def forget(self) -> None:
        """Write everything anew."""
        self._stamps = _Stamps({"stamp": (np.int64, _NEVER)})
        self._texts: dict[int, bytes] = {}
        self._bytes = 0

    def of(self, forest: Forest, roots: Indices, write: Writer) -> list[bytes]:
        """The texts of the trees; `write` is asked for those that changed since they were written."""
        if self._bytes > self._most_bytes:
            self.forget()
        self._stamps.ensure(forest.count)
        present = forest.providers.tree_stamp[roots]
        stale = roots[self._stamps.stamp[roots] != present]
        if len(stale):
            for root, text in zip(stale.tolist(), write(stale), strict=True):
                self._bytes += len(text) - len(self._texts.get(root, b""))
                self._texts[root] = text
            self._stamps.stamp[roots] = present
        return list(map(self._texts.__getitem__, roots.tolist()))
