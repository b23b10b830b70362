"""Why a search found what it found: how many passed each condition, where none was left, who came closest.

Worked out from the trail that the search's own stages left; there is no second search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from placement.candidates.arrays import Amounts, Indices, Rows
from placement.candidates.conditions import Condition, Exists, Fits
from placement.candidates.forest import Forest
from placement.candidates.hosts import anchors_of
from placement.candidates.inventory_column import InventoryColumn
from placement.candidates.sharing import Sharing
from placement.candidates.trail import (
    AllGroups,
    Combines,
    ProvidersPassed,
    Trail,
    TreeCondition,
    TreesPassed,
)
from placement.candidates.uuids import to_text

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
class Miss:
    """A provider (for conditions on trees: a root) that failed the first empty condition narrowly.

    `missing`: units of `class_id` it lacks, 0 if it has room but the amount breaks its units. `lacking`: the
    suffixes of the groups that a tree has nobody for.
    """

    provider: str
    class_id: int | None = None
    missing: int = 0
    free: int = 0
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """The stages in order, the place of the first that nothing passed, and who came closest there.

    `complete`: the search went through everything; else it stopped at its limit and the last stage counts
    what it had seen by then.
    """

    stages: tuple[Stage, ...]
    first_empty: int | None
    misses: tuple[Miss, ...]
    complete: bool


def explain(forest: Forest, sharing: Sharing, trail: Trail) -> Explanation:
    """The explanation of a search that has just ended on this very forest."""
    trees = [*trail.trees, TreesPassed(Combines(), _combined(forest, sharing, trail))]
    stages = [_stage_of_providers(forest, passed) for passed in trail.providers]
    stages += _stages_of_trees(forest, trees)
    empty = next((at for at, stage in enumerate(stages) if not stage.trees), None)
    misses: tuple[Miss, ...] = ()
    if empty is not None and empty < len(trail.providers):
        misses = tuple(_nearest_providers(forest, trail.providers[empty]))
    elif empty is not None:
        misses = tuple(_nearest_trees(forest, trees, empty - len(trail.providers)))
    return Explanation(tuple(stages), empty, misses, trail.complete)


def _stage_of_providers(forest: Forest, passed: ProvidersPassed) -> Stage:
    trees = _number_of_trees(forest, passed.rows)
    return Stage(passed.condition, passed.group.suffix, len(passed.rows), trees, _came_to(forest, passed))


def _number_of_trees(forest: Forest, rows: Rows) -> int:
    if forest.is_flat:
        return len(rows)
    seen = np.zeros(forest.count, bool)
    seen[forest.roots_of(rows)] = True
    return int(np.count_nonzero(seen))


def _smallest(values: Amounts, count: int) -> Rows:
    """The places of the smallest values, ties in order of place, without sorting the rest."""
    if len(values) > count:
        bound = np.partition(values, count - 1)[count - 1]
        below = np.flatnonzero(values < bound)
        places = np.concatenate([below, np.flatnonzero(values == bound)[: count - len(below)]])
    else:
        places = np.arange(len(values))
    return places[np.lexsort((places, values[places]))]


def _came_to(forest: Forest, passed: ProvidersPassed) -> int:
    if passed.before is not None:
        return len(passed.before)
    if isinstance(passed.condition, Fits):
        return len(forest.column(passed.condition.class_id).occupied())
    return len(passed.rows)


def _combined(forest: Forest, sharing: Sharing, trail: Trail) -> Indices:
    """The roots of the trees of the candidates found."""
    if trail.candidates is None or not len(trail.candidates):
        return np.empty(0, np.int32)
    roots = np.unique(anchors_of(forest, sharing.mask(forest.count), trail.candidates))
    # Sharing providers of several trees have no tree of their own; they stand for one they serve.
    return roots[: len(trail.trees[-1].roots)]


def _stages_of_trees(forest: Forest, trees: Sequence[TreesPassed]) -> Iterator[Stage]:
    came = int((forest.alive() & (forest.providers.parent[: forest.count] < 0)).sum())
    for passed in trees:
        yield Stage(passed.condition, None, None, len(passed.roots), came)
        came = len(passed.roots)


def _nearest_providers(forest: Forest, passed: ProvidersPassed) -> Iterator[Miss]:
    """Those who met all conditions before; for amounts, those who lack least."""
    if isinstance(passed.condition, Fits):
        yield from _nearest_by_amount(forest, passed.condition, passed.before)
    elif passed.before is not None and not isinstance(passed.condition, Exists):
        for uuid in _uuids(forest, passed.before[:MOST_MISSES]):
            yield Miss(uuid)


def _nearest_by_amount(forest: Forest, wanted: Fits, before: Rows | None) -> Iterator[Miss]:
    column = forest.column(wanted.class_id)
    slots = _offering(column, before)
    free = column.slots.free[slots]
    missing = np.maximum(wanted.amount - free, 0)
    nearest = _smallest(missing, MOST_MISSES)
    uuids = _uuids(forest, column.slots.provider[slots[nearest]])
    for uuid, lack, left in zip(uuids, missing[nearest].tolist(), free[nearest].tolist(), strict=True):
        yield Miss(uuid, wanted.class_id, lack, left)


def _offering(column: InventoryColumn, before: Rows | None) -> Indices | Rows:
    """The slots of the class, only those of the given providers if any are given."""
    if before is None:
        return column.occupied()
    slots = column.slots_of(before)
    return slots[slots >= 0]


def _nearest_trees(forest: Forest, trees: Sequence[TreesPassed], empty: int) -> Iterator[Miss]:
    """Trees that have somebody for most groups, or that met all conditions before the empty one."""
    if not isinstance(trees[empty].condition, AllGroups):
        for uuid in _uuids(forest, trees[empty - 1].roots[:MOST_MISSES]):
            yield Miss(uuid)
        return
    groups = [passed for passed in trees if isinstance(passed.condition, AllGroups)]
    present = np.zeros((len(groups), forest.count), bool)
    for at, passed in enumerate(groups):
        present[at] = passed.alone
    served = present.sum(axis=0)
    nearest = _smallest(-served, MOST_MISSES)
    nearest = nearest[served[nearest] > 0].astype(np.int32)
    for root, uuid in zip(nearest.tolist(), _uuids(forest, nearest), strict=True):
        suffixes = (passed.condition.suffix for passed in groups if isinstance(passed.condition, AllGroups))
        lacking = (suffix for suffix, there in zip(suffixes, present[:, root], strict=True) if not there)
        yield Miss(uuid, lacking=tuple(dict.fromkeys(lacking)))


def _uuids(forest: Forest, rows: Indices | Rows) -> list[str]:
    return [uuid.decode() for uuid in to_text(forest.providers.uuid[rows])]
