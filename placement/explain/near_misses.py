"""The providers or trees closest to a condition that none met, and what they lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from placement.explain.shortages import Shortage, Shortages
from placement.forest.arrays import (
    Amounts,
    Indices,
    Rows,
    Shares,
)
from placement.forest.forest import Forest
from placement.forest.sharing import Sharing
from placement.forest.uuids import to_text
from placement.search.anchors import root_conditions
from placement.search.conditions import Exists, Fits
from placement.search.query import ForestQuery, slots_of
from placement.search.trace import (
    AllGroups,
    Combines,
    ProvidersPassed,
    TreesPassed,
)


@dataclass(frozen=True, slots=True)
class Miss:
    """A provider (for conditions on trees: a root) that failed the first empty condition narrowly.

    `missing`: units of `class_id` it lacks of those wanted, 0 if it has room but the amount breaks its units.
    `lacking`: the suffixes of the groups that no provider of the tree serves; `shortages`: all it lacks.
    """

    provider: str
    class_id: int | None = None
    wanted: int = 0
    missing: int = 0
    free: int = 0
    lacking: tuple[str, ...] = ()
    shortages: tuple[Shortage, ...] = ()


class NearMisses:
    """The `most` nearest misses of one search, without hosts that the query rules out by their root."""

    def __init__(self, forest: Forest, sharing: Sharing, query: ForestQuery, most: int) -> None:
        self._forest = forest
        self._sharing = sharing
        self._query = query
        self._most = most

    def providers(self, passed: ProvidersPassed) -> Iterator[Miss]:
        """The providers that met all conditions before; for amounts, those that lack least."""
        if isinstance(passed.condition, Fits):
            yield from self._by_amount(passed.condition, passed.before)
        elif passed.before is not None and not isinstance(passed.condition, Exists):
            rows = self._at_allowed_roots(passed.before)[: self._most]
            yield from map(Miss, _uuids(self._forest, rows))

    def _by_amount(self, wanted: Fits, before: Rows | None) -> Iterator[Miss]:
        column = self._forest.column(wanted.class_id)
        rows = column.slots.provider[column.occupied()].astype(np.intp) if before is None else before
        rows = self._at_allowed_roots(rows)
        free = column.free_of(rows)
        missing = np.maximum(wanted.amount - free, 0)
        nearest = _smallest(missing, self._most)
        uuids = _uuids(self._forest, rows[nearest])
        for uuid, lack, left in zip(uuids, missing[nearest].tolist(), free[nearest].tolist(), strict=True):
            yield Miss(uuid, wanted.class_id, wanted.amount, lack, left)

    def _at_allowed_roots(self, rows: Rows) -> Rows:
        for condition in root_conditions(self._query, slots_of(self._query)):
            rows = rows[condition.among(self._forest, self._forest.roots_of(rows).astype(np.int32))]
        return rows

    def trees(self, trees: Sequence[TreesPassed], empty: int) -> Iterator[Miss]:
        """The trees that can serve most groups, or that met all conditions before the empty one."""
        condition = trees[empty].condition
        if isinstance(condition, AllGroups):
            yield from self._by_groups([tree for tree in trees if isinstance(tree.condition, AllGroups)])
        elif isinstance(condition, Combines):
            shortages = Shortages(self._forest, self._sharing, self._query)
            roots = trees[empty - 1].roots
            roots = roots[_smallest(shortages.distances(roots), self._most)]
            for root, uuid in zip(roots.tolist(), _uuids(self._forest, roots), strict=True):
                yield Miss(uuid, shortages=shortages.of(root))
        else:
            yield from map(Miss, _uuids(self._forest, trees[empty - 1].roots[: self._most]))

    def _by_groups(self, groups: Sequence[TreesPassed]) -> Iterator[Miss]:
        """The trees that can serve most groups; of equal ones, those that lack least."""
        present = np.zeros((len(groups), self._forest.count), bool)
        for at, passed in enumerate(groups):
            present[at] = passed.alone
        served = present.sum(axis=0)
        roots = self._at_allowed_roots(np.flatnonzero(served))
        if not len(roots):
            return
        lacks = len(groups) - served[roots]
        near = lacks <= np.sort(lacks[_smallest(lacks, self._most)])[-1]
        roots, lacks = roots[near].astype(np.int32), lacks[near]
        shortages = Shortages(self._forest, self._sharing, self._query)
        nearest = np.lexsort((shortages.distances(roots), lacks))[: self._most]
        suffixes = [passed.condition.suffix for passed in groups if isinstance(passed.condition, AllGroups)]
        for root, uuid in zip(roots[nearest].tolist(), _uuids(self._forest, roots[nearest]), strict=True):
            lacking = (suffix for suffix, there in zip(suffixes, present[:, root], strict=True) if not there)
            yield Miss(uuid, lacking=tuple(dict.fromkeys(lacking)), shortages=shortages.of(root))


def _smallest(values: Amounts | Shares, count: int) -> Rows:
    """The places of the smallest values, ties in order of place, without sorting the rest."""
    if len(values) > count:
        bound = np.partition(values, count - 1)[count - 1]
        below = np.flatnonzero(values < bound)
        places = np.concatenate([below, np.flatnonzero(values == bound)[: count - len(below)]])
    else:
        places = np.arange(len(values))
    return places[np.lexsort((places, values[places]))]


def _uuids(forest: Forest, rows: Indices | Rows) -> list[str]:
    return [uuid.decode() for uuid in to_text(forest.providers.uuid[rows])]
