"""What is left over among providers: hosts in no aggregate, and providers that offer nothing."""

from __future__ import annotations

import numpy as np

from placement.engine.forest.arrays import Indices, Mask, Rows
from placement.engine.forest.forest import Forest


def hosts_without_aggregate(forest: Forest, sharing: Indices) -> list[int]:
    """Return the storage ids, in order, of the roots that are in no aggregate.

    A tree with a root in `sharing` is shared storage and no host. One that offers nothing is listed by
    `providers_without_inventory`.
    """
    are_empty = np.array([not ids for ids in forest.aggregates.sets])
    roots = forest.roots
    roots = roots[are_empty[forest.aggregates.numbers[roots]] & _offering(forest)[roots]]
    return _ids(forest, roots[~np.isin(roots, sharing)])


def providers_without_inventory(forest: Forest) -> list[int]:
    """Return the storage ids, in order, of the providers that offer nothing, with all that is below them."""
    return _ids(forest, np.flatnonzero(forest.alive() & ~_offering(forest)))


def _offering(forest: Forest) -> Mask:
    """Return which rows have an inventory, or stand above one that has."""
    found = np.zeros(forest.count, bool)
    for column in forest.inventories.values():
        found[column.entries.provider[column.held]] = True
    parents = forest.providers.parent[: forest.count]
    rows: Rows = np.flatnonzero(found)
    while len(rows):
        above = np.unique(parents[rows])
        rows = above[(above >= 0) & ~found[above]].astype(np.intp)
        found[rows] = True
    return found


def _ids(forest: Forest, rows: Rows) -> list[int]:
    ids: list[int] = sorted(forest.providers.id[rows].tolist())
    return ids
