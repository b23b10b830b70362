"""The explanation of a search: how many passed each condition, where none was left, what came closest.

Worked out from the trace that the search's own stages left; there is no second search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from placement.explain.near_misses import Miss, NearMisses
from placement.explain.split_shortages import Alternative, alternative
from placement.forest.arrays import Indices, Rows
from placement.forest.forest import Forest
from placement.forest.sharing import Sharing
from placement.search.conditions import Condition, Fits
from placement.search.hosts import anchors_of
from placement.search.query import ForestQuery
from placement.search.trace import (
    Combines,
    ProvidersPassed,
    Trace,
    TreeCondition,
    TreesPassed,
)

MOST_MISSES = 5


@dataclass(frozen=True, slots=True)
class Stage:
    """How many providers, of how many trees, passed a condition, and of how many that came to it.

    `group` is the suffix, "" for the unsuffixed group, None for a condition on whole trees, where `providers`
    is None. To the first condition of a group come all that offer the resource class.
    """

    condition: Condition | TreeCondition
    group: str | None
    providers: int | None
    trees: int
    came: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """The stages in order, the place of the first that nothing passed, and what came closest there.

    `complete`: the search went through everything; else it stopped at its limit and the last stage counts
    what it had seen by then. `alternative`: where the amount of the first empty stage could be split.
    """

    stages: tuple[Stage, ...]
    first_empty: int | None
    misses: tuple[Miss, ...]
    complete: bool
    alternative: Alternative | None = None

    @property
    def providers(self) -> set[str]:
        """The uuids of the providers that are mentioned."""
        mentioned = {miss.provider for miss in self.misses}
        for miss in self.misses:
            mentioned |= {shortage.provider for shortage in miss.shortages if shortage.provider is not None}
        return mentioned | ({self.alternative.provider} if self.alternative else set())


def explain(
    forest: Forest, sharing: Sharing, query: ForestQuery, trace: Trace, most: int = MOST_MISSES
) -> Explanation:
    """The explanation of a search that has just ended on this very forest, with so many misses at most."""
    trees = [*trace.trees, TreesPassed(Combines(), _combined(forest, sharing, trace))]
    stages = [_stage_of_providers(forest, passed) for passed in trace.providers]
    stages += _stages_of_trees(forest, trees)
    empty = next((at for at, stage in enumerate(stages) if not stage.trees), None)
    misses: tuple[Miss, ...] = ()
    if empty is not None:
        near = NearMisses(forest, sharing, query, most)
        if empty < len(trace.providers):
            misses = tuple(near.providers(trace.providers[empty]))
        else:
            misses = tuple(near.trees(trees, empty - len(trace.providers)))
    condition = None if empty is None else stages[empty].condition
    other = None
    if isinstance(condition, Fits):
        other = alternative(forest, sharing, condition.class_id, condition.amount)
    return Explanation(tuple(stages), empty, misses, trace.complete, other)


def _stage_of_providers(forest: Forest, passed: ProvidersPassed) -> Stage:
    trees = _number_of_trees(forest, passed.rows)
    return Stage(passed.condition, passed.group.suffix, len(passed.rows), trees, _came_to(forest, passed))


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


def _stages_of_trees(forest: Forest, trees: Sequence[TreesPassed]) -> Iterator[Stage]:
    came = int((forest.alive() & (forest.providers.parent[: forest.count] < 0)).sum())
    for passed in trees:
        yield Stage(passed.condition, None, None, len(passed.roots), came)
        came = len(passed.roots)
