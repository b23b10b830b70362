"""The providers or trees closest to a condition that none met, and what they lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from placement.domain.explanation import Miss, Reason, Shortage
from placement.explain.shortages import Shortages
from placement.explain.vocabulary import Vocabulary
from placement.forest.arrays import (
    Amounts,
    Indices,
    Rows,
    Shares,
)
from placement.forest.forest import Forest
from placement.forest.sharing import Sharing
from placement.forest.uuids import to_text
from placement.search.anchors import at_admitted_roots
from placement.search.conditions import Carries, Condition, Exists, Fits, InTree, IsIn
from placement.search.core_trees import IsCoreTree
from placement.search.query import ForestQuery
from placement.search.trace import (
    AllGroups,
    Combines,
    ProvidersPassed,
    RootCarries,
    RootIsIn,
    Together,
    TreeCondition,
    TreesPassed,
)

_Part = Carries | IsIn | RootCarries | RootIsIn | InTree
_Places = TypeVar("_Places", Rows, Indices)


class NearMisses:
    """The `most` nearest misses of one search, without hosts that the query rules out by their root."""

    def __init__(
        self, forest: Forest, sharing: Sharing, query: ForestQuery, words: Vocabulary, most: int
    ) -> None:
        self._forest = forest
        self._uuids = forest.providers.uuid
        self._sharing = sharing
        self._query = query
        self._words = words
        self._most = most

    def providers(self, passed: ProvidersPassed) -> Iterator[Miss]:
        """The providers that met all conditions before; for amounts, those that lack least."""
        if isinstance(passed.condition, Fits):
            yield from self._by_amount(passed)
        elif passed.before is not None and not isinstance(passed.condition, Exists):
            rows = self._in_order(at_admitted_roots(self._forest, self._query, passed.before))
            yield from self._failing(passed.condition, rows[: self._most])

    def _by_amount(self, passed: ProvidersPassed) -> Iterator[Miss]:
        wanted = passed.condition
        assert isinstance(wanted, Fits)
        column = self._forest.column(wanted.class_id)
        rows = passed.before
        if rows is None:
            rows = column.entries.provider[column.occupied()].astype(np.intp)
        rows = self._in_order(at_admitted_roots(self._forest, self._query, rows))
        free = column.free_of(rows)
        missing = np.maximum(wanted.amount - free, 0)
        nearest = _smallest(missing, self._most)
        uuids = to_text(self._uuids[rows[nearest]])
        name = self._words.resource_class(wanted.class_id)
        for uuid, lack, left in zip(uuids, missing[nearest].tolist(), free[nearest].tolist(), strict=True):
            reason, groups = Reason.AMOUNT if lack else Reason.UNITS, (passed.group.suffix,)
            yield Miss(uuid, (Shortage(reason, groups, uuid, name, wanted.amount, max(left, 0), lack),))

    def trees(self, trees: Sequence[TreesPassed], empty: int) -> Iterator[Miss]:
        """The trees that can serve most groups, or that met all conditions before the empty one."""
        condition = trees[empty].condition
        if isinstance(condition, AllGroups):
            yield from self._by_groups([tree for tree in trees if isinstance(tree.condition, AllGroups)])
        elif isinstance(condition, Combines):
            shortages = Shortages(self._forest, self._sharing, self._query, self._words)
            roots = self._in_order(trees[empty - 1].roots)
            roots = roots[_smallest(shortages.distances(roots), self._most)]
            for root, uuid in zip(roots.tolist(), to_text(self._uuids[roots]), strict=True):
                yield Miss(uuid, shortages=shortages.of(root))
        elif not isinstance(condition, IsCoreTree):
            yield from self._failing(condition, self._in_order(trees[empty - 1].roots)[: self._most])

    def _in_order(self, rows: _Places) -> _Places:
        """Return providers in order of ids, so that every process names the same ones of equal ones.

        Rows of deleted providers are used again, so rows are only nearly in that order: hence a stable sort.
        """
        return rows[np.argsort(self._forest.providers.id[rows], kind="stable")]

    def _failing(self, condition: Condition | TreeCondition, rows: Rows | Indices) -> Iterator[Miss]:
        """Providers that do not meet a condition, each with what it lacks and what it has too much."""
        lacks = self._lacks(condition, rows)
        if isinstance(condition, IsIn) and condition.or_root:
            # A provider in aggregate A with its root in B meets either, though one of them needs both.
            by_itself = self._lacks(replace(condition, or_root=False), rows)
            lacks = [these if any(these) else own for these, own in zip(lacks, by_itself, strict=True)]
        for uuid, (names, others) in zip(to_text(self._uuids[rows]), lacks, strict=True):
            yield Miss(uuid, lacking=tuple(names), unwanted=tuple(others))

    def _lacks(
        self, condition: Condition | TreeCondition, rows: Rows | Indices
    ) -> list[tuple[list[str], list[str]]]:
        """Return for each row the names that it lacks and those it has too much, part by part."""
        lacks: list[tuple[list[str], list[str]]] = [([], []) for _ in rows]
        for part in _parts(condition):
            asked = self._words.condition(part)
            failed = range(len(rows)) if isinstance(part, Together) else self._failed(part, rows)
            for at in failed:
                lacks[at][0].extend(name for any_of in asked.required for name in any_of)
                lacks[at][1].extend(asked.forbidden)
        return lacks

    def _failed(self, part: _Part, rows: Rows | Indices) -> list[int]:
        if isinstance(part, RootCarries | RootIsIn):
            met = part.among(self._forest, rows.astype(np.int32))
        else:
            met = part.among(self._forest, rows.astype(np.intp))
        failed: list[int] = np.flatnonzero(~met).tolist()
        return failed

    def _by_groups(self, groups: Sequence[TreesPassed]) -> Iterator[Miss]:
        """The trees that can serve most groups; of equal ones, those that lack least."""
        present = np.zeros((len(groups), self._forest.count), bool)
        for at, passed in enumerate(groups):
            present[at] = passed.alone
        served = present.sum(axis=0)
        roots = self._in_order(at_admitted_roots(self._forest, self._query, np.flatnonzero(served)))
        if not len(roots):
            return
        lacks = len(groups) - served[roots]
        near = lacks <= np.sort(lacks[_smallest(lacks, self._most)])[-1]
        roots, lacks = roots[near].astype(np.int32), lacks[near]
        shortages = Shortages(self._forest, self._sharing, self._query, self._words)
        nearest = np.lexsort((shortages.distances(roots), lacks))[: self._most]
        suffixes = [passed.condition.suffix for passed in groups if isinstance(passed.condition, AllGroups)]
        for root, uuid in zip(roots[nearest].tolist(), to_text(self._uuids[roots[nearest]]), strict=True):
            lacking = (suffix for suffix, there in zip(suffixes, present[:, root], strict=True) if not there)
            yield Miss(uuid, lacking_groups=tuple(dict.fromkeys(lacking)), shortages=shortages.of(root))


def _parts(condition: Condition | TreeCondition) -> Iterator[_Part | Together]:
    """What of a condition can be lacking by itself."""
    if isinstance(condition, Carries | IsIn | RootCarries | RootIsIn):
        yield from (
            replace(condition, required=(any_of,), forbidden=frozenset()) for any_of in condition.required
        )
        for id_ in sorted(condition.forbidden):
            yield replace(condition, required=(), forbidden=frozenset((id_,)))
    elif isinstance(condition, InTree | Together):
        yield condition


def _smallest(values: Amounts | Shares, count: int) -> Rows:
    """The places of the smallest values, ties in order of place, without sorting the rest."""
    if len(values) > count:
        bound = np.partition(values, count - 1)[count - 1]
        below = np.flatnonzero(values < bound)
        places = np.concatenate([below, np.flatnonzero(values == bound)[: count - len(below)]])
    else:
        places = np.arange(len(values))
    return places[np.lexsort((places, values[places]))]
