"""What plans are for: room for requests, empty hosts, cores that are of use again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from placement.search.budget import SearchEnded
from placement.services.planning.moves.board import Board, Consumer
from placement.services.planning.moves.making_room import NEVER, RoomMaker
from placement.services.planning.moves.plan import Bound
from placement.services.planning.moves.wishes import Wish

SUMS, SEARCH, IMPOSSIBLE = "sums", "search", "impossible"
# Moves that depend on one another are looked for so deep: each of them takes some frames of the stack.
_DEEPEST = 150


@dataclass(slots=True)
class Reached:
    """How much of what was wanted the moves on the board achieve; `left` could not go, and why."""

    wanted: int
    achieved: int = 0
    complete: bool = True
    bound: Bound = field(default_factory=lambda: Bound(0, SUMS))
    left: list[tuple[Consumer, str]] = field(default_factory=list)
    emptied: list[int] = field(default_factory=list)


class _First(NamedTuple):
    """Whether a way was found, and how many moves are too few as all ways with them were tried; -1: none.

    `hopeless`: there is none however many moves are allowed.
    """

    found: bool
    too_few: int
    hopeless: bool = False


class Goals:
    """Makes the moves on a board, at most so many."""

    def __init__(self, board: Board, maker: RoomMaker, most: int) -> None:
        self._board, self._maker, self._most = board, maker, most
        here = {each.uuid: each for on in board.on.values() for each in on.values()}
        self._movable = sum(maker.may_move(each) for each in here.values())

    @property
    def spare(self) -> int:
        """How many more moves there may be."""
        return self._most - len(self._board.moved)

    def fit(self, wish: Wish, wanted: int, fits_already: Callable[[], bool]) -> Reached:
        """Place so many requests. `fits_already` tells whether all of them may fit without any move."""
        reached = Reached(wanted)
        needed = self._needed(wish)
        while reached.achieved < wanted:
            first = self._first(lambda spare: self._maker.requests(wish, spare), self.spare, reached)
            if not reached.achieved and first.too_few >= 0:
                reached.bound = self._bound(first, needed)
            if not first.found:
                break
            reached.achieved += 1
        if reached.bound == Bound(0, SUMS) and not fits_already():
            reached.bound = Bound(1, SUMS)
        return reached

    def _needed(self, wish: Wish) -> int:
        """How many moves sums show to be needed where a request does not fit without any."""
        try:
            return self._maker.bound(wish)
        except SearchEnded as ended:
            if ended.abandoned:
                raise
            return 1

    def _bound(self, first: _First, needed: int) -> Bound:
        """How many moves the first request takes at least; `needed`, as sums show."""
        if needed == NEVER:
            return Bound(0, IMPOSSIBLE)
        if self._board.ground.was_cut:
            # Not all ways with fewer were looked at.
            return Bound(needed, SUMS)
        return Bound(0, IMPOSSIBLE) if first.hopeless else Bound(first.too_few + 1, SEARCH)

    def _first(self, ways: Callable[[int], Iterator[int]], most: int, reached: Reached) -> _First:
        """Take the first way with the fewest moves, at most so many."""
        mark = self._board.mark()
        movable = self._movable - len(self._board.moved)
        deepest = min(most, movable, _DEEPEST)
        for spare in range(deepest + 1):
            try:
                if next(ways(spare), None) is not None:
                    return _First(True, spare - 1)
            except SearchEnded as ended:
                if ended.abandoned:
                    raise
                self._board.back(mark)
                self._maker.forget()
                reached.complete = False
                return _First(False, spare - 1)
        if deepest < min(most, movable):
            reached.complete = False
        return _First(False, deepest, deepest == movable)

    def empty(self, roots: Sequence[int]) -> Reached:
        """Move everybody away from hosts."""
        reached = Reached(len(roots))
        here = [len(self._board.on.get(root, ())) for root in roots]
        reached.bound = Bound(sum(here), SUMS)
        for root in roots:
            self._board.close(root)
        for root in roots:
            before = len(reached.left)
            self._vacate(root, reached)
            if len(reached.left) == before and not self._board.on.get(root):
                reached.achieved += 1
                reached.emptied.append(root)
        return reached

    def _vacate(self, root: int, reached: Reached) -> None:
        # Chains of moves are looked for when everybody has gone who can go without.
        for others in (0, self._most):
            left = self._left_of(root, others, reached)
        reached.left += left

    def _left_of(self, root: int, others: int, reached: Reached) -> list[tuple[Consumer, str]]:
        """Move whom so many moves of others let go; who stays, and why."""
        left = []
        for consumer in self._by_size(root):
            why = self._maker.why_not(consumer)
            if not why and self.spare < 1:
                why = "no more moves are allowed"
            if not why and not reached.complete:
                why = "found no other place before the time was up"
            if not why:
                most = min(self.spare - 1, others)
                found = self._first(partial(self._maker.moves, consumer), most, reached)
                if not found.found:
                    why = "found no other place"
            if why:
                left.append((consumer, why))
        return left

    def _by_size(self, root: int) -> list[Consumer]:
        here = self._board.on.get(root, {}).values()
        return sorted(here, key=lambda each: (-sum(draw.amount for draw in each.spot.draws), each.uuid))

    def free(self, wanted: int, roots: Sequence[int]) -> Reached:
        """Empty so many more of these hosts; those that are empty already stay so."""
        board, reached = self._board, Reached(wanted)
        counts = sorted((len(board.on.get(root, ())), at, root) for at, root in enumerate(roots))
        reached.bound = Bound(sum(each for each, _, _ in [one for one in counts if one[0]][:wanted]), SUMS)
        for each, _, root in counts:
            if not each:
                board.close(root)
        for each, _, root in counts:
            if reached.achieved == wanted or not reached.complete:
                break
            if each and each <= self.spare:
                mark, trial = board.mark(), Reached(1)
                board.close(root)
                self._vacate(root, trial)
                reached.complete = trial.complete
                if trial.left or board.on.get(root):
                    board.back(mark)
                    continue
                reached.achieved += 1
                reached.emptied.append(root)
        return reached


def fewest_hosts(stranded: Sequence[int], regained: int) -> int:
    """How many moves it takes at least to regain so much: each changes two hosts."""
    left, moves = regained, 0
    largest = sorted(stranded, reverse=True)
    for at in range(0, len(largest), 2):
        if left <= 0:
            break
        left -= sum(largest[at : at + 2])
        moves += 1
    return moves
