"""Many changed providers at once: their columns go into those of the forest by a few assignments.

It is for what happens to many at a time, that more or less of them is in use or on offer. It can never leave
the forest in another state than `Forest.apply` would, nor move anybody: providers that are new or stand
elsewhere are left to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placement.forest.arrays import Mask, Rows
from placement.forest.forest import Forest
from placement.forest.inventory_entries import Offered
from placement.forest.provider_columns import NONE
from placement.forest.records import NumberColumn, ProviderStates


class _Standing(NamedTuple):
    """The rows of providers, NONE for new ones, and which are known and where they were in their trees."""

    rows: Rows
    stays: Mask


def unplaced(forest: Forest, states: ProviderStates) -> list[int]:
    """The ids of those that are new or have another parent or root than in the forest."""
    found: list[int] = np.asarray(states.providers[0])[~_standing(forest, states).stays].tolist()
    return found


def altered(forest: Forest, providers: Sequence[NumberColumn]) -> list[int]:
    """The ids of those of which more than use may have changed since they were applied.

    `providers` are the columns of `ProviderStates`. Anybody of unknown content is among them.
    """
    ids, *_, contents = (np.asarray(column) for column in providers)
    rows = forest.rows_of(ids)
    found: list[int] = ids[
        (rows == NONE) | (contents == 0) | (forest.providers.content[rows] != contents)
    ].tolist()
    return found


def apply(forest: Forest, states: ProviderStates) -> None:
    """Replace what the forest knew of these providers, as `Forest.apply` would; not of the unplaced ones."""
    rows, stays = _standing(forest, states)
    rows = rows[stays]
    if not len(rows):
        return
    forest.begin_writing()
    providers = forest.providers
    _, generations, _, _, revisions, contents = (np.asarray(column)[stays] for column in states.providers)
    providers.generation[rows], providers.revision[rows] = generations, revisions
    providers.content[rows] = contents
    _use(forest, states)
    _replace(forest, states, rows)
    providers.touch(providers.root[rows])


def _use(forest: Forest, states: ProviderStates) -> None:
    """Let so much be in use of those of which nothing else changed; they are known, as is what they offer."""
    provider, classes, used = (np.asarray(column) for column in states.usage)
    rows = forest.rows_of(provider)
    for class_id in np.unique(classes).tolist():
        of_class = classes == class_id
        forest.column(class_id).use_all(rows[of_class], used[of_class])


def _replace(forest: Forest, states: ProviderStates, placed: Rows) -> None:
    """Replace what the altered ones among the `placed` offer, carry and belong to."""
    among = np.zeros(forest.count, bool)
    among[placed] = True
    rows = forest.rows_of(np.array(states.altered, np.int64))
    rows = rows[(rows != NONE) & among[rows]]
    if not len(rows):
        return
    among[:] = False
    among[rows] = True
    _offer(forest, states, among)
    for members, sets in ((forest.traits, states.traits), (forest.aggregates, states.aggregates)):
        if members.assign_all(rows, *_sets_of(forest, sets, rows)):
            forest.shape_version += 1


def _standing(forest: Forest, states: ProviderStates) -> _Standing:
    ids, _, parents, roots, *_ = states.providers
    rows = _rows_of(forest, ids)
    providers = forest.providers
    # 0 is the id of nobody, as is what no row has. Of a row NONE nothing is said.
    is_there = (providers.parent[rows] == _rows_of(forest, parents)) & (
        providers.root[rows] == _rows_of(forest, roots)
    )
    return _Standing(rows, (rows != NONE) & is_there)


def _sets_of(
    forest: Forest, sets: Sequence[tuple[frozenset[int], NumberColumn]], rows: Rows
) -> tuple[Rows, list[frozenset[int]]]:
    """Which set each of the rows has, and the sets, of which the last one is empty."""
    carriers = [np.asarray(carriers) for _, carriers in sets]
    which = np.full(forest.count, len(sets), np.intp)
    if sets:
        carrying = forest.rows_of(np.concatenate(carriers))
        of_carrier = np.repeat(np.arange(len(sets)), [len(each) for each in carriers])
        known = carrying != NONE
        which[carrying[known]] = of_carrier[known]
    return which[rows], [*(ids for ids, _ in sets), frozenset()]


def _rows_of(forest: Forest, ids: NumberColumn) -> Rows:
    return forest.rows_of(np.asarray(ids))


def _offer(forest: Forest, states: ProviderStates, among: Mask) -> None:
    """Let the providers that are `among` the rows offer these inventories and no others."""
    provider, classes, *rest = (np.asarray(column) for column in states.inventories)
    rows = forest.rows_of(provider)
    chosen = (rows != NONE) & among[rows]
    rows, classes, *rest = (column[chosen] for column in (rows, classes, *rest))
    class_ids = np.unique(classes).tolist()
    for class_id in {*class_ids, *forest.inventories}:
        of_class = classes == class_id
        offering = rows[of_class]
        left = among.copy()
        left[offering] = False
        forest.column(class_id).cut(np.flatnonzero(left))
        forest.column(class_id).put_all(offering, Offered(*(column[of_class] for column in rest)))
