"""What there is instead: what the hosts of a place offer, where else a request fits, and what ends first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from placement.engine.domain.explanation import (
    Elsewhere,
    Margin,
    OfferedInstead,
    OtherPlace,
    Stage,
    is_of_place,
)
from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.search.budget import SearchEnded
from placement.engine.search.conditions import Carries, Fits, GivesPart, OffersClass, OnHost
from placement.engine.search.equivalence import EquivalenceClasses
from placement.engine.search.filters import Choices, FilledSlots, filled_slots, flags_of
from placement.engine.search.places import anywhere
from placement.engine.search.solver import solutions
from placement.engine.search.vocabulary import Vocabulary

_MOST_NAMES, _MOST_PLACES = 50, 20


def offered_of(
    filled: FilledSlots, vocabulary: Vocabulary, asked: object, hosts: Mask, stages_before: Sequence[Stage]
) -> OfferedInstead | None:
    """Return what some hosts have instead of a class or a trait that none of them has.

    `asked`: the condition that left nothing; `stages_before`: the stages that left these hosts.
    """
    forest = filled.forest
    rows = np.flatnonzero(forest.alive())
    rows = rows[hosts[forest.roots_of(rows)]]
    inner = asked.condition if isinstance(asked, OnHost) else asked
    is_narrowed = not all(map(is_of_place, stages_before))
    place = () if is_narrowed else tuple(stage.condition.text for stage in stages_before)
    if isinstance(inner, Fits | GivesPart | OffersClass):
        if OffersClass(inner.class_id).among(forest, rows).any():
            return None
        missing = vocabulary.resource_class(inner.class_id)
        names = _most_common(_classes_of(forest, rows), vocabulary.resource_class)
    elif isinstance(inner, Carries) and inner.required:
        if inner.among(forest, rows).any():
            return None
        missing = " or ".join(sorted(map(vocabulary.trait, inner.required[0])))
        names = _most_common(_traits_of(forest, rows), vocabulary.trait)
    else:
        return None
    return OfferedInstead(missing, isinstance(inner, Carries), int(hosts.sum()), names, place, is_narrowed)


def _most_common(counted: Counter[int], name: Callable[[int], str]) -> tuple[str, ...]:
    called = sorted((-count, name(id_)) for id_, count in counted.items() if count)
    return tuple(each for _, each in called[:_MOST_NAMES])


def _classes_of(forest: Forest, rows: Rows) -> Counter[int]:
    """Return by how many of the providers each class is offered."""
    return Counter(
        {id_: int((column.entries_of(rows) >= 0).sum()) for id_, column in forest.inventories.items()}
    )


def _traits_of(forest: Forest, rows: Rows) -> Counter[int]:
    """Return how many of the providers carry each trait."""
    found: Counter[int] = Counter()
    for number, count in enumerate(np.bincount(forest.traits.numbers[rows]).tolist()):
        if count:
            found.update(dict.fromkeys(forest.traits.sets[number], count))
    return found


def elsewhere_of(filled: FilledSlots) -> Elsewhere | None:
    """Return where a query fits that fits nowhere in the place it asks for; None if it asks for none.

    None, too, where half of the time that is left is not enough. Raises SearchEnded if the caller went away.
    """
    query, forest = filled.query, filled.forest
    wider = anywhere(query)
    if wider == query:
        return None
    wider = replace(wider, budget=query.budget.half())
    try:
        without = filled_slots(forest, filled.sharing, wider)
        roots, is_counted = with_candidate(without, without.viable_roots())
    except SearchEnded as ended:
        if ended.abandoned:
            raise
        return None
    if not is_counted:
        return None
    members: Counter[int] = Counter()
    for number, count in enumerate(np.bincount(forest.aggregates.numbers[roots]).tolist()):
        if count:
            members.update(dict.fromkeys(forest.aggregates.sets[number], count))
    most = sorted(members.items(), key=lambda each: (-each[1], each[0]))[:_MOST_PLACES]
    return Elsewhere(len(roots), tuple(OtherPlace(id_, hosts) for id_, hosts in most))


def margin_of(filled: FilledSlots, vocabulary: Vocabulary, hosts: Mask) -> Margin | None:
    """Return the class that ends first on these hosts; each class is looked at alone, by what is free.

    Where several parts of the request take the class, or one is split, free amounts of a host are one sum.
    """
    margins = []
    asked = dict.fromkeys(class_id for slot in filled.slots for class_id, _ in slot.resources)
    for class_id in asked:
        amounts = [dict(slot.resources).get(class_id, 0) for slot in filled.slots]
        asking = [at for at, amount in enumerate(amounts) if amount]
        choices = Choices.union(filled.choices[at] for at in asking)
        rows = _serving(filled, choices, hosts)
        free, wanted = np.maximum(filled.forest.column(class_id).free_of(rows), 0), sum(amounts)
        sums: Amounts = free
        if len(asking) > 1 or filled.slots[asking[0]].rule is not None:
            sums = np.zeros(filled.forest.count, np.int64)
            np.add.at(sums, filled.forest.roots_of(rows), free)
        name, room = vocabulary.resource_class(class_id), int((sums // wanted).sum())
        margins.append(Margin(name, wanted, int(free.sum()), room, int(hosts.sum())))
    return min(margins, key=lambda each: (each.room, each.resource_class), default=None)


def _serving(filled: FilledSlots, choices: Choices, hosts: Mask) -> Rows:
    """Return the providers among the choices that serve some of the hosts."""
    own = choices.own[hosts[filled.forest.roots_of(choices.own)]]
    sharing = filled.sharing
    serving = flags_of(filled.forest.count, sharing.pair_provider[hosts[sharing.pair_anchor]])
    return np.union1d(own, choices.foreign[serving[choices.foreign]]).astype(np.intp)


def with_candidate(filled: FilledSlots, roots: Indices) -> tuple[Indices, bool]:
    """Return which of the roots have a candidate, and whether half of the time that is left was enough.

    Roots that look alike are tried once. Raises SearchEnded if the caller went away.
    """
    if not len(roots):
        return roots, True
    budget, found = filled.query.budget.half(), [roots[:0]]
    classes = EquivalenceClasses(replace(filled, query=replace(filled.query, budget=budget)))
    try:
        for each in classes.of(roots):
            if next(iter(solutions(each.problem, budget)), None) is not None:
                found.append(roots[each.ranks])
    except SearchEnded as ended:
        if ended.abandoned:
            raise
        return np.concatenate(found), False
    return np.concatenate(found), True
