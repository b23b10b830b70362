"""Sums over groups of trees: what is offered and used of each resource class, at the cost of a few passes.

Every tree is in one group, that of the oldest aggregate of its root which is in `preferred`, else of the
oldest one, so the groups together are the whole.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from placement.forest.arrays import Rows
from placement.forest.forest import Forest

NO_AGGREGATE = -1


class Sums(NamedTuple):
    """What one group has of one class; `ratio` is the mean, weighed by total - reserved."""

    group: int
    class_id: int
    total: float
    reserved: float
    ratio: float
    used: float


def by_aggregate(forest: Forest, preferred: Collection[int]) -> list[Sums]:
    """The sums by aggregate of the roots; the group of trees in none is NO_AGGREGATE."""
    count = forest.count
    numbers = forest.aggregates.numbers_of(count)
    groups, group_of_set = groups_of_sets(forest, preferred)
    roots = np.maximum(forest.providers.root[:count], 0)
    return _sums(forest, groups, group_of_set[numbers[roots]])


def groups_of_sets(forest: Forest, preferred: Collection[int]) -> tuple[list[int], Rows]:
    """The groups that there are, and for each distinct set of aggregates which of them it belongs to."""
    chosen = np.array([_chosen(ids, preferred) for ids in forest.aggregates.sets], np.int64)
    groups, group_of_set = np.unique(chosen, return_inverse=True)
    return groups.tolist(), group_of_set


def by_root(forest: Forest) -> list[Sums]:
    """The sums of each tree; its group is the storage id of the root."""
    roots, place = forest.roots, np.zeros(forest.count, np.intp)
    place[roots] = np.arange(len(roots))
    of_row = place[np.maximum(forest.providers.root[: forest.count], 0)]
    return _sums(forest, forest.providers.id[roots].tolist(), of_row)


def _chosen(ids: frozenset[int], preferred: Collection[int]) -> int:
    return min((id_ for id_ in ids if id_ in preferred), default=min(ids, default=NO_AGGREGATE))


def _sums(forest: Forest, groups: list[int], group_of_row: Rows) -> list[Sums]:
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
                    Sums(group, class_id, all_, kept, most / (all_ - kept) if all_ > kept else 1.0, used)
                )
    return found
