"""The placement of members under rules: place by place where all are together, else at once.

Taking the best one after another comes first. Where that falls short of what sums allow, another order and
then all ways are tried, up to a number of steps. What was not tried to the end is not proven.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from placement.engine.domain.groups import RuleKind
from placement.engine.forest.arrays import Mask
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.members.board import (
    AssignedCandidate,
    CandidateTable,
    MemberKind,
    PlacementState,
    Quota,
    most_of,
    quota_of,
)
from placement.engine.search.members.places import Tally

# One member after another gets the best candidate that the rules leave.


_EQUAL = 1e-9


def place_each(
    board: PlacementState, members: Sequence[MemberKind], budget: Budget, quota: Quota | None = None
) -> list[AssignedCandidate | None]:
    """Return what each of the members gets, None where nothing is left, or no quota. Raises SearchEnded."""
    found: list[AssignedCandidate | None] = []
    # A kind that got nothing may get something only after another member did.
    stuck: dict[MemberKind, int] = {}
    for kind in members:
        budget.spend()
        if stuck.get(kind) == board.version:
            found.append(None)
            continue
        best = best_left(board, kind, quota)
        if best is None:
            stuck[kind] = board.version
            found.append(None)
            continue
        table, at = best
        board.give(kind, table, at)
        if quota is not None:
            quota.use(int(table.hosts[at]))
        found.append(board.given[-1])
        board.score_again(board.given[-1])
    return found


def best_left(
    board: PlacementState, kind: MemberKind, quota: Quota | None = None
) -> tuple[CandidateTable, int] | None:
    """Return the best candidate of a kind that there is room for and that the rules allow, or None.

    The candidates that break soft rules the least come first, then the ones that the order prefers.
    """
    table = board.table(kind)
    while True:
        fine = table.alive.copy()
        for number, tally in board.hard(kind):
            fine &= tally.allowed(table.places[number])
        if quota is not None:
            fine &= quota.open(table.hosts)
        at = _best(board, kind, table, fine)
        if at is None:
            # Other candidates may have been cut, and candidates that split an amount depend on what is left.
            stale = (table.is_cut or table.answer.splits) and table.at_version < board.version
            if not (stale or (table.is_cut and not table.narrowed)):
                return None
            table = board.search_again(kind)
        elif table.answer.splits and board.touched_since(int(table.hosts[at]), table.at_version):
            table = board.search_again(kind)
        elif board.forest.has_room(table.draws(at)):
            return table, at
        else:
            table.alive[at] = False


def _best(board: PlacementState, kind: MemberKind, table: CandidateTable, fine: Mask) -> int | None:
    if not fine.any():
        return None
    soft = [number for number in kind.rules if not board.tallies[number].rule.is_hard]
    if soft:
        penalties = sum(
            (board.tallies[number].penalties(table.places[number]) for number in soft), np.zeros(len(fine))
        )
        fine = fine & (penalties <= penalties[fine].min() + _EQUAL)
    if not table.answer.is_ordered:
        return int(fine.argmax())
    return int(np.where(fine, table.scores, np.iinfo(np.int64).min).argmax())


# Trying all ways to place so many members, where taking the best one after another fell short.


class Backtracking:
    """A depth-first search: members of a kind get candidates in ascending order, as they are alike."""

    def __init__(
        self, board: PlacementState, members: Sequence[MemberKind], steps: int, budget: Budget
    ) -> None:
        self._board = board
        self._members = sorted(members, key=lambda kind: len(board.first_table(kind).hosts))
        kinds = list(dict.fromkeys(self._members))
        # Members of a kind side by side.
        self._members.sort(key=kinds.index)
        self.steps_left = steps
        self._budget = budget

    @property
    def is_complete(self) -> bool:
        """Return whether all ways that there are were tried, if nothing was found."""
        tables = [self._board.first_table(kind) for kind in set(self._members)]
        return self.steps_left > 0 and not any(table.is_cut or table.answer.splits for table in tables)

    def run(self, wanted: int) -> bool:
        """Place `wanted` members on a cleared board; return whether that was possible. Raises SearchEnded."""
        return self._go_on(0, 0, len(self._members) - wanted)

    def _go_on(self, member: int, first: int, spare: int) -> bool:
        board = self._board
        if member == len(self._members):
            # Spreads hold or not with the last member.
            tallies = enumerate(board.tallies)
            spreads = [at for at, each in tallies if each.rule.kind is RuleKind.SPREAD and each.rule.is_hard]
            return not any(board.excess(number) for number in spreads)
        kind = self._members[member]
        following = member + 1 < len(self._members) and self._members[member + 1] is kind
        table, hard = board.first_table(kind), board.hard(kind)
        for at in range(first, len(table.hosts)):
            self.steps_left -= 1
            self._budget.spend()
            if self.steps_left <= 0:
                return False
            admitted = all(tally.admits(table.places[number][at].tolist()) for number, tally in hard)
            if admitted and board.forest.has_room(table.draws(at)):
                board.give(kind, table, at)
                if self._go_on(member + 1, at if following else 0, spare):
                    return True
                board.give_back()
        rest = sum(each is kind for each in self._members[member:])
        return rest <= spare and self._go_on(member + rest, 0, spare - rest)


_STEPS = 30_000
# More members are not tried: the search is recursive, and the stack of Python is limited.
_MOST_TRIED = 200
# A place where no consumer is: members that have to be together are not placed at all.
_NONE = -2


@dataclass(frozen=True, slots=True)
class PlacedMembers:
    """A result: what each member was given, None where nothing; `proven`: no more of them can be placed."""

    given: Sequence[AssignedCandidate | None]
    proven: bool
    frame: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Return how many members were given something."""
        return sum(each is not None for each in self.given)


@dataclass(slots=True)
class MemberPlacing:
    """A decision that places members; at its end the board holds what the members were given."""

    board: PlacementState
    members: Sequence[MemberKind]
    budget: Budget
    steps: int = _STEPS

    def run(self) -> PlacedMembers:
        """Place as many as possible. Raises SearchEnded if the caller left or nothing was found in time."""
        board = self.board
        for kind in dict.fromkeys(self.members):
            self.budget.look()
            board.table(kind)
        best: PlacedMembers | None = None
        ended = False
        together = [
            each for each in board.tallies if each.rule.kind is RuleKind.TOGETHER and each.rule.is_hard
        ]
        try:
            for bound, frame in self._frames(together):
                if best is not None and bound <= best.count:
                    break
                self.budget.look()
                best = self._better(best, self._framed(together, frame, bound))
                if best.count == len(self.members):
                    break
        except SearchEnded as out:
            if out.abandoned or best is None:
                raise
            ended = True
        best = best or PlacedMembers([None] * len(self.members), True)
        whole = best.count == len(self.members)
        if not (whole and len(board.given) == best.count):
            board.clear()
            for tally, place in zip(together, best.frame, strict=False):
                tally.frame = place
            for each in best.given:
                if each is not None:
                    board.give(each.kind, each.table, each.at)
        # Some rule may have unknown places: providers that no table shows.
        unknown = any(
            not tally.rule.on_hosts and self._is_cut(self._concerned(tally)[1]) for tally in together
        )
        return PlacedMembers(best.given, whole or (best.proven and not ended and not unknown), best.frame)

    @staticmethod
    def _better(best: PlacedMembers | None, other: PlacedMembers) -> PlacedMembers:
        if best is None:
            return other
        winner = other if other.count > best.count else best
        return PlacedMembers(winner.given, best.proven and other.proven, winner.frame)

    # -- frames: where all are together -------------------------------------------------------------

    def _frames(self, together: Sequence[Tally]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield (most members, a place per rule that keeps members together), the most room first."""
        if not together:
            yield len(self.members), ()
            return
        choices = [self._choices(tally) for tally in together]
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

        Equals come as candidates do, then the places that are only known to have room.
        """
        number, kinds = self._concerned(tally)
        if not kinds:
            return [(len(self.members), _NONE)]
        there = tally.rule.counted[tally.rule.counted >= 0]
        first = np.concatenate([self.board.first_table(kind).places[number].ravel() for kind in kinds])
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
        roots = self.board.forest.roots.astype(np.intp)
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
        """Return the number of a rule, and the kinds that it is about."""
        number = self.board.tallies.index(tally)
        return number, [kind for kind in dict.fromkeys(self.members) if number in kind.rules]

    def _is_cut(self, kinds: Sequence[MemberKind]) -> bool:
        """Return whether there may be candidates that no table shows."""
        return any(self.board.first_table(kind).is_cut for kind in kinds)

    # -- one frame ----------------------------------------------------------------------------------

    def _framed(self, together: Sequence[Tally], frame: tuple[int, ...], bound: int) -> PlacedMembers:
        for tally, place in zip(together, frame, strict=True):
            tally.frame = place
        placed = self._greedily(self.members, frame)
        if placed.count == len(self.members):
            return placed
        hardest_first = sorted(self.members, key=lambda kind: len(self.board.first_table(kind).hosts))
        if len(set(self.members)) > 1:
            placed = self._better(placed, self._greedily(hardest_first, frame))
        self.board.clear()
        counts = Counter(self.members)
        most = (min(count, most_of(self.board, kind, list(counts))) for kind, count in counts.items())
        bound = min(bound, sum(most))
        if placed.count < bound and len(set(self.members)) == 1:
            quota = quota_of(self.board, self.members[0])
            if quota is not None:
                bound = min(bound, quota.total)
                placed = self._better(placed, self._greedily(self.members, frame, quota))
        return self._tried(placed, bound, frame)

    def _greedily(
        self, members: Sequence[MemberKind], frame: tuple[int, ...], quota: Quota | None = None
    ) -> PlacedMembers:
        self.board.clear()
        return self._in_order(place_each(self.board, members, self.budget, quota), frame)

    def _tried(self, placed: PlacedMembers, bound: int, frame: tuple[int, ...]) -> PlacedMembers:
        """Place more members than `placed`, as long as all ways can be tried."""
        while placed.count < bound:
            if len(self.members) > _MOST_TRIED or self.steps <= 0:
                return placed
            self.board.clear()
            trying = Backtracking(self.board, self.members, self.steps, self.budget)
            try:
                found = trying.run(placed.count + 1)
            except SearchEnded as ended:
                if ended.abandoned:
                    raise
                self.steps = 0
                return placed
            self.steps = trying.steps_left
            if not found:
                return PlacedMembers(placed.given, trying.is_complete, frame)
            placed = self._in_order(self.board.given, frame)
        return PlacedMembers(placed.given, True, frame)

    def _in_order(self, given: Sequence[AssignedCandidate | None], frame: tuple[int, ...]) -> PlacedMembers:
        """Return what was given by kinds, in the order of the members; nothing is proven by that."""
        by_kind: dict[MemberKind, list[AssignedCandidate]] = {}
        for each in given:
            if each is not None:
                by_kind.setdefault(each.kind, []).append(each)
        queues = {kind: iter(each) for kind, each in by_kind.items()}
        return PlacedMembers([next(queues.get(kind, iter(())), None) for kind in self.members], False, frame)


# Why no other member can be placed: the hosts that have room, and which rules leave them out.


@dataclass(frozen=True, slots=True)
class Hindrance:
    """A hindrance: `with_room` hosts have room for one more; `left_out` of them by each hard rule."""

    with_room: int
    left_out: dict[int, int]


def hindrance(board: PlacementState, kind: MemberKind) -> Hindrance:
    """Return what stops the next of a kind, on the board as it is."""
    table = board.searched(kind)
    hosts = len(np.unique(table.hosts))
    left_out: dict[int, int] = {}
    for number, tally in board.hard(kind):
        open_ = len(np.unique(table.hosts[tally.allowed(table.places[number])]))
        if open_ < hosts:
            left_out[number] = hosts - open_
    return Hindrance(hosts, left_out)
