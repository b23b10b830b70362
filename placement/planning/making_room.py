"""The search for moves that make room for a request, fewest first.

A request takes a spot. Each consumer in its way goes to a spot of its own, for which others may have to go in
turn. A consumer is moved on the board as it is then, with promised spots kept. So each move is possible when
the moves before it are made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

from placement.engine.search.budget import Budget
from placement.planning.board import MoveSimulation, PlacedConsumer, PlanDemand, Relocation, Spot

NEVER = 1_000_000
"""More moves than any plan has."""

_InTheWay = tuple[tuple[PlacedConsumer, ...], Spot]
"""Consumers that have to leave for a spot, and that spot."""


@dataclass(frozen=True, slots=True)
class AtMost:
    """A limit on the moves of consumers that match all given fields; `label` is one of pods, KEY=VALUE."""

    moves: int
    project_id: str | None = None
    consumer_type: str | None = None
    label: str | None = None

    def means(self, consumer: PlacedConsumer) -> bool:
        """Return whether the limit applies to a consumer."""
        if self.project_id not in (None, consumer.project_id):
            return False
        if self.consumer_type not in (None, consumer.consumer_type):
            return False
        if self.label is None:
            return True
        key, _, value = self.label.partition("=")
        return consumer.labels.get(key) == value


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """The limits of a plan. `never`: uuids of consumers that stay; `clusters`: only their hosts take part."""

    moves: int
    never: frozenset[str] = frozenset()
    clusters: tuple[str, ...] | None = None
    at_most: Sequence[AtMost] = ()

    def why_not(self, consumer: PlacedConsumer, moved: Sequence[Relocation]) -> str:
        """Return why a consumer may not be moved after these moves; empty if it may."""
        if consumer.fixed:
            return consumer.fixed
        if consumer.uuid in self.never:
            return "is never moved"
        for bound in self.at_most:
            if bound.means(consumer) and sum(bound.means(each.consumer) for each in moved) >= bound.moves:
                return f"at most {bound.moves} moves of its kind are allowed"
        return ""


class EvictionPlanner:
    """A search that looks for moves on a board, one number of moves after another."""

    def __init__(self, board: MoveSimulation, limits: PlanLimits, budget: Budget) -> None:
        self._board = board
        self.choose: Callable[[Iterable[Spot]], Iterable[Spot]] = lambda spots: spots
        """Which spots consumers are moved to, and in which order."""
        self._limits = limits
        self.budget = budget
        self._moving: set[str] = set()
        self._needed: dict[Hashable, tuple[int, float]] = {}
        self._ways: dict[Hashable, list[_InTheWay]] = {}

    def may_move(self, consumer: PlacedConsumer) -> bool:
        """Return whether a consumer may be moved next."""
        return consumer.uuid not in self._moving and not self.why_not(consumer)

    def why_not(self, consumer: PlacedConsumer) -> str:
        """Return why a consumer may not be moved next; empty if it may."""
        return self._limits.why_not(consumer, self._board.moved)

    def forget(self) -> None:
        """Start anew after the time ran out in the middle of a search."""
        self._moving.clear()

    def state(self) -> Hashable:
        """Return a key that is equal if equal requests were placed and like consumers went to like spots."""
        board = self._board
        moved = Counter((self._look(each.consumer), each.to.root, each.to.draws) for each in board.moved)
        return frozenset(moved.items()), tuple(sorted(spot.draws for spot in board.placed))

    def tells_all(self, consumers: Iterable[PlacedConsumer]) -> bool:
        """Return whether the search leaves out no way to move these consumers.

        It leaves out some candidates of trees that have too many. It also leaves out moves of consumers
        elsewhere that would make room on shared providers.
        """
        board = self._board
        wishes = {each.wish.key: each.wish for each in consumers if each.wish is not None}
        return (
            not board.ground.was_cut
            and all(wish.tells_all(board) for wish in wishes.values())
            and not any(draw.row in board.ground.sharers for each in consumers for draw in each.spot.draws)
        )

    # -- ways ---------------------------------------------------------------------------------------

    def requests(self, wish: PlanDemand, spare: int) -> Iterator[int]:
        """Yield for each way to place a request with at most `spare` moves how many moves it takes.

        At each yield the board shows that way; it is restored when the caller goes on. Raises SearchEnded.
        """
        board = self._board
        for spot in wish.spots(board):
            mark = board.mark()
            board.reserve(spot)
            board.place(spot)
            yield 0
            board.back(mark)
        for evicted, spot in self._evictions(wish, spare, None):
            for moves in self.replacing(evicted, spot, spare):
                mark = board.mark()
                board.place(spot)
                yield moves
                board.back(mark)

    def moves(self, consumer: PlacedConsumer, spare: int) -> Iterator[int]:
        """Yield for each way to move a consumer how many moves of others it takes, at most `spare`."""
        board, wish = self._board, consumer.wish
        assert wish is not None
        mark = board.mark()
        board.leave(consumer)
        for spot in self.choose(wish.spots(board)):
            if self._is_elsewhere(consumer, spot):
                here = board.mark()
                board.arrive(consumer, spot)
                yield 0
                board.back(here)
        board.back(mark)
        for evicted, spot in self._evictions(wish, spare, consumer):
            self._moving.add(consumer.uuid)
            for moves in self.replacing(evicted, spot, spare, consumer):
                if self.why_not(consumer):
                    # The moves made for it were the last ones allowed for its kind.
                    continue
                here = board.mark()
                board.leave(consumer)
                board.settle(consumer, spot)
                # A kept spot must be free by now, and not only once further consumers have left. For pods it
                # always is: nothing comes to a node while a spot is kept on it.
                free = board.ground.free
                if spot.node is not None or all(free(draw.row, draw.class_id) >= 0 for draw in spot.draws):
                    self._moving.discard(consumer.uuid)
                    yield moves
                    self._moving.add(consumer.uuid)
                board.back(here)
            self._moving.discard(consumer.uuid)

    def _is_elsewhere(self, consumer: PlacedConsumer, spot: Spot) -> bool:
        """Return whether going there is a move: a pod cannot get other CPUs on its own node."""
        if spot.root != consumer.root:
            return True
        ground = self._board.ground
        return spot.node is None and ground.look_of(spot.draws) != ground.look_of(consumer.spot.draws)

    def replacing(
        self, evicted: Sequence[PlacedConsumer], spot: Spot, spare: int, mover: PlacedConsumer | None = None
    ) -> Iterator[int]:
        """Yield for each way to move all `evicted` away from a spot, in any order, how many moves it takes.

        The spot is kept for a request, or for `mover`.
        """
        board = self._board
        for order in permutations(evicted):
            self.budget.spend()
            mark = board.mark()
            board.reserve(spot, evicted, mover)
            if spot.node is not None:
                board.close(spot.root)
            for others in self._all_moved(order, spare - len(order)):
                here = board.mark()
                if spot.node is not None:
                    board.open(spot.root)
                yield len(order) + others
                board.back(here)
            board.back(mark)

    def _all_moved(self, order: Sequence[PlacedConsumer], spare: int) -> Iterator[int]:
        if not order:
            yield 0
            return
        first, *rest = order
        if not self.may_move(first):
            return
        # Consumers that move later anyway are not moved to make room for this one.
        waiting = {each.uuid for each in rest} - self._moving
        self._moving |= waiting
        for moves in self.moves(first, spare):
            self._moving -= waiting
            for others in self._all_moved(rest, spare - moves):
                yield moves + others
            self._moving |= waiting
        self._moving -= waiting

    # -- consumers in the way -----------------------------------------------------------------------

    def _evictions(
        self, wish: PlanDemand, spare: int, mover: PlacedConsumer | None
    ) -> Iterator[tuple[Sequence[PlacedConsumer], Spot]]:
        """Yield sets of consumers that are all in the way of a spot, the smallest first, and that spot.

        Hosts come in the order of what they lack. `mover` counts as gone.
        """
        board = self._board
        fullest = max(map(len, board.on.values()), default=0)
        for size in range(1, min(spare, fullest) + 1):
            for root in self._hosts(wish, size, mover):
                self.budget.look()
                mark = board.mark()
                if mover is not None:
                    board.leave(mover)
                found = self._known_in_the_way(wish, root, size)
                board.back(mark)
                for evicted, spot in found:
                    if mover is None or self._is_elsewhere(mover, spot):
                        yield evicted, spot

    def _hosts(self, wish: PlanDemand, size: int, mover: PlacedConsumer | None) -> list[int]:
        """Return the hosts where `size` moves may make room, by moves needed and then by what they lack."""
        ranked = []
        self.budget.look()
        for root in wish.hosts(self._board):
            self.budget.spend()
            if self._board.closed[root] > 0 or (mover is not None and mover.pod and root == mover.root):
                continue
            # Without the mover its host has more left than sums tell.
            needed, lacks = self._need(wish, root) if mover is None or root != mover.root else (1, 0.0)
            if needed <= size:
                ranked.append((needed, lacks, root))
        # Stable: equal ones stay in the order of their ids.
        return [root for _, _, root in sorted(ranked, key=lambda each: each[:2])]

    def _need(self, wish: PlanDemand, root: int) -> tuple[int, float]:
        """Return how many consumers must leave a host at least, by sums, and its lack as a share."""
        board = self._board
        key = (wish.key, root, board.ground.state(root), board.who[root])
        if key not in self._needed:
            here = [wish.freed(board, each) for each in board.on.get(root, {}).values()]
            needed, lacks = 1, 0.0
            for name, amount in wish.lacking(board, root).items():
                largest = sorted((each.get(name, 0) for each in here), reverse=True)
                count, left = 0, amount
                while left > 0 and count < len(largest) and largest[count] > 0:
                    left -= largest[count]
                    count += 1
                needed = max(needed, NEVER if left > 0 else count)
                lacks = max(lacks, amount / (sum(largest) or 1))
            self._needed[key] = needed, lacks
        return self._needed[key]

    def bound(self, wish: PlanDemand) -> int:
        """Return how many moves are needed at least, by sums, where a request does not fit as it is."""
        return min((self._need(wish, root)[0] for root in wish.hosts(self._board)), default=NEVER)

    def _known_in_the_way(self, wish: PlanDemand, root: int, size: int) -> Sequence[_InTheWay]:
        """Return what `in_the_way` finds, from memory: chains of moves come to the same hosts over and over.

        A result is used again only if the host holds the same and the same consumers may be moved from it.
        Nothing is remembered of nodes with pods.
        """
        board = self._board
        if root in board.nodes:
            return list(self.in_the_way(wish, root, size))
        movable = frozenset(uuid for uuid, each in board.on.get(root, {}).items() if self.may_move(each))
        key = (wish.key, root, size, board.ground.state(root), movable)
        if key not in self._ways:
            self._ways[key] = list(self.in_the_way(wish, root, size))
        return self._ways[key]

    def in_the_way(self, wish: PlanDemand, root: int, size: int) -> Iterator[_InTheWay]:
        """Yield sets of `size` consumers of a host that all have to leave for a spot, and that spot."""
        board = self._board
        here = [each for each in board.on.get(root, {}).values() if self.may_move(each)]
        here.sort(key=lambda each: (sum(draw.amount for draw in each.spot.draws), each.uuid))
        lacking = wish.lacking(board, root).items()
        freed = {each.uuid: wish.freed(board, each) for each in here}
        known = set()
        for some in combinations(here, size):
            self.budget.spend()
            gone = [freed[each.uuid] for each in some]
            if any(sum(each.get(name, 0) for each in gone) < least for name, least in lacking):
                continue
            look = tuple(sorted(map(self._look, some)))
            if look in known:
                continue
            known.add(look)
            mark = board.mark()
            for each in some:
                board.leave(each)
            spots = [spot for spot in wish.spots_on(board, root) if self._all_needed(some, spot)]
            board.back(mark)
            for spot in spots:
                yield some, spot

    def _look(self, consumer: PlacedConsumer) -> int:
        """Return a key that is equal for consumers of a host that can stand for each other."""
        assert consumer.wish is not None
        if consumer.pod is not None and consumer.pod.holding.cpus:
            return hash(consumer.uuid)
        tags = tuple(bound.means(consumer) for bound in self._limits.at_most)
        return hash((consumer.wish.key, consumer.spot.draws, tags))

    def _all_needed(self, some: Sequence[PlacedConsumer], spot: Spot) -> bool:
        """Return whether none of these consumers could come back beside the spot; always true for pods."""
        if spot.node is not None:
            return True
        ground = self._board.ground
        wanted = {(draw.row, draw.class_id): draw.amount for draw in spot.draws}
        return all(
            any(
                ground.free(draw.row, draw.class_id) - wanted.get((draw.row, draw.class_id), 0) < draw.amount
                for draw in each.spot.draws
            )
            for each in some
        )
