"""Many changed providers at once: their columns go into those of the forest by a few assignments.

It is for what happens to many at a time: hosts come, or more or less of them is in use or on offer. It can
never leave the forest in another state than `Forest.apply` would.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from placement.forest.arrays import Rows
from placement.forest.forest import Forest
from placement.forest.inventory_entries import Offered
from placement.forest.provider_columns import NONE
from placement.forest.records import NumberColumn, ProviderStates

# The parent of a root, in columns of ids.
_NOBODY = 0


def strangers(forest: Forest, ids: Sequence[int]) -> list[int]:
    """The ids of which the forest knows no provider."""
    asked = np.array(ids, np.int64)
    found: list[int] = asked[forest.rows_of(asked) == NONE].tolist()
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


def have_ancestors(forest: Forest, portions: Iterable[ProviderStates]) -> bool:
    """Whether root and parent of each provider are known or come along."""
    columns = [each.providers for each in portions]
    coming = np.concatenate([np.empty(0, np.int64), *(np.asarray(ids) for ids, *_ in columns)])
    above = np.concatenate(
        [np.empty(0, np.int64), *(np.asarray(ids) for _, _, *both, _, _ in columns for ids in both)]
    )
    missing = above[(above != _NOBODY) & (forest.rows_of(above) == NONE)]
    return bool(np.isin(missing, coming).all())


def apply(forest: Forest, *portions: ProviderStates) -> None:
    """Insert or replace providers, as `Forest.apply` would; each in one of the portions only.

    Their parents and roots must be known or among them.
    """
    portions = tuple(each for each in portions if len(each.providers[0]))
    if not portions:
        return
    forest.begin_writing()
    for each in portions:
        forest.insert(each.uuids)
    _place(forest, portions)
    for each in portions:
        _update(forest, each)


def _place(forest: Forest, portions: Sequence[ProviderStates]) -> None:
    """All of them together: who moves may move below somebody of another portion."""
    columns = [[np.asarray(ids) for ids in each.providers] for each in portions]
    own, _, parents, roots, _, _ = (np.concatenate(each) for each in zip(*columns, strict=True))
    forest.place(*(forest.rows_of(ids) for ids in (own, parents, roots)))


def _update(forest: Forest, states: ProviderStates) -> None:
    """What is known of providers that have rows and stand where they should."""
    ids, generations, _, _, revisions, contents = (np.asarray(column) for column in states.providers)
    rows = forest.rows_of(ids)
    providers = forest.providers
    providers.generation[rows], providers.revision[rows] = generations, revisions
    providers.content[rows] = contents
    _use(forest, states)
    _replace(forest, states)
    providers.touch(providers.root[rows])


def _use(forest: Forest, states: ProviderStates) -> None:
    """Let so much be in use of those of which nothing else changed; they are known, as is what they offer."""
    provider, classes, used = (np.asarray(column) for column in states.usage)
    rows = forest.rows_of(provider)
    for class_id in np.unique(classes).tolist():
        of_class = classes == class_id
        forest.column(class_id).use_all(rows[of_class], used[of_class])


def _replace(forest: Forest, states: ProviderStates) -> None:
    """Replace what the altered ones offer, carry and belong to."""
    rows = forest.rows_of(np.array(states.altered, np.int64))
    if not len(rows):
        return
    _offer(forest, states, rows)
    for members, sets in ((forest.traits, states.traits), (forest.aggregates, states.aggregates)):
        if members.assign_all(rows, *_sets_of(forest, sets, rows)):
            forest.shape_version += 1


def _sets_of(
    forest: Forest, sets: Sequence[tuple[frozenset[int], NumberColumn]], rows: Rows
) -> tuple[Rows, list[frozenset[int]]]:
    """Which set each of the rows has, and the sets, of which the last one is empty."""
    carriers = [np.asarray(carriers) for _, carriers in sets]
    which = np.full(forest.count, len(sets), np.intp)
    if sets:
        of_carrier = np.repeat(np.arange(len(sets)), [len(each) for each in carriers])
        which[forest.rows_of(np.concatenate(carriers))] = of_carrier
    return which[rows], [*(ids for ids, _ in sets), frozenset()]


def _offer(forest: Forest, states: ProviderStates, among: Rows) -> None:
    """Let these providers offer the inventories that they are told to have, and no others."""
    provider, classes, *rest = (np.asarray(column) for column in states.inventories)
    rows = forest.rows_of(provider)
    class_ids = np.unique(classes).tolist()
    for class_id in {*class_ids, *forest.inventories}:
        of_class = classes == class_id
        offering = rows[of_class]
        left = np.zeros(forest.count, bool)
        left[among] = True
        left[offering] = False
        forest.column(class_id).cut(np.flatnonzero(left))
        forest.column(class_id).put_all(offering, Offered(*(column[of_class] for column in rest)))
