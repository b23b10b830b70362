"""The traits that providers carry (or the aggregates that they are in), dictionary-encoded.

Providers share few distinct sets: each provider stores the number of its set, each trait the numbers of the
sets that have it. A condition is decided once per distinct set and then gathered to the providers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from placement.engine.forest.arrays import Columns, Indices, Mask, Rows, column_of, twin_of

_EMPTY_SET, _UNKNOWN_SET = 0, -1


class _SetNumbers(Columns):
    number: Indices = column_of(np.int32, _EMPTY_SET)


class Memberships:
    """A store of the sets of ids (traits or aggregates) that providers carry."""

    def __init__(self) -> None:
        self._numbers = _SetNumbers()
        self._sets: list[frozenset[int]] = [frozenset()]
        self._number_of: dict[frozenset[int], int] = {frozenset(): _EMPTY_SET}
        self._uses: list[int] = [0]
        self._free: list[int] = []
        self._with: dict[int, set[int]] = {}
        self._sets_are_shared = False

    def frozen(self) -> Memberships:
        """Return a view of the memberships as they are now; it never changes."""
        self._sets_are_shared = True
        twin = twin_of(self)
        twin._numbers = self._numbers.frozen()
        return twin

    def unshare(self) -> None:
        """Note that no snapshot is in use, so that writing need not copy."""
        self._numbers.is_shared = self._sets_are_shared = False

    def _own_sets(self) -> None:
        if self._sets_are_shared:
            self._sets = list(self._sets)
            self._with = {member: set(numbers) for member, numbers in self._with.items()}
            self._sets_are_shared = False

    def repeat(self, source: Rows, rows: Rows) -> None:
        """Give new rows the sets of the sources; not in a forest that is fed."""
        self._numbers.own()
        self.ensure(int(rows[-1]) + 1)
        self._numbers.number[rows] = self._numbers.number[source]

    def clear(self, rows: Rows) -> None:
        """Empty the sets of rows; not in a forest that is fed."""
        self._numbers.own()
        self._numbers.number[rows] = _EMPTY_SET

    def ensure(self, rows: int) -> None:
        """Make room for `rows` providers."""
        self._numbers.ensure(rows)

    def of(self, row: int) -> frozenset[int]:
        """Return the set of one provider."""
        return self._sets[int(self._numbers.number[row])]

    @property
    def numbers(self) -> Indices:
        """The number of the set of each row; `sets` has the sets."""
        return self._numbers.number

    @property
    def bytes(self) -> int:
        """The memory of the columns."""
        return self._numbers.bytes

    @property
    def sets(self) -> Sequence[frozenset[int]]:
        """The distinct sets by their numbers."""
        return self._sets

    def assign(self, row: int, ids: frozenset[int]) -> None:
        """Give one provider its set."""
        self.assign_all(np.array([row]), np.array([0]), [ids])

    def assign_all(self, rows: Rows, which: Rows, sets: Sequence[frozenset[int]]) -> bool:
        """Give `rows[i]` the set `sets[which[i]]`, each row once; return whether any set changed."""
        wanted = np.array([self._number_of.get(ids, _UNKNOWN_SET) for ids in sets], np.int32)
        changed = self._numbers.number[rows] != wanted[which]
        rows, which = rows[changed], which[changed]
        if not len(rows):
            return False
        assigned, uses = np.unique(which, return_counts=True)
        for at, count in zip(assigned.tolist(), uses.tolist(), strict=True):
            wanted[at] = self._intern(sets[at])
            self._uses[wanted[at]] += count
        former, uses = np.unique(self._numbers.number[rows], return_counts=True)
        self._numbers.own()
        self._numbers.number[rows] = wanted[which]
        for number, count in zip(former.tolist(), uses.tolist(), strict=True):
            self._release(number, count)
        return True

    def load(self, rows: Rows, ids: Indices) -> None:
        """Give providers without sets theirs, from pairs of row and id; the pairs of a row come at once."""
        order = np.lexsort((ids, rows))
        rows, ids = rows[order], ids[order]
        if not len(rows):
            return
        starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
        ends = np.r_[starts[1:], len(rows)]
        # Providers share few sets, and bytes are compared faster than sets are made.
        content, size = ids.tobytes(), ids.itemsize
        numbers: dict[bytes, int] = {}
        which = []
        for start, end in zip((starts * size).tolist(), (ends * size).tolist(), strict=True):
            packed = content[start:end]
            number = numbers.get(packed)
            if number is None:
                members = np.frombuffer(packed, ids.dtype).tolist()
                number = numbers[packed] = self._intern(frozenset(members))
            which.append(number)
        self._numbers.number[rows[starts]] = which
        for number, uses in zip(*np.unique(which, return_counts=True), strict=True):
            self._uses[number] += int(uses)

    def _intern(self, ids: frozenset[int]) -> int:
        number = self._number_of.get(ids)
        if number is None:
            self._own_sets()
            if self._free:
                number = self._free.pop()
                self._sets[number] = ids
            else:
                number = len(self._sets)
                self._sets.append(ids)
                self._uses.append(0)
            self._number_of[ids] = number
            for member in ids:
                self._with.setdefault(member, set()).add(number)
        return number

    def _release(self, number: int, uses: int = 1) -> None:
        if number == _EMPTY_SET:
            return
        self._uses[number] -= uses
        if self._uses[number]:
            return
        self._own_sets()
        ids = self._sets[number]
        del self._number_of[ids]
        for member in ids:
            self._with[member].discard(number)
        self._sets[number] = frozenset()
        self._free.append(number)

    def _sets_with(self, ids: Iterable[int]) -> Mask:
        found = np.zeros(len(self._sets), bool)
        for member in ids:
            numbers = self._with.get(member)
            if numbers:
                found[list(numbers)] = True
        return found

    def satisfying(
        self, rows: Indices | Rows, required: Iterable[Iterable[int]], forbidden: Iterable[int] = ()
    ) -> Mask:
        """Return the mask of the rows that meet every any-of set of `required` and have none `forbidden`."""
        fine = ~self._sets_with(forbidden)
        for any_of in required:
            fine &= self._sets_with(any_of)
        if fine.all():
            return np.ones(len(rows), bool)
        return fine[self._numbers.number[rows]]

    def rows_with(self, ids: Iterable[int], count: int) -> Indices:
        """Return all of the first `count` rows that carry at least one of the ids, ascending."""
        found = self._sets_with(ids)
        if not found.any():
            return np.empty(0, np.int32)
        return np.flatnonzero(found[self._numbers.number[:count]]).astype(np.int32)
