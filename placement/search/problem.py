"""What is asked inside one tree: which position serves which slot.

A `Problem` speaks of positions 0..n-1 among the providers of one tree that matter (sharing providers
anchored there included) and of slots (one per suffixed group, one per resource class of the unsuffixed
group). Trees that look alike are one problem, so a solution is found once and used for all of them.

Sets of positions are integers used as bit sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Solution = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Contention:
    """One resource class that several slots may draw from one provider.

    `demand[slot]` is the slot's amount (0: none), `headroom[position]` what one consumer's sum may reach.
    """

    demand: tuple[int, ...]
    headroom: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """What matters of one tree, and what is asked of it; see the module for the words.

    `blocks` partition the slots into interchangeable ones. `isolated` is the set of slots whose positions
    must differ pairwise. Each of `subtrees` is a set of slots; `below[p]` is the set of positions in the
    subtree of p, itself included. `coverage` lists, per trait condition of the unsuffixed group, the
    positions that satisfy it; one of `collective` (slots) must take one of them. `exclusive[p]`, if given,
    are the positions that may not be used together with p.
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
