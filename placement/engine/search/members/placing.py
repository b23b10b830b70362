"""The placement of members under rules: place by place where all are together, else at once.

The first try takes the best one after another. Where it falls short of the sums of free amounts, another
order and then all ways are tried, up to a number of steps. A result is proven if all ways were tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from placement.engine.domain.member_rules import RuleKind
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.members.backtracking import Backtracking
from placement.engine.search.members.bounds import most_of
from placement.engine.search.members.one_by_one import place_each
from placement.engine.search.members.quotas import Quota, quota_of
from placement.engine.search.members.state import (
    AssignedCandidate,
    MemberKind,
    PlacementState,
)
from placement.engine.search.members.tallies import Tally

_STEPS = 30_000


# More members are not tried: the search is recursive, and the stack of Python is limited.
_MOST_TRIED = 200


# A place where no consumer is: members that have to be together are not placed at all.
_NONE = -2


@dataclass(slots=True)
class MemberPlacing:
    """A decision that places members; at its end the state has their candidates."""

    state: PlacementState
    members: Sequence[MemberKind]
    budget: Budget
    steps: int = _STEPS

    def run(self) -> PlacedMembers:
        """Place as many as possible. Raises SearchEnded if the caller left or nothing was found in time."""
        self._search_candidates()
        tallies = [
            each for each in self.state.tallies if each.rule.kind is RuleKind.TOGETHER and each.rule.is_hard
        ]
        placed, in_time = self._best_of_frames(tallies)
        whole = placed.count == len(self.members)
        if not (whole and len(self.state.candidates) == placed.count):
            self._give_again(tallies, placed)
        proven = whole or (placed.proven and in_time and not self._has_unknown_places(tallies))
        return PlacedMembers(placed.candidates, proven, placed.frame)

    def _search_candidates(self) -> None:
        for kind in dict.fromkeys(self.members):
            self.budget.look()
            self.state.table(kind)

    def _best_of_frames(self, tallies: Sequence[Tally]) -> tuple[PlacedMembers, bool]:
        """Return the most members that one frame has, and whether the time was enough for all frames."""
        placed: PlacedMembers | None = None
        in_time = True
        try:
            for bound, frame in self._frames(tallies):
                if placed is not None and bound <= placed.count:
                    break
                self.budget.look()
                placed = self._better(placed, self._framed(tallies, frame, bound))
                if placed.count == len(self.members):
                    break
        except SearchEnded as ended:
            if ended.abandoned or placed is None:
                raise
            in_time = False
        return placed or PlacedMembers([None] * len(self.members), True), in_time

    def _give_again(self, tallies: Sequence[Tally], placed: PlacedMembers) -> None:
        """Bring the state back to an earlier result."""
        self.state.clear()
        for tally, place in zip(tallies, placed.frame, strict=False):
            tally.frame = place
        for each in placed.candidates:
            if each is not None:
                self.state.give(each.kind, each.table, each.at)

    def _has_unknown_places(self, tallies: Sequence[Tally]) -> bool:
        """Return whether a rule may have further places: providers that no table shows."""
        return any(not tally.rule.on_hosts and self._is_cut(self._concerned(tally)[1]) for tally in tallies)

    @staticmethod
    def _better(placed: PlacedMembers | None, other_placed: PlacedMembers) -> PlacedMembers:
        if placed is None:
            return other_placed
        winner = other_placed if other_placed.count > placed.count else placed
        return PlacedMembers(winner.candidates, placed.proven and other_placed.proven, winner.frame)

    # -- frames: where all are together -------------------------------------------------------------

    def _frames(self, tallies: Sequence[Tally]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield (most members, a place per rule that keeps members together), the most room first."""
        if not tallies:
            yield len(self.members), ()
            return
        choices = [self._choices(tally) for tally in tallies]
        # Frames may be too many to be listed; each leads to the frames one step further down a list.
        heap = [(-min(each[0][0] for each in choices), (0,) * len(choices))]
        while heap:
            self.budget.spend()
            bound, at = heappop(heap)
            yield -bound, tuple(each[number][1] for each, number in zip(choices, at, strict=True))
            # Only from the last list that was begun onwards, so that no frame is reached twice.
            begun = max((turn for turn, number in enumerate(at) if number), default=0)
            for turn in range(begun, len(at)):
                if at[turn] + 1 < len(choices[turn]):
                    further = (*at[:turn], at[turn] + 1, *at[turn + 1 :])
                    heappush(heap, (max(bound, -choices[turn][at[turn] + 1][0]), further))

    def _choices(self, tally: Tally) -> list[tuple[int, int]]:
        """Return how many members each place has room for at most, and the place, in descending order.

        Equals have the order of their candidates; places without known candidates are last.
        """
        number, kinds = self._concerned(tally)
        if not kinds:
            return [(len(self.members), _NONE)]
        there = tally.rule.counted[tally.rule.counted >= 0]
        first = np.concatenate([self.state.first_table(kind).places[number].ravel() for kind in kinds])
        _, at = np.unique(first, return_index=True)
        places = [place for place in first[np.sort(at)].tolist() if place >= 0]
        if len(tally.rule.counted):
            places = [place for place in places if place in set(there.tolist())]
            if self._is_cut(kinds):
                places = list(dict.fromkeys([*places, *there.tolist()]))
        others = sum(number not in kind.rules for kind in self.members)
        if not tally.rule.on_hosts:
            return [*((len(self.members), place) for place in places), (others, _NONE)]
        bounds = np.full(tally.rule.places.count + 1, others)
        counts = Counter(self.members)
        roots = self.state.forest.roots.astype(np.intp)
        where = tally.rule.places.of(roots[:, None])
        inside = where.ravel() >= 0
        for kind in kinds:
            room = np.zeros(len(bounds), np.int64)
            np.add.at(room, where.ravel()[inside], np.repeat(kind.room()[roots], where.shape[1])[inside])
            bounds += np.minimum(room, counts[kind])
        if self._is_cut(kinds) and not len(tally.rule.counted):
            places = list(dict.fromkeys([*places, *np.flatnonzero(bounds > others).tolist()]))
        found = sorted(((int(bounds[place]), place) for place in places), key=lambda each: -each[0])
        return [*found, (others, _NONE)]

    def _concerned(self, tally: Tally) -> tuple[int, list[MemberKind]]:
        """Return the number of a rule, and the kinds that have it."""
        number = self.state.tallies.index(tally)
        return number, [kind for kind in dict.fromkeys(self.members) if number in kind.rules]

    def _is_cut(self, kinds: Sequence[MemberKind]) -> bool:
        """Return whether there may be candidates that no table shows."""
        return any(self.state.first_table(kind).is_cut for kind in kinds)

    # -- one frame ----------------------------------------------------------------------------------

    def _framed(self, tallies: Sequence[Tally], frame: tuple[int, ...], bound: int) -> PlacedMembers:
        for tally, place in zip(tallies, frame, strict=True):
            tally.frame = place
        placed = self._greedily(self.members, frame)
        if placed.count == len(self.members):
            return placed
        hardest_first = sorted(self.members, key=lambda kind: len(self.state.first_table(kind).hosts))
        if len(set(self.members)) > 1:
            placed = self._better(placed, self._greedily(hardest_first, frame))
        self.state.clear()
        counts = Counter(self.members)
        most = (min(count, most_of(self.state, kind, list(counts))) for kind, count in counts.items())
        bound = min(bound, sum(most))
        if placed.count < bound and len(set(self.members)) == 1:
            quota = quota_of(self.state, self.members[0])
            if quota is not None:
                bound = min(bound, quota.total)
                placed = self._better(placed, self._greedily(self.members, frame, quota))
        return self._tried(placed, bound, frame)

    def _greedily(
        self, members: Sequence[MemberKind], frame: tuple[int, ...], quota: Quota | None = None
    ) -> PlacedMembers:
        self.state.clear()
        return self._in_order(place_each(self.state, members, self.budget, quota), frame)

    def _tried(self, placed: PlacedMembers, bound: int, frame: tuple[int, ...]) -> PlacedMembers:
        """Place more members than `placed`, as long as all ways can be tried."""
        while placed.count < bound:
            if len(self.members) > _MOST_TRIED or self.steps <= 0:
                return placed
            self.state.clear()
            backtracking = Backtracking(self.state, self.members, self.steps, self.budget)
            try:
                found = backtracking.run(placed.count + 1)
            except SearchEnded as ended:
                if ended.abandoned:
                    raise
                self.steps = 0
                return placed
            self.steps = backtracking.steps_left
            if not found:
                return PlacedMembers(placed.candidates, backtracking.is_complete, frame)
            placed = self._in_order(self.state.candidates, frame)
        return PlacedMembers(placed.candidates, True, frame)

    def _in_order(
        self, candidates: Sequence[AssignedCandidate | None], frame: tuple[int, ...]
    ) -> PlacedMembers:
        """Return the candidates, in the order of the members; the result is not proven."""
        by_kind: dict[MemberKind, list[AssignedCandidate]] = {}
        for each in candidates:
            if each is not None:
                by_kind.setdefault(each.kind, []).append(each)
        queues = {kind: iter(each) for kind, each in by_kind.items()}
        return PlacedMembers([next(queues.get(kind, iter(())), None) for kind in self.members], False, frame)


@dataclass(frozen=True, slots=True)
class PlacedMembers:
    """A result: the candidate of each member, or None; `proven`: no more members can be placed."""

    candidates: Sequence[AssignedCandidate | None]
    proven: bool
    frame: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How many members have a candidate."""
        return sum(each is not None for each in self.candidates)
