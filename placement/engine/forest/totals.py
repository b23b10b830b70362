"""Sums over groups of trees: offered and used amounts of each resource class, in a few passes.

Every tree is in one group: that of the oldest aggregate of its root that is in `preferred`, else that of the
oldest one. So the groups together are the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from placement.engine.forest.arrays import Amounts, Rows
from placement.engine.forest.forest import Forest

NO_AGGREGATE = -1


class GroupTotals(NamedTuple):
    """The sums of one group for one class; `ratio` is the mean, weighted by total - reserved."""

    group: int
    class_id: int
    total: float
    reserved: float
    ratio: float
    used: float


def by_aggregate(forest: Forest, preferred: Collection[int]) -> list[GroupTotals]:
    """Return the sums by aggregate of the roots; trees in no aggregate are the group NO_AGGREGATE."""
    groups, group_of_set = groups_of_sets(forest, [preferred])
    roots = np.maximum(forest.providers.root[: forest.count], 0)
    return _sums(forest, groups, group_of_set[forest.aggregates.numbers[roots]])


def by_every_aggregate(forest: Forest) -> list[GroupTotals]:
    """Return the sums by aggregate of the roots as `by_aggregate`, but with a tree in all its aggregates."""
    roots, sets = np.maximum(forest.providers.root[: forest.count], 0), forest.aggregates.sets
    found: dict[tuple[int, int], GroupTotals] = {}
    for each in _sums(forest, list(range(len(sets))), forest.aggregates.numbers[roots].astype(np.intp)):
        for group in sets[each.group] or (NO_AGGREGATE,):
            before = found.get((group, each.class_id), GroupTotals(group, each.class_id, 0, 0, 1.0, 0))
            total, reserved = before.total + each.total, before.reserved + each.reserved
            offered = sum((of.total - of.reserved) * of.ratio for of in (before, each))
            ratio = offered / (total - reserved) if total > reserved else 1.0
            found[group, each.class_id] = GroupTotals(
                group, each.class_id, total, reserved, ratio, before.used + each.used
            )
    return list(found.values())


def groups_of_sets(forest: Forest, preferred: Sequence[Collection[int]]) -> tuple[list[int], Rows]:
    """Return all groups, and for each distinct set of aggregates the place of its group.

    The group is the oldest aggregate of the first of `preferred` that has some, else the oldest of all.
    """
    chosen = []
    for ids in forest.aggregates.sets:
        kinds = ([id_ for id_ in ids if id_ in kind] for kind in preferred)
        chosen.append(min(next(filter(None, kinds), ids), default=NO_AGGREGATE))
    groups, group_of_set = np.unique(np.array(chosen, np.int64), return_inverse=True)
    return groups.tolist(), group_of_set


def by_root(forest: Forest) -> list[GroupTotals]:
    """Return the sums of each tree; its group is the storage id of the root."""
    roots, place = forest.roots, np.zeros(forest.count, np.intp)
    place[roots] = np.arange(len(roots))
    of_row = place[np.maximum(forest.providers.root[: forest.count], 0)]
    return _sums(forest, forest.providers.id[roots].tolist(), of_row)


def of_tree(forest: Forest, root: int) -> dict[int, tuple[int, int]]:
    """Return capacity and use of a tree by class; the tree is given by the row of its root."""
    rows, found = forest.in_trees(np.array([root], np.intp)), {}
    for class_id, column in forest.inventories.items():
        at = column.entries_of(rows)
        at = at[at >= 0]
        if len(at):
            entries = column.entries
            found[class_id] = int(entries.capacity_of[at].sum()), int(entries.used[at].sum())
    return found


def of_trees(forest: Forest, roots: Rows, classes: Collection[int]) -> dict[int, tuple[list[int], list[int]]]:
    """Return capacity and use by class, each in the order of the trees, which are given by their roots."""
    place = np.zeros(forest.count, np.intp)
    place[roots] = np.arange(len(roots))
    rows, found = forest.in_trees(roots), {}
    of_row = place[forest.roots_of(rows)]
    for class_id in classes:
        column = forest.column(class_id)
        at = column.entries_of(rows)
        held = at >= 0
        entries, where = at[held], of_row[held]

        def summed(amounts: Amounts, where: Rows = where) -> list[int]:
            return np.bincount(where, amounts, len(roots)).astype(np.int64).tolist()  # type: ignore[no-any-return]

        found[class_id] = (
            summed(column.entries.capacity_of[entries]),
            summed(column.entries.used[entries]),
        )
    return found


def _sums(forest: Forest, groups: list[int], group_of_row: Rows) -> list[GroupTotals]:
    found = []
    for class_id, column in forest.inventories.items():
        held, offers = column.held, column.offers
        place = group_of_row[column.entries.provider[held]]

        def summed(amounts: Any, place: Rows = place) -> list[float]:
            sums: list[float] = np.bincount(place, amounts, len(groups)).tolist()
            return sums

        total, reserved = offers.total[held], offers.reserved[held]
        offered = summed((total - reserved) * offers.ratio[held].astype(np.float64))
        columns = zip(
            groups, summed(total), summed(reserved), offered, summed(column.entries.used[held]), strict=True
        )
        for group, all_, kept, most, used in columns:
            # A total is never 0.
            if all_:
                found.append(
                    GroupTotals(
                        group, class_id, all_, kept, most / (all_ - kept) if all_ > kept else 1.0, used
                    )
                )
    return found
