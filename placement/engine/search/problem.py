"""The problem inside one tree: which position serves which slot.

A `Problem` has positions 0..n-1: the providers of one tree that matter, and sharing providers anchored there.
It has slots: one per suffixed group, and one per resource class of the base group. Trees that look
alike are one problem, so a solution is found once and used for all of them.

Sets of positions are integers used as bit sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from placement.engine.domain.groups import SplitRule

Solution = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """The part of one tree that matters, and the slots to be served by it; the module defines the terms.

    `blocks` partition the slots into interchangeable ones. `isolated` is the set of slots that must have
    pairwise different positions. Each of `subtrees` is a set of slots; `below[p]` is the set of positions in
    the subtree of p, itself included. `coverage` lists, per trait condition of the base group, the
    positions that satisfy it; one of `base_slots` (slots) must take one of them. `exclusive[p]`, if given,
    are the positions that may not be used together with p. `splitting`, if given, has the slots that several
    positions serve between them; no other field speaks of these slots.
    """

    options: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]
    isolated: int = 0
    contentions: tuple[Contention, ...] = ()
    subtrees: tuple[int, ...] = ()
    below: tuple[int, ...] = ()
    base_slots: int = 0
    coverage: tuple[int, ...] = ()
    exclusive: tuple[int, ...] = ()
    splitting: Splitting | None = None

    @property
    def is_free(self) -> bool:
        """Return whether the slots do not influence each other at all."""
        return not (
            self.isolated.bit_count() > 1
            or self.contentions
            or self.subtrees
            or self.coverage
            or self.exclusive
        )


@dataclass(frozen=True, slots=True)
class Contention:
    """A resource class that several slots may draw from one provider.

    `demand[slot]` is the slot's amount (0: none), `headroom[position]` the largest sum of one consumer.
    """

    demand: tuple[int, ...]
    headroom: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SplitSupply:
    """A class that is split, with the amounts that the positions can give of it.

    `headroom`: the largest sum of one consumer; each part is a multiple of `step`, and at least `least`.
    `whole`: the capacity of an unused position that one consumer may have all of, 0 elsewhere.
    `demand[slot]`: the amount of a slot that is not split.
    """

    headroom: tuple[int, ...]
    least: tuple[int, ...]
    step: tuple[int, ...]
    whole: tuple[int, ...]
    demand: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """A slot that is split: `amount` of a supply (by its place) out of the positions `options`.

    `tops`: sets of slots that are not split; all parts lie below the topmost slot of each set.
    """

    slot: int
    supply: int
    amount: int
    rule: SplitRule
    options: int
    tops: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Splitting:
    """The split slots of a problem, and the positions that they are split over.

    `below[p]`: the positions in the subtree of p, itself included. `group_of[slot]`: the number of the group
    of each slot that is to be kept apart from others, -1 for the rest.
    """

    splits: tuple[Split, ...]
    supplies: tuple[SplitSupply, ...]
    below: tuple[int, ...]
    group_of: tuple[int, ...]

    def reach(self, split: Split, places: Sequence[int]) -> int:
        """Return the positions that may give parts if the other slots have these places."""
        reach = split.options
        for slots in split.tops:
            taken = union(1 << places[slot] for slot in bits(slots))
            reach &= next((self.below[top] for top in bits(taken) if not taken & ~self.below[top]), 0)
        return reach


def bits(mask: int) -> Iterator[int]:
    """Yield the members of a bit set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def union(masks: Iterable[int]) -> int:
    """Return the union of bit sets."""
    return reduce(or_, masks, 0)
