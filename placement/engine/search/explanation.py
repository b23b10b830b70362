"""The explanation of a search: how many passed each condition, where none was left, what came closest.

It is worked out from the trace that the stages of the search left; there is no second search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

import numpy as np

from placement.engine.domain.explanation import (
    MOST_MISSES,
    Alternative,
    CountedUnit,
    Explanation,
    Miss,
    Reason,
    Shortage,
    Stage,
    first_empty,
)
from placement.engine.forest.arrays import Amounts, Indices, Rows, Shares, to_text
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import Sharing
from placement.engine.search.filters import at_admitted_roots, flags_of
from placement.engine.search.query import (
    AllGroups,
    Carries,
    Combines,
    Exists,
    Fits,
    ForestQuery,
    InTree,
    IsCoreTree,
    IsIn,
    ProviderCondition,
    ProvidersPassed,
    Together,
    Trace,
    TreeCondition,
    TreesPassed,
    Vocabulary,
    split,
)
from placement.engine.search.ranking import anchors_of
from placement.engine.search.shortages import Shortages

_Places = TypeVar("_Places", Rows, Indices)


def explain(
    forest: Forest,
    sharing: Sharing,
    query: ForestQuery,
    trace: Trace,
    words: Vocabulary,
    most: int = MOST_MISSES,
) -> Explanation:
    """Return the explanation of a search just ended on this very forest, with up to `most` misses.

    Providers are named by their uuids.
    """
    trees = [*_whole_groups(trace.trees), TreesPassed(Combines(), _combined(forest, sharing, trace))]
    providers = [_stage_of_providers(forest, passed, words) for passed in trace.providers]
    roots = int((forest.alive() & (forest.providers.parent[: forest.count] < 0)).sum())
    left = [roots, *(len(passed.roots) for passed in trees)]
    stages = (
        *providers,
        *(
            Stage(words.stated(passed.condition), CountedUnit.TREES, came, after, after)
            for passed, came, after in zip(trees, left, left[1:], strict=False)
        ),
    )
    empty = first_empty(stages)
    if empty is None:
        return Explanation(stages, complete=trace.complete)
    near = NearMisses(forest, sharing, query, words, most)
    if empty < len(providers):
        misses = near.providers(trace.providers[empty])
    else:
        misses = near.trees(trees, empty - len(providers))
    amounts = (passed.condition for passed in trace.providers if isinstance(passed.condition, Fits))
    elsewhere = (_alternative(forest, sharing, query, wanted, words) for wanted in amounts)
    return Explanation(stages, tuple(misses), trace.complete, alternative=next(filter(None, elsewhere), None))


def _stage_of_providers(forest: Forest, passed: ProvidersPassed, words: Vocabulary) -> Stage:
    condition, rows = passed.condition, passed.rows
    came = len(rows if passed.before is None else passed.before)
    if passed.before is None and isinstance(condition, Fits):
        came = len(forest.column(condition.class_id).occupied())
    trees = len(rows)
    if not forest.is_flat:
        trees = int(np.count_nonzero(flags_of(forest.count, forest.roots_of(rows))))
    group = passed.group.suffix
    return Stage(words.stated(condition), CountedUnit.PROVIDERS, came, len(rows), trees, group)


def _whole_groups(trees: Sequence[TreesPassed]) -> Iterator[TreesPassed]:
    """Yield the conditions on trees, one for each group, also if several classes were looked for apart."""
    for _, several in groupby(trees, key=lambda each: each.condition):
        *before, last = several
        for each in before:
            if last.alone is not None and each.alone is not None:
                last = replace(last, alone=last.alone & each.alone)
        yield last


def _combined(forest: Forest, sharing: Sharing, trace: Trace) -> Indices:
    """Return the roots of the trees of the candidates found."""
    if trace.candidates is None or not len(trace.candidates):
        return np.empty(0, np.int32)
    roots = np.unique(anchors_of(forest, sharing.mask(forest.count), trace.candidates))
    # Sharing providers of several trees have no common tree; they stand for one that they serve.
    return roots[: len(trace.trees[-1].roots)]


def _alternative(
    forest: Forest, sharing: Sharing, query: ForestQuery, wanted: Fits, words: Vocabulary
) -> Alternative | None:
    """Return where providers could split an amount that none has room for: below one parent, or in a tree.

    Only trees with a root that the query admits count.
    """
    column, amount = forest.column(wanted.class_id), wanted.amount
    rows = column.entries.provider[column.occupied()].astype(np.intp)
    rows = at_admitted_roots(forest, query, rows[~np.isin(rows, sharing.providers)])
    if np.isin(column.fitting(amount), np.concatenate([rows, sharing.providers])).any():
        return None
    room = np.maximum(column.headroom(rows), 0)
    parents = forest.providers.parent[rows]
    for tops in (np.where(parents >= 0, parents, rows), forest.roots_of(rows)):
        free = np.zeros(forest.count, np.int64)
        np.add.at(free, tops, room)
        if len(rows) and free.max() >= amount:
            # Among equals the first by its id: rows differ from process to process.
            fullest = np.flatnonzero(free == free.max())
            top = int(fullest[np.argmin(forest.providers.id[fullest])])
            givers = int(np.count_nonzero(room[tops == top]))
            uuid = to_text(forest.providers.uuid[[top]])[0]
            return Alternative(uuid, words.resource_class(wanted.class_id), amount, int(free[top]), givers)
    return None


# The providers or trees closest to a condition that none met, and what they lack.


@dataclass(frozen=True, slots=True)
class NearMisses:
    """The `most` nearest misses of one search, without hosts that the query rules out by their root."""

    _forest: Forest
    _sharing: Sharing
    _query: ForestQuery
    _words: Vocabulary
    _most: int

    def providers(self, passed: ProvidersPassed) -> Iterator[Miss]:
        """Yield the providers that met all conditions before; for amounts, the ones that lack the least."""
        if isinstance(passed.condition, Fits):
            yield from self._by_amount(passed, passed.condition)
        elif passed.before is not None and not isinstance(passed.condition, Exists):
            rows = self._in_order(at_admitted_roots(self._forest, self._query, passed.before))
            yield from self._failing(passed.condition, rows[: self._most])

    def _by_amount(self, passed: ProvidersPassed, wanted: Fits) -> Iterator[Miss]:
        column = self._forest.column(wanted.class_id)
        rows = passed.before
        if rows is None:
            rows = column.entries.provider[column.occupied()].astype(np.intp)
        rows = self._in_order(at_admitted_roots(self._forest, self._query, rows))
        free = column.free_of(rows)
        missing = np.maximum(wanted.amount - free, 0)
        nearest = _smallest(missing, self._most)
        uuids = self._uuids(rows[nearest])
        name = self._words.resource_class(wanted.class_id)
        for uuid, lack, left in zip(uuids, missing[nearest].tolist(), free[nearest].tolist(), strict=True):
            reason, groups = Reason.AMOUNT if lack else Reason.UNITS, (passed.group.suffix,)
            yield Miss(uuid, (Shortage(reason, groups, uuid, name, wanted.amount, max(left, 0), lack),))

    def trees(self, trees: Sequence[TreesPassed], empty: int) -> Iterator[Miss]:
        """Yield the trees that can serve most groups, or that met all conditions before the empty one."""
        condition = trees[empty].condition
        if isinstance(condition, AllGroups):
            yield from self._by_groups(trees)
        elif isinstance(condition, Combines):
            shortages = Shortages(self._forest, self._sharing, self._query, self._words)
            roots = self._in_order(trees[empty - 1].roots)
            roots = roots[_smallest(shortages.distances(roots), self._most)]
            for root, uuid in zip(roots.tolist(), self._uuids(roots), strict=True):
                yield Miss(uuid, shortages=shortages.of(root))
        elif not isinstance(condition, IsCoreTree):
            yield from self._failing(condition, self._in_order(trees[empty - 1].roots)[: self._most])

    def _by_groups(self, trees: Sequence[TreesPassed]) -> Iterator[Miss]:
        """Yield the trees that can serve most groups; among equals, the trees that lack the least."""
        groups = {
            passed.condition.suffix: passed.alone
            for passed in trees
            if isinstance(passed.condition, AllGroups) and passed.alone is not None
        }
        present = np.stack(list(groups.values()))
        served = present.sum(axis=0)
        roots = self._in_order(at_admitted_roots(self._forest, self._query, np.flatnonzero(served)))
        if not len(roots):
            return
        lacks = len(groups) - served[roots]
        near = lacks <= np.sort(lacks[_smallest(lacks, self._most)])[-1]
        roots, lacks = roots[near].astype(np.int32), lacks[near]
        shortages = Shortages(self._forest, self._sharing, self._query, self._words)
        nearest = np.lexsort((shortages.distances(roots), lacks))[: self._most]
        for root, uuid in zip(roots[nearest].tolist(), self._uuids(roots[nearest]), strict=True):
            lacking = (suffix for suffix, there in zip(groups, present[:, root], strict=True) if not there)
            yield Miss(uuid, lacking_groups=tuple(lacking), shortages=shortages.of(root))

    def _uuids(self, rows: Rows | Indices) -> list[str]:
        return to_text(self._forest.providers.uuid[rows])

    def _in_order(self, rows: _Places) -> _Places:
        """Return providers in order of ids, so that every process picks the same ones among equals.

        Rows of deleted providers are used again, so rows are only nearly in that order: hence a stable sort.
        """
        return rows[np.argsort(self._forest.providers.id[rows], kind="stable")]

    def _failing(self, condition: ProviderCondition | TreeCondition, rows: Rows | Indices) -> Iterator[Miss]:
        """Yield providers that fail a condition, with the names it lacks and the names it has too much."""
        lacks = self._lacks(condition, rows)
        if isinstance(condition, IsIn) and condition.or_root:
            # A provider in aggregate A with its root in B meets each part, though one of the two needs both.
            by_itself = self._lacks(replace(condition, or_root=False), rows)
            lacks = [these if any(these) else own for these, own in zip(lacks, by_itself, strict=True)]
        for uuid, (names, others) in zip(self._uuids(rows), lacks, strict=True):
            yield Miss(uuid, lacking=tuple(names), unwanted=tuple(others))

    def _lacks(
        self, condition: ProviderCondition | TreeCondition, rows: Rows | Indices
    ) -> list[tuple[list[str], list[str]]]:
        """Return for each row the names that it lacks and the names it has too much, part by part."""
        parts: Iterable[Carries | IsIn | InTree | Together] = ()
        if isinstance(condition, Carries | IsIn):
            parts = split(condition)
        elif isinstance(condition, InTree | Together):
            parts = (condition,)
        lacks: list[tuple[list[str], list[str]]] = [([], []) for _ in rows]
        for part in parts:
            asked = self._words.stated(part)
            failed: Iterable[int] = range(len(rows))
            if not isinstance(part, Together):
                failed = np.flatnonzero(~part.among(self._forest, rows)).tolist()
            for at in failed:
                lacks[at][0].extend(name for any_of in asked.required for name in any_of)
                lacks[at][1].extend(asked.forbidden)
        return lacks


def _smallest(values: Amounts | Shares, count: int) -> Rows:
    """Return the places of the smallest values, ties in order of place, without sorting the rest."""
    if len(values) > count:
        bound = np.partition(values, count - 1)[count - 1]
        below = np.flatnonzero(values < bound)
        places = np.concatenate([below, np.flatnonzero(values == bound)[: count - len(below)]])
    else:
        places = np.arange(len(values))
    return places[np.lexsort((places, values[places]))]
