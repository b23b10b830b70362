"""The problem inside one tree: which position serves which slot.

A `Problem` has positions 0..n-1: the providers of one tree that matter, and sharing providers anchored there.
It has slots: one per suffixed group, and one per resource class of the unsuffixed group. Trees that look
alike are one problem, so a solution is found once and used for all of them.

Sets of positions are integers used as bit sets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import accumulate
from operator import or_

from placement.engine.domain.groups import SplitRule
from placement.engine.search.budget import Budget

Solution = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Contention:
    """A resource class that several slots may draw from one provider.

    `demand[slot]` is the slot's amount (0: none), `headroom[position]` what one consumer's sum may reach.
    """

    demand: tuple[int, ...]
    headroom: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SplitSupply:
    """A class that is split, with what the positions can give of it.

    `room`: what one consumer's sum may reach; each part is a multiple of `step`, and at least `least`.
    `whole`: the capacity of an unused position that one consumer may have all of, 0 elsewhere.
    `demand[slot]`: what a slot that is not split takes of the class.
    """

    room: tuple[int, ...]
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
    """The slots of a problem that are split, and what they are split over.

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


@dataclass(frozen=True, slots=True)
class Problem:
    """The part of one tree that matters, and what is asked of it; the module defines the terms.

    `blocks` partition the slots into interchangeable ones. `isolated` is the set of slots that must have
    pairwise different positions. Each of `subtrees` is a set of slots; `below[p]` is the set of positions in
    the subtree of p, itself included. `coverage` lists, per trait condition of the unsuffixed group, the
    positions that satisfy it; one of `collective` (slots) must take one of them. `exclusive[p]`, if given,
    are the positions that may not be used together with p. `splitting`, if given, has the slots that several
    positions serve between them; no other field speaks of these slots.
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
        """Return whether the slots do not influence each other at all."""
        return not (
            self.isolated.bit_count() > 1
            or self.contentions
            or self.subtrees
            or self.coverage
            or self.exclusive
        )


def bits(mask: int) -> Iterator[int]:
    """Yield the members of a bit set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def union(masks: Iterable[int]) -> int:
    """Return the union of bit sets."""
    return reduce(or_, masks, 0)


# Bipartite matching: can every slot get a position of its own? Proves infeasibility in polynomial time.


def can_match(domains: Sequence[int], capacities: Sequence[int], budget: Budget) -> bool:
    """Return whether all slots can be placed at once, `capacities[p]` slots at position p.

    `domains` holds one bit set of positions per slot. Augmenting paths follow Kuhn, shortest first.
    Raises SearchEnded.
    """
    holders: dict[int, set[int]] = {}
    place_of: dict[int, int] = {}
    for newcomer in range(len(domains)):
        budget.spend()
        free, reached_by = _nearest_room(newcomer, domains, capacities, holders, budget)
        if free is None:
            return False
        # Each slot of the path moves to the position it reached, which frees its former one for the next.
        while free is not None:
            slot = reached_by[free]
            former = place_of.get(slot)
            if former is not None:
                holders[former].discard(slot)
            holders[free].add(slot)
            place_of[slot] = free
            free = former
    return True


def _nearest_room(
    newcomer: int,
    domains: Sequence[int],
    capacities: Sequence[int],
    holders: dict[int, set[int]],
    budget: Budget,
) -> tuple[int | None, dict[int, int]]:
    """Return the nearest position with room if slots move, and which slot reached each position first."""
    reached_by: dict[int, int] = {}
    queue, visited = [newcomer], 0
    for slot in queue:
        fresh = domains[slot] & ~visited
        visited |= fresh
        for position in bits(fresh):
            reached_by[position] = slot
            held = holders.setdefault(position, set())
            if len(held) < capacities[position]:
                return position, reached_by
            queue.extend(held)
        if len(queue) > 1:
            budget.spend()
    return None, reached_by


# Bounds of bin packing: proofs that amounts cannot be placed, without trying.
#
# A bound may let something impossible pass; what it refuses is impossible.
# Source: Martello and Toth, Lower bounds for the bin packing problem (L2); Fekete and Schepers, New classes
# of fast lower bounds for bin packing problems (dual feasible functions).


# Functions of Fekete and Schepers beyond these prove next to nothing more.
_MOST_PARTS = 5


def can_pack(demand: Sequence[int], room: Sequence[int], domains: Sequence[int], budget: Budget) -> bool:
    """Return whether the amounts could be placed: `demand[slot]` (0: none) in the bit set `domains[slot]`.

    `room[position]` is what a position can take in sum. Raises SearchEnded.
    """
    slots = [slot for slot, amount in enumerate(demand) if amount]
    if _fits_greedily(demand, room, domains, slots):
        return True
    for least in sorted({demand[slot] for slot in slots}):
        large = [slot for slot in slots if demand[slot] >= least]
        sums = _sums([demand[slot] for slot in large])
        capacities = [bisect_right(sums, left) for left in room]
        if not can_match([domains[slot] for slot in large], capacities, budget):
            return False
    return can_fill([demand[slot] for slot in slots], _reached(slots, room, domains))


def can_still_pack(
    demand: Sequence[int], room: Sequence[int], domains: Sequence[int], slots: Sequence[int]
) -> bool:
    """Return a weaker answer than `can_pack` for some slots, faster: each may go where any of them may."""
    asking = [slot for slot in slots if demand[slot]]
    if len(asking) < 2 or _fits_greedily(demand, room, domains, asking):
        return True
    return can_fill([demand[slot] for slot in asking], _reached(asking, room, domains))


def _fits_greedily(
    demand: Sequence[int], room: Sequence[int], domains: Sequence[int], slots: Sequence[int]
) -> bool:
    """Return whether first fit, the largest first, places all: then no bound can refuse them."""
    left = list(room)
    for slot in sorted(slots, key=demand.__getitem__, reverse=True):
        amount = demand[slot]
        place = next((position for position in bits(domains[slot]) if left[position] >= amount), None)
        if place is None:
            return False
        left[place] -= amount
    return True


def _reached(slots: Sequence[int], room: Sequence[int], domains: Sequence[int]) -> list[int]:
    return [room[position] for position in bits(union(domains[slot] for slot in slots))]


def can_fill(amounts: Sequence[int], rooms: Sequence[int]) -> bool:
    """Return whether the amounts (above 0) could fill bins of these sizes, each amount any bin."""
    ascending = sorted(amounts)
    for at in range(len(ascending)):
        if at and ascending[at] == ascending[at - 1]:
            continue
        # No bin holds more of the large ones than of the smallest among them.
        sums = _sums(ascending[at:])
        if sum(bisect_right(sums, room) for room in rooms) < len(sums):
            return False
    size = max(rooms, default=0)
    # Bins of one size, some of which hold something already.
    items = [*ascending, *(size - room for room in rooms if room < size)]
    return all(
        sum(map(function, items)) <= len(rooms) * function(size) for function in _functions(ascending, size)
    )


def _sums(ascending: Sequence[int]) -> list[int]:
    """Return the sums of the smallest one, two, three ... amounts."""
    return list(accumulate(sorted(ascending)))


def _functions(amounts: Sequence[int], size: int) -> Iterator[Callable[[int], int]]:
    """Yield functions of amounts: over one bin, their sum never exceeds the function of the bin's size."""
    thresholds = {amount if 2 * amount <= size else size - amount + 1 for amount in amounts}
    for threshold in sorted(thresholds):
        if 2 * threshold <= size:
            yield partial(_rounded, size, threshold)
    for parts in range(1, _MOST_PARTS + 1):
        yield partial(_in_parts, size, parts)


def _rounded(size: int, threshold: int, amount: int) -> int:
    """Round an amount: to the bin's size if it leaves less than the threshold, to 0 if it is below it."""
    if amount > size - threshold:
        return size
    return 0 if amount < threshold else amount


def _in_parts(size: int, parts: int, amount: int) -> int:
    """Return the amount in parts of the bin, rounded down unless it is whole: u(k) times k."""
    whole, rest = divmod((parts + 1) * amount, size)
    return whole * size if rest else parts * amount


# A half-filled problem: the slots that have positions, and what that leaves for the others.


_NOWHERE = -1
# Narrowing this many slots takes about as long as choosing a position.
_SLOTS_PER_STEP = 16


class Assignment:
    """A record of the positions chosen so far and the room that is left.

    Domains, one bit set of positions per slot, are passed along instead: each step has its own.
    """

    def __init__(self, problem: Problem, budget: Budget) -> None:
        self.problem = problem
        self._budget = budget
        options = problem.options
        # The tightest block first: a wrong choice then shows early.
        blocks = sorted(problem.blocks, key=lambda block: options[block[0]].bit_count())
        self.order = tuple(slot for block in blocks for slot in block)
        self.chosen = [_NOWHERE] * len(options)
        self.room = [list(contention.headroom) for contention in problem.contentions]
        self._place_of = {slot: (block, at) for block in blocks for at, slot in enumerate(block)}
        self._constraints_of = [
            tuple(mask for mask in problem.subtrees if mask >> slot & 1) for slot in range(len(options))
        ]
        self._contended = [
            tuple(at for at, contention in enumerate(problem.contentions) if contention.demand[slot])
            for slot in range(len(options))
        ]

    def begin(self) -> list[int] | None:
        """Return the domains before any slot has a position, None if there is obviously no solution."""
        problem, domains = self.problem, list(self.problem.options)
        packs = (can_pack(each.demand, each.headroom, domains, self._budget) for each in problem.contentions)
        able = (
            self._contention_can_hold(self.order, domains)
            and all(packs)
            and all(self._narrow_subtree(each, self.order, domains) for each in problem.subtrees)
            and self._narrow_coverage(self.order, domains)
            and self._isolation_can_hold(self.order, domains)
        )
        return domains if able else None

    def assign(
        self, slot: int, position: int, unassigned: Solution, domains: list[int], *, ascending: bool
    ) -> list[int] | None:
        """Put the slot at a position; return the domains of the `unassigned` others, None if one is empty.

        `ascending`: interchangeable slots take ascending positions only. `unassign` undoes it in both cases.
        Raises SearchEnded.
        """
        self._budget.spend(1 + len(unassigned) // _SLOTS_PER_STEP)
        problem, here = self.problem, 1 << position
        self.chosen[slot] = position
        narrowed = domains.copy()
        if ascending:
            block, at = self._place_of[slot]
            for other in block[at + 1 :]:
                narrowed[other] &= -here
        if problem.isolated >> slot & 1:
            for other in unassigned:
                if problem.isolated >> other & 1:
                    narrowed[other] &= ~here
        if problem.exclusive:
            allowed = ~problem.exclusive[position]
            for other in unassigned:
                narrowed[other] &= allowed
        for at in self._contended[slot]:
            demand, room = problem.contentions[at].demand, self.room[at]
            room[position] -= demand[slot]
            for other in unassigned:
                if demand[other] > room[position]:
                    narrowed[other] &= ~here
        able = (
            all(self._narrow_subtree(each, unassigned, narrowed) for each in self._constraints_of[slot])
            and (not problem.coverage or self._narrow_coverage(unassigned, narrowed))
            and all(narrowed[other] for other in unassigned)
            and self._isolation_can_hold(unassigned, narrowed)
            and self._contention_can_hold(unassigned, narrowed)
        )
        return narrowed if able else None

    def unassign(self, slot: int) -> None:
        """Take the slot from its position, if it has one."""
        position = self.chosen[slot]
        if position == _NOWHERE:
            return
        self.chosen[slot] = _NOWHERE
        for at in self._contended[slot]:
            self.room[at][position] += self.problem.contentions[at].demand[slot]

    def _narrow_subtree(self, constraint: int, unassigned: Solution, domains: list[int]) -> bool:
        """Keep what lies below a position that can still be the common ancestor; return False if none can."""
        below = self.problem.below
        still_open = [slot for slot in unassigned if constraint >> slot & 1]
        taken = union(1 << self.chosen[slot] for slot in bits(constraint) if self.chosen[slot] >= 0)
        allowed = 0
        for top in bits(union(domains[slot] for slot in still_open) | taken):
            under = below[top]
            if not taken & ~under and all(domains[slot] & under for slot in still_open):
                allowed |= under
        for slot in still_open:
            domains[slot] &= allowed
        return allowed != 0

    def _narrow_coverage(self, unassigned: Solution, domains: list[int]) -> bool:
        """Keep the unsuffixed group's trait conditions met or within reach; return False if one is not."""
        still_open = [slot for slot in unassigned if self.problem.collective >> slot & 1]
        for satisfying in self.uncovered():
            able = [slot for slot in still_open if domains[slot] & satisfying]
            if not able:
                return False
            if len(able) == 1:
                domains[able[0]] &= satisfying
        return True

    def uncovered(self) -> list[int]:
        """Return the trait conditions of the unsuffixed group that no chosen position meets."""
        problem, chosen = self.problem, self.chosen
        if not problem.coverage:
            return []
        taken = union(1 << chosen[slot] for slot in bits(problem.collective) if chosen[slot] >= 0)
        return [satisfying for satisfying in problem.coverage if not satisfying & taken]

    def _isolation_can_hold(self, unassigned: Solution, domains: list[int]) -> bool:
        isolated = [domains[slot] for slot in unassigned if self.problem.isolated >> slot & 1]
        if all(domain.bit_count() >= len(isolated) for domain in isolated):
            return True
        capacities = [1] * max(domain.bit_length() for domain in isolated)
        return can_match(isolated, capacities, self._budget)

    def _contention_can_hold(self, unassigned: Solution, domains: list[int]) -> bool:
        """Return whether for every class enough is left where the unassigned slots may take it."""
        for contention, room in zip(self.problem.contentions, self.room, strict=True):
            wanted = reachable = 0
            for slot in unassigned:
                if contention.demand[slot]:
                    wanted += contention.demand[slot]
                    reachable |= domains[slot]
            if wanted > sum(room[position] for position in bits(reachable)):
                return False
        return True
