"""Sums over groups of trees: what is offered and used of each resource class, at the cost of a few passes.

Every tree is in one group, that of the oldest aggregate of its root which is in `preferred`, else of the
oldest one, so the groups together are the whole.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from placement.forest.arrays import Indices, Shares
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
    chosen = np.array([_chosen(ids, preferred) for ids in forest.aggregates.sets], np.int64)
    groups, group_of_set = np.unique(chosen, return_inverse=True)
    roots = np.maximum(forest.providers.root[:count], 0)
    return _sums(forest, groups.tolist(), group_of_set[numbers[roots]].astype(np.int32))


def by_root(forest: Forest) -> list[Sums]:
    """The sums of each tree; its group is the storage id of the root."""
    roots, place = forest.roots, np.zeros(forest.count, np.int32)
    place[roots] = np.arange(len(roots))
    of_row = place[np.maximum(forest.providers.root[: forest.count], 0)]
    return _sums(forest, forest.providers.id[roots].tolist(), of_row)


def _chosen(ids: frozenset[int], preferred: Collection[int]) -> int:
    return min((id_ for id_ in ids if id_ in preferred), default=min(ids, default=NO_AGGREGATE))


def _sums(forest: Forest, groups: list[int], group_of_row: Indices) -> list[Sums]:
    found = []
    for class_id, column in forest.inventories.items():
        held = column.occupied()
        providers, offers = column.entries.provider[held], column.offers
        total, reserved = offers.total[held].astype(np.float64), offers.reserved[held].astype(np.float64)
        free_of_reserve = total - reserved
        place = group_of_row[providers]

        def summed(amounts: Shares, place: Indices = place) -> list[float]:
            sums: list[float] = np.bincount(place, amounts, len(groups)).tolist()
            return sums

        present = np.bincount(place, minlength=len(groups)).tolist()
        columns = zip(
            groups,
            present,
            summed(total),
            summed(reserved),
            summed(free_of_reserve * offers.ratio[held]),
            summed(free_of_reserve),
            summed(column.entries.used[held].astype(np.float64)),
            strict=True,
        )
        for group, number, all_, kept, offered, base, used in columns:
            if number:
                found.append(Sums(group, class_id, all_, kept, offered / base if base else 1.0, used))
    return found
