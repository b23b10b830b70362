"""The slots of a query in parts that do not influence each other: each can be counted by itself.

Slots belong together if one provider can be asked for the same class by both, or must not serve both, or if
a constraint names them together. Many consumers side by side meet wherever one consumer's groups could.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from placement.forest.forest import Forest
from placement.search.filters import Choices
from placement.search.query import ForestQuery, Slot


@dataclass(frozen=True, slots=True)
class Part:
    """Slots by number; `ties`: sets of them that must be below one another.

    `coverage`: the trait conditions that the unsuffixed ones must meet between them.
    """

    slots: tuple[int, ...]
    ties: tuple[frozenset[int], ...] = ()
    coverage: tuple[frozenset[int], ...] = ()


def parts_of(
    forest: Forest, query: ForestQuery, slots: Sequence[Slot], choices: Sequence[Choices]
) -> list[Part]:
    """The parts of a query, in the order of their first slots."""
    ties = list(_ties(query, slots))
    coverage = tuple(_open_conditions(forest, slots, choices))
    leader = list(range(len(slots)))

    def find(slot: int) -> int:
        while leader[slot] != slot:
            slot = leader[slot]
        return slot

    for tie in (*ties, *_collective(slots, coverage)):
        first, *others = sorted(tie)
        for other in others:
            leader[find(other)] = find(first)
    for one, other in combinations(range(len(slots)), 2):
        if find(one) != find(other) and _meet(query, slots, choices, one, other):
            leader[find(other)] = find(one)
    members: dict[int, list[int]] = {}
    for slot in range(len(slots)):
        members.setdefault(find(slot), []).append(slot)
    return [
        Part(
            tuple(found),
            tuple(tie for tie in ties if tie <= set(found)),
            coverage if any(not slots[slot].suffixed for slot in found) else (),
        )
        for found in members.values()
    ]


def tops_of(query: ForestQuery, slots: Sequence[Slot]) -> Iterator[frozenset[int]]:
    """The slots of each constraint on subtrees, those that are split included."""
    for names in query.same_subtree:
        yield frozenset(number for number, slot in enumerate(slots) if slot.suffix in names)


def _ties(query: ForestQuery, slots: Sequence[Slot]) -> Iterator[frozenset[int]]:
    """The constraints on subtrees, and each group that splits something with what it does not split."""
    for tie in tops_of(query, slots):
        if len(tie) > 1:
            yield tie
    for suffix in dict.fromkeys(slot.suffix for slot in slots if slot.rule):
        tie = frozenset(number for number, slot in enumerate(slots) if slot.suffix == suffix)
        if len(tie) > 1:
            yield tie


def _collective(slots: Sequence[Slot], coverage: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    together = frozenset(number for number, slot in enumerate(slots) if not slot.suffixed)
    return [together] if coverage and together else []


def _open_conditions(
    forest: Forest, slots: Sequence[Slot], choices: Sequence[Choices]
) -> Iterator[frozenset[int]]:
    """The trait conditions of the unsuffixed group that not all providers of one of its slots meet."""
    unsuffixed = [number for number, slot in enumerate(slots) if not slot.suffixed]
    for any_of in slots[unsuffixed[0]].group.required if unsuffixed else ():
        met = (
            forest.traits.satisfying(rows, (any_of,)).all()
            for number in unsuffixed
            for rows in (np.concatenate([choices[number].own, choices[number].foreign]),)
        )
        if not any(met):
            yield any_of


def _meet(
    query: ForestQuery, slots: Sequence[Slot], choices: Sequence[Choices], one: int, other: int
) -> bool:
    """Whether it matters to one slot which provider the other one takes."""
    apart = query.isolate and slots[one].suffixed and slots[other].suffixed
    if slots[one].suffix == slots[other].suffix and slots[one].rule and slots[other].rule:
        apart = False
    classes = {class_id for class_id, _ in slots[one].resources}
    shared = any(class_id in classes for class_id, _ in slots[other].resources)
    return (apart or shared) and intersect(choices[one], choices[other])


def intersect(one: Choices, other: Choices) -> bool:
    """Whether some provider can fill both slots."""
    if one is other:
        return bool(len(one.own) or len(one.foreign))
    able = one.own_mask | one.foreign_mask
    return bool((able & (other.own_mask | other.foreign_mask)).any())
