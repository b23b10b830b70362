"""What is asked inside one tree: which position serves which slot.

A `Problem` speaks of positions 0..n-1 among the providers of one tree that matter (sharing providers
anchored there included) and of slots (one per suffixed group, one per resource class of the unsuffixed
group). Trees that look alike are one problem, so a solution is found once and used for all of them.

Sets of positions are integers used as bit sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from placement.domain.groups import SplitRule

Solution = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Contention:
    """One resource class that several slots may draw from one provider.

    `demand[slot]` is the slot's amount (0: none), `headroom[position]` what one consumer's sum may reach.
    """

    demand: tuple[int, ...]
    headroom: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Supply:
    """What the positions can give of one class that is split.

    `room`: what one consumer's sum may reach; each part is a multiple of `step`, and at least `least`.
    `whole`: the capacity of a position of which nothing is used, 0 elsewhere. `demand[slot]`: what a slot
    that is not split takes of the class.
    """

    room: tuple[int, ...]
    least: tuple[int, ...]
    step: tuple[int, ...]
    whole: tuple[int, ...]
    demand: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """A slot that is split: `amount` of a supply (by its place) out of the positions `options`.

    `tops`: sets of slots that are not split; for each set all parts lie below the one that is above the
    others. `group` is the number of its group, `apart` whether groups may not use one position together.
    """

    slot: int
    group: int
    supply: int
    amount: int
    rule: SplitRule
    options: int
    tops: tuple[int, ...]
    apart: bool


@dataclass(frozen=True, slots=True)
class Splitting:
    """All slots of a problem that are split, and what they are split over.

    `below[p]`: the positions in the subtree of p, itself included. `group_of[slot]`: the number of the group
    of each slot that is to be kept apart from others, -1 for the rest.
    """

    splits: tuple[Split, ...]
    supplies: tuple[Supply, ...]
    below: tuple[int, ...]
    group_of: tuple[int, ...]

    def reach(self, split: Split, places: Sequence[int]) -> int:
        """The positions that may give parts if the other slots have these places."""
        reach = split.options
        for slots in split.tops:
            taken = reduce(or_, (1 << places[slot] for slot in bits(slots)))
            reach &= next((self.below[top] for top in bits(taken) if not taken & ~self.below[top]), 0)
        return reach


@dataclass(frozen=True, slots=True)
class Problem:
    """What matters of one tree, and what is asked of it; see the module for the words.

    `blocks` partition the slots into interchangeable ones. `isolated` is the set of slots whose positions
    must differ pairwise. Each of `subtrees` is a set of slots; `below[p]` is the set of positions in the
    subtree of p, itself included. `coverage` lists, per trait condition of the unsuffixed group, the
    positions that satisfy it; one of `collective` (slots) must take one of them. `exclusive[p]`, if given,
    are the positions that may not be used together with p. `splitting`, if given, are the slots that several
    positions serve between them; nothing else here speaks of those slots.
    """

    options: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]
    isolated: int = 0
    contentions: tuple[Contention, ...] = ()
    subtrees: tuple[int, ...] = ()
    below: tuple[int, ...] = ()
    collective: int = 0
    coverage: tuple[int, ...] = ()
    exclusive: tuple[int, ...] = ()
    splitting: Splitting | None = None

    @property
    def is_free(self) -> bool:
        """Whether the slots do not influence each other at all."""
        return not (
            self.isolated.bit_count() > 1
            or self.contentions
            or self.subtrees
            or self.coverage
            or self.exclusive
        )


def bits(mask: int) -> Iterator[int]:
    """The members of a bit set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
