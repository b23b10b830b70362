"""The explanation of a search: how many passed each condition, where none was left, what came closest.

Worked out from the trace that the search's own stages left; there is no second search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from placement.domain.explanation import (
    MOST_MISSES,
    Alternative,
    Counted,
    Explanation,
    Miss,
    Stage,
    first_empty,
)
from placement.explain.near_misses import NearMisses
from placement.explain.split_shortages import alternative
from placement.explain.vocabulary import Vocabulary
from placement.forest.arrays import Indices, Rows
from placement.forest.forest import Forest
from placement.forest.sharing import Sharing
from placement.search.conditions import Fits
from placement.search.hosts import anchors_of
from placement.search.query import ForestQuery
from placement.search.trace import (
    Combines,
    ProvidersPassed,
    Trace,
    TreesPassed,
)


def explain(
    forest: Forest,
    sharing: Sharing,
    query: ForestQuery,
    trace: Trace,
    words: Vocabulary,
    most: int = MOST_MISSES,
) -> Explanation:
    """The explanation of a search that has just ended on this very forest, with so many misses at most.

    Providers stay uuids.
    """
    trees = [*_whole_groups(trace.trees), TreesPassed(Combines(), _combined(forest, sharing, trace))]
    stages = (
        *(_stage_of_providers(forest, passed, words) for passed in trace.providers),
        *_stages_of_trees(forest, trees, words),
    )
    empty = first_empty(stages)
    misses: tuple[Miss, ...] = ()
    if empty is not None:
        near = NearMisses(forest, sharing, query, words, most)
        if empty < len(trace.providers):
            misses = tuple(near.providers(trace.providers[empty]))
        else:
            misses = tuple(near.trees(trees, empty - len(trace.providers)))
    other = None if empty is None else _alternative(forest, sharing, query, trace, words)
    return Explanation(stages, misses, trace.complete, alternative=other)


def _whole_groups(trees: Sequence[TreesPassed]) -> Iterator[TreesPassed]:
    """The conditions on trees, with one for each group, also if several classes were looked for apart."""
    for _, several in groupby(trees, key=lambda each: each.condition):
        *before, last = several
        for each in before:
            if last.alone is not None and each.alone is not None:
                last = replace(last, alone=last.alone & each.alone)
        yield last


def _alternative(
    forest: Forest, sharing: Sharing, query: ForestQuery, trace: Trace, words: Vocabulary
) -> Alternative | None:
    """Where the first amount that nobody has room for could be split."""
    for passed in trace.providers:
        if isinstance(passed.condition, Fits):
            name = words.resource_class(passed.condition.class_id)
            found = alternative(forest, sharing, query, passed.condition, name)
            if found is not None:
                return found
    return None


def _stage_of_providers(forest: Forest, passed: ProvidersPassed, words: Vocabulary) -> Stage:
    return Stage(
        words.condition(passed.condition),
        Counted.PROVIDERS,
        came=_came_to(forest, passed),
        passed=len(passed.rows),
        trees=_number_of_trees(forest, passed.rows),
        group=passed.group.suffix,
    )


def _number_of_trees(forest: Forest, rows: Rows) -> int:
    if forest.is_flat:
        return len(rows)
    seen = np.zeros(forest.count, bool)
    seen[forest.roots_of(rows)] = True
    return int(np.count_nonzero(seen))


def _came_to(forest: Forest, passed: ProvidersPassed) -> int:
    if passed.before is not None:
        return len(passed.before)
    if isinstance(passed.condition, Fits):
        return len(forest.column(passed.condition.class_id).occupied())
    return len(passed.rows)


def _combined(forest: Forest, sharing: Sharing, trace: Trace) -> Indices:
    """The roots of the trees of the candidates found."""
    if trace.candidates is None or not len(trace.candidates):
        return np.empty(0, np.int32)
    roots = np.unique(anchors_of(forest, sharing.mask(forest.count), trace.candidates))
    # Sharing providers of several trees have no tree of their own; they stand for one they serve.
    return roots[: len(trace.trees[-1].roots)]


def _stages_of_trees(forest: Forest, trees: Sequence[TreesPassed], words: Vocabulary) -> Iterator[Stage]:
    came = int((forest.alive() & (forest.providers.parent[: forest.count] < 0)).sum())
    for passed in trees:
        left = len(passed.roots)
        yield Stage(words.condition(passed.condition), Counted.TREES, came, left, left)
        came = left
