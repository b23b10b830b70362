"""Moves after which more of what is free is of use: those that regain most come first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from placement.search.budget import SearchEnded
from placement.services.planning.moves.board import Board, Relocation, Spot
from placement.services.planning.moves.goals import SUMS, TIME_UP, Reached, fewest_hosts
from placement.services.planning.moves.making_room import RoomMaker
from placement.services.planning.moves.plan import Bound
from placement.services.planning.moves.wishes import QueryWish

# So many leave a host together, each for one of so many places that are better than others.
_MOST_TOGETHER, _MOST_SPOTS, _MOST_WAYS, _MOST_SETS = 4, 4, 4, 6


class Defragmenting:
    """Reduces what is stranded of a class for a request: free where no more of it fits."""

    def __init__(
        self, board: Board, maker: RoomMaker, wish: QueryWish, class_id: int, roots: Collection[int]
    ) -> None:
        """On the hosts with these roots. Raises SearchEnded."""
        self._board, self._maker, self._wish = board, maker, wish
        self._queries, self._class_id = wish.queries, class_id
        self._roots = frozenset(roots)
        everywhere = board.ground.stranded(wish.queries, class_id)
        self._stranded = {root: everywhere[root] for root in roots if root in everywhere}
        self._at_first = dict(self._stranded)
        self._offers: dict[int, bool] = {}
        maker.choose = self._chosen

    @property
    def total(self) -> int:
        """How much is stranded now."""
        return sum(self._stranded.values())

    def run(self, most: int) -> Reached:
        """Make at most so many moves."""
        reached = Reached(self.total)
        try:
            worth = max(self._stranded.values(), default=0)
            while worth:
                if not self._pass(worth, most):
                    worth //= 2
        except SearchEnded as ended:
            if ended.abandoned:
                raise
            self._maker.forget()
            reached.why = TIME_UP
        reached.achieved = reached.wanted - self.total
        if self.total:
            reached.complete = False
            reached.why = reached.why or "the moves that regain most were made first, not all ways were tried"
        least = fewest_hosts(list(self._at_first.values()), reached.achieved)
        reached.bound = Bound(least, SUMS)
        return reached

    def _pass(self, worth: int, most: int) -> bool:
        """Make moves that regain so much each, or more; whether there were any."""
        found = False
        hosts = sorted(self._stranded, key=lambda root: (-self._stranded[root], root))
        for root in hosts:
            for size in range(1, _MOST_TOGETHER + 1):
                here = self._stranded.get(root, 0)
                if here < size * worth or len(self._board.moved) + size > most:
                    break
                if self._improved(root, size, worth):
                    found = True
                    break
        return found

    def _improved(self, root: int, size: int, worth: int) -> bool:
        """Have so many leave a host where that is worth it."""
        board = self._board
        sets = list(islice(self._maker.in_the_way(self._wish, root, size), _MOST_SETS))
        for some, spot in sets:
            mark = board.mark()
            try:
                for _ in islice(self._maker.replacing(some, spot, size), _MOST_WAYS):
                    if self._accepted(spot, size * worth):
                        return True
            except SearchEnded:
                board.back(mark)
                raise
            board.back(mark)
        return False

    def _accepted(self, spot: Spot, worth: int) -> bool:
        """Keep the moves that were made for a spot if they regain so much."""
        board = self._board
        mark = board.mark()
        board.release(spot)
        touched = self._touched(spot, board.moved[-_MOST_TOGETHER:])
        now = board.ground.stranded(self._queries, self._class_id, touched)
        gain = sum(self._stranded.get(each, 0) - now.get(each, 0) for each in touched)
        if gain < worth:
            board.back(mark)
            return False
        for each in touched:
            self._stranded.pop(each, None)
        self._stranded.update(now)
        return True

    def _touched(self, spot: Spot, moved: Sequence[Relocation]) -> set[int]:
        """The hosts where another amount may be stranded after these moves for a spot."""
        touched, left = {spot.root}, Counter[tuple[int, int]]()
        for each in moved:
            touched |= {each.consumer.root, each.to.root}
            left.update({(row, name): amount for row, name, amount in each.consumer.spot.draws})
            left.subtract({(row, name): amount for row, name, amount in each.to.draws})
        if any(amount and self._board.ground.is_shared(row) for (row, _), amount in left.items()):
            # What a sharing provider has left decides about hosts that nothing came to or left.
            touched |= self._roots
        return touched

    def _chosen(self, spots: Iterable[Spot]) -> list[Spot]:
        """Those that harm least: hosts without the class first, then those where it is stranded anyway."""
        return sorted(spots, key=self._harm)[:_MOST_SPOTS]

    def _harm(self, spot: Spot) -> tuple[int, int]:
        if not self._has_class(spot.root):
            return 0, 0
        return (1, -self._stranded[spot.root]) if spot.root in self._stranded else (2, 0)

    def _has_class(self, root: int) -> bool:
        if root not in self._offers:
            self._offers[root] = self._board.ground.offers(root, self._class_id)
        return self._offers[root]
