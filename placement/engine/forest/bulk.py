"""Changes of many providers at once, written into the columns of the forest by a few assignments.

Examples are new hosts, other usage and other inventories. `Forest.apply` would leave the forest in the same
state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.engine.forest import providers as forest_providers
from placement.engine.forest.forest import Forest
from placement.engine.forest.inventories import by_class

# The parent of a root, in columns of ids.
_NO_PARENT = 0


def strangers(forest: Forest, ids: Sequence[int]) -> list[int]:
    """Return the ids that the forest knows no provider of."""
    asked = np.array(ids, np.int64)
    found: list[int] = asked[forest.rows_of(asked) == forest_providers.NONE].tolist()
    return found


def altered(forest: Forest, providers: Sequence[forest_providers.NumberColumn]) -> list[int]:
    """Return the ids of the providers that may have changed in more than usage since they were applied.

    `providers` are the columns of `ProviderStates`. Providers of unknown content are always among the ids.
    """
    ids, *_, contents = (np.asarray(column) for column in providers)
    rows = forest.rows_of(ids)
    found: list[int] = ids[
        (rows == forest_providers.NONE) | (contents == 0) | (forest.providers.content[rows] != contents)
    ].tolist()
    return found


def have_ancestors(forest: Forest, states: Sequence[forest_providers.ProviderStates]) -> bool:
    """Return whether the root and the parent of each provider are known or in one of the states."""
    if not states:
        # Most looks bring few providers, as records.
        return True
    columns = [each.providers for each in states]
    coming = np.concatenate([np.empty(0, np.int64), *(np.asarray(ids) for ids, *_ in columns)])
    above = np.concatenate(
        [np.empty(0, np.int64), *(np.asarray(ids) for _, _, *both, _, _ in columns for ids in both)]
    )
    missing = above[(above != _NO_PARENT) & (forest.rows_of(above) == forest_providers.NONE)]
    return bool(np.isin(missing, coming).all())


def apply(forest: Forest, *states: forest_providers.ProviderStates) -> None:
    """Insert or replace providers, as `Forest.apply` would; each one is in one of the states.

    Their parents and roots must be known or in one of the states.
    """
    states = tuple(each for each in states if len(each.providers[0]))
    if not states:
        return
    forest.begin_writing()
    for each in states:
        forest.insert(each.uuids)
    # All are placed together: a provider may move below a provider of other states.
    columns = [[np.asarray(ids) for ids in each.providers] for each in states]
    own, _, parents, roots, _, _ = (np.concatenate(each) for each in zip(*columns, strict=True))
    forest.place(*(forest.rows_of(ids) for ids in (own, parents, roots)))
    for each in states:
        _update(forest, each)


def _update(forest: Forest, states: forest_providers.ProviderStates) -> None:
    """Write the states of providers that have rows and stand in the right trees."""
    ids, generations, _, _, revisions, contents = (np.asarray(column) for column in states.providers)
    rows = forest.rows_of(ids)
    providers = forest.providers
    providers.generation[rows], providers.revision[rows] = generations, revisions
    providers.content[rows] = contents
    # Where nothing but usage changed, the inventories are known.
    provider, classes, used = (np.asarray(column) for column in states.usage)
    using = forest.rows_of(provider)
    for class_id in np.unique(classes).tolist():
        of_class = classes == class_id
        forest.column(class_id).use_all(using[of_class], used[of_class])
    _replace(forest, states)
    providers.touch(providers.root[rows])


def _replace(forest: Forest, states: forest_providers.ProviderStates) -> None:
    """Replace the inventories, traits and aggregates of the altered providers."""
    rows = forest.rows_of(np.array(states.altered, np.int64))
    if not len(rows):
        return
    left = {class_id: np.zeros(forest.count, bool) for class_id in forest.inventories}
    for lacking in left.values():
        lacking[rows] = True
    for class_id, provider, offered in by_class(states.inventories):
        offering = forest.rows_of(provider)
        forest.column(class_id).put_all(offering, offered)
        if class_id in left:
            left[class_id][offering] = False
    for class_id, lacking in left.items():
        forest.column(class_id).cut(np.flatnonzero(lacking))
    for members, sets in ((forest.traits, states.traits), (forest.aggregates, states.aggregates)):
        # The number of the set of each provider; the last set is empty.
        carriers = [np.asarray(carriers) for _, carriers in sets]
        which = np.full(forest.count, len(sets), np.intp)
        if sets:
            of_carrier = np.repeat(np.arange(len(sets)), [len(each) for each in carriers])
            which[forest.rows_of(np.concatenate(carriers))] = of_carrier
        if members.assign_all(rows, which[rows], [*(ids for ids, _ in sets), frozenset()]):
            forest.shape_version += 1
