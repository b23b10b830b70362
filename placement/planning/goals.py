"""The goals of plans: room for requests, empty hosts, cores that are of use again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, islice
from typing import NamedTuple

from placement.engine.search.budget import SearchEnded
from placement.planning.board import (
    Mark,
    MoveSimulation,
    PlacedConsumer,
    PlanDemand,
    PodWish,
    QueryWish,
    Spot,
    sums_of,
)
from placement.planning.making_room import NEVER, EvictionPlanner

SUMS, SEARCH, IMPOSSIBLE = "sums", "search", "impossible"
# The search for moves that depend on one another ends at this depth: each takes frames of the stack.
_DEEPEST = 150
TIME_UP = "the time was up before all was tried"
TOO_DEEP = f"more than {_DEEPEST} moves that wait for one another were not looked for"
NOT_ALL = "not all ways could be tried: hosts have more places than are looked at, or share providers"
ALL_TRIED = "all ways were tried"
NO_PLACE = "found no other place"

Task = Callable[[int], Iterator[int]]
"""Yields for each way to do one thing how many moves of others it takes, at most as many as given.

At each yield the board shows that way; it is restored when the caller goes on.
"""
NotMoved = tuple[PlacedConsumer, str]
"""A consumer that could not go, and why."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound: no plan has fewer `moves`. `by`: sums, a search of all with fewer, or no plan is possible."""

    moves: int
    by: str


@dataclass(slots=True)
class Reached:
    """A result: how much of what was wanted the moves achieve. `left`: consumers that could not go.

    `complete`: the goal is reached, or proven to be out of reach. `why`: the reason it was not reached.
    """

    wanted: int
    achieved: int = 0
    complete: bool = True
    bound: Bound = field(default_factory=lambda: Bound(0, SUMS))
    left: list[NotMoved] = field(default_factory=list)
    emptied: list[int] = field(default_factory=list)
    why: str = ""


class _First(NamedTuple):
    """A result: whether a way was `found`, and how many moves are proven `too_few` (-1: not even 0 is).

    `hopeless`: there is no way, however many moves are allowed.
    """

    found: bool
    too_few: int
    hopeless: bool = False


@contextmanager
def _unless_abandoned() -> Iterator[None]:
    """Go on behind the block if its time is up. Raises SearchEnded if the caller went away."""
    try:
        yield
    except SearchEnded as ended:
        if ended.abandoned:
            raise


_MOST_CONDITIONS = 5


class Goals:
    """A planner that makes the moves on a board, at most `most`."""

    def __init__(self, board: MoveSimulation, maker: EvictionPlanner, most: int) -> None:
        self._board, self._maker, self._most = board, maker, most
        self._movable = [each for here in board.on.values() for each in here.values() if maker.may_move(each)]
        # Why not everything was tried; empty if everything was.
        self._cut = ""
        self._conditions_named = 0

    @property
    def spare(self) -> int:
        """Return how many more moves there may be."""
        return self._most - len(self._board.moved)

    def _with_reason(self, reached: Reached, why: str = "") -> Reached:
        """Return the result with its `why`; one that is given proves that no more can be reached."""
        if reached.achieved >= reached.wanted:
            return reached
        if not why and not self._cut and not self._maker.tells_all(self._movable):
            self._cut = NOT_ALL
        reached.complete = bool(why) or not self._cut
        reached.why = why or self._cut or ALL_TRIED
        return reached

    def _too_little(self, need: Mapping[int, int], staying: str) -> str:
        """Return why so much of each class can never be placed on open hosts; empty if sums do not show that.

        Sums show at once where hosts have too little in all, however consumers are moved among them.
        `staying` is the name of these hosts in the text.
        """
        board = self._board
        open_ = {root for root in board.ground.roots.tolist() if board.closed[root] <= 0}
        slack = _slack(each for root in open_ for each in board.on.get(root, {}).values())
        for class_id, wanted in need.items():
            free = board.ground.by_root(class_id)
            left = sum(free[root][0] for root in free.keys() & open_) + slack[class_id]
            if wanted > left:
                name = board.class_name(class_id)
                return f"{staying} have at most {left} {name} left in all, {wanted} are needed"
        return ""

    # -- requests -----------------------------------------------------------------------------------

    def fit(self, wish: PlanDemand, wanted: int, fits_already: Callable[[], bool]) -> Reached:
        """Place `wanted` requests. `fits_already` returns whether all of them may fit without any move."""
        board, reached = self._board, Reached(wanted)
        # The moves that sums show to be needed where a request does not fit without any.
        needed = 1
        with _unless_abandoned():
            needed = self._maker.bound(wish)
        why = self._too_little({name: amount * wanted for name, amount in wish.wanted.items()}, "hosts")
        start = board.mark()
        ways = partial(self._maker.requests, wish)
        while reached.achieved < wanted:
            if self._too_little(wish.wanted, "hosts"):
                first = _First(False, 0, hopeless=True)
            else:
                first = self._first(ways, self.spare)
            if not reached.achieved and first.too_few >= 0:
                if needed == NEVER:
                    reached.bound = Bound(0, IMPOSSIBLE)
                elif not wish.tells_all(board) or not self._maker.tells_all(self._movable):
                    # Not all ways with fewer were looked at.
                    reached.bound = Bound(needed, SUMS)
                elif first.hopeless:
                    reached.bound = Bound(0, IMPOSSIBLE)
                else:
                    reached.bound = Bound(first.too_few + 1, SEARCH)
            if not first.found:
                if why or not reached.achieved:
                    break
                # Start anew and place one more than before, in any way.
                before = board.done_since(start)
                board.back(start)
                if not self._all([ways] * (reached.achieved + 1), 0):
                    board.back_to(start, before)
                    break
            reached.achieved += 1
        if reached.bound == Bound(0, SUMS) and not fits_already():
            reached.bound = Bound(1, SUMS)
        if needed == NEVER and not reached.achieved:
            why = why or "no host would fit it if everything that may move left it"
        if not wish.tells_all(board):
            self._cut = self._cut or NOT_ALL
        return self._with_reason(reached, why)

    # -- ways ---------------------------------------------------------------------------------------

    def _deepest(self, most: int) -> tuple[int, int]:
        """Return up to how many moves, at most `most`, ways are looked for, and how many might be made."""
        movable = min(most, len(self._movable) - len(self._board.moved))
        return min(movable, _DEEPEST), movable

    def _first(self, ways: Task, most: int) -> _First:
        """Take the first way with the fewest moves, at most `most`."""
        mark = self._board.mark()
        deepest, possible = self._deepest(most)
        for spare in range(deepest + 1):
            try:
                if next(ways(spare), None) is not None:
                    return _First(True, spare - 1)
            except SearchEnded as ended:
                self._end(ended, mark)
                return _First(False, spare - 1)
        if deepest < possible:
            self._cut = self._cut or TOO_DEEP
        return _First(False, deepest, deepest == len(self._movable) - len(self._board.moved))

    def _all(self, tasks: Sequence[Task], moves: int) -> bool:
        """Do all tasks in any way, with `moves` moves beside the ones of others; return whether it worked."""
        mark = self._board.mark()
        deepest, possible = self._deepest(self.spare - moves)
        if deepest < possible or len(tasks) > _DEEPEST:
            self._cut = self._cut or TOO_DEEP
        try:
            for spare in range(deepest + 1 if len(tasks) <= _DEEPEST else 0):
                if next(self._all_done(tasks, spare, set()), None) is not None:
                    return True
        except SearchEnded as ended:
            self._end(ended, mark)
        return False

    def _all_done(self, tasks: Sequence[Task], spare: int, nowhere: set[Hashable]) -> Iterator[int]:
        """Yield for each way to do all tasks with at most `spare` moves of others how many of these are left.

        Each way of one task is tried with each way of the next. Nothing is tried again in a state in
        `nowhere`, which led nowhere. Raises SearchEnded.
        """
        if not tasks:
            yield spare
            return
        here = (len(tasks), spare, self._maker.state())
        if here in nowhere:
            return
        for moves in tasks[0](spare):
            yield from self._all_done(tasks[1:], spare - moves, nowhere)
        nowhere.add(here)

    def _end(self, ended: SearchEnded, mark: Mark) -> None:
        """Go back to a mark when the time is up during a search. Raises SearchEnded if the caller left."""
        if ended.abandoned:
            raise ended
        self._board.back(mark)
        self._maker.forget()
        self._cut = TIME_UP

    # -- hosts --------------------------------------------------------------------------------------

    def empty(self, roots: Sequence[int]) -> Reached:
        """Move all consumers away from hosts."""
        board, reached = self._board, Reached(len(roots))
        for root in roots:
            board.close(root)
        here = [each for root in roots for each in self._by_size(root)]
        reached.bound = Bound(len(here), SUMS)
        stays = {each.uuid: why for each in here if (why := self._why_not(each))}
        going = [each for each in here if each.uuid not in stays]
        why = self._no_room_for(going)
        if why:
            reached.bound = Bound(0, IMPOSSIBLE)
        elif len(going) > self.spare:
            why = f"{len(going)} moves are needed, at most {self.spare} are allowed"
        start = board.mark()
        left, is_proven = self._vacate(going, others=not why)
        if left and not is_proven and not why:
            before = board.done_since(start)
            board.back(start)
            if self._all(self._tasks(going), len(going)):
                left = []
            else:
                board.back_to(start, before)
        reached.left = [(each, stays[each.uuid]) for each in here if each.uuid in stays] + left
        reached.emptied = [root for root in roots if not board.on.get(root)]
        reached.achieved = len(reached.emptied)
        if stays:
            why = why or "some consumers there may not move"
        return self._with_reason(reached, why)

    def _why_not(self, consumer: PlacedConsumer) -> str:
        """Return why a consumer can never go; empty if that is not known at once."""
        why = self._maker.why_not(consumer)
        if not why and consumer.wish is not None:
            with _unless_abandoned():
                if all(self._board.closed[root] > 0 for root in consumer.wish.hosts(self._board)):
                    why = "no other host could ever take it"
                    # Finding the condition takes as long as looking at all nodes.
                    if isinstance(consumer.wish, PodWish) and self._conditions_named < _MOST_CONDITIONS:
                        self._conditions_named += 1
                        why += consumer.wish.why_nowhere(self._board)
        return why

    def _no_room_for(self, going: Sequence[PlacedConsumer]) -> str:
        """Return why open hosts never have room for all of these consumers, as far as sums tell."""
        need: Counter[int] = Counter()
        for each in going:
            if each.wish is not None:
                need.update(each.wish.wanted)
        return self._too_little(need, "the hosts that may take them")

    def _tasks(self, going: Sequence[PlacedConsumer]) -> list[Task]:
        """Return for each consumer the ways to move it; there are none if it may not be moved any more."""

        def ways(consumer: PlacedConsumer, spare: int) -> Iterator[int]:
            return iter(()) if self._maker.why_not(consumer) else self._maker.moves(consumer, spare)

        return [partial(ways, each) for each in going]

    def _vacate(self, going: Sequence[PlacedConsumer], *, others: bool = True) -> tuple[list[NotMoved], bool]:
        """Move all of these consumers away, in one order after another.

        A consumer that found no place goes first in the next order; others are moved for it only if orders
        alone do not help. The board keeps the moves of the order that left the fewest behind. Returns these,
        and whether it is proven that not all can go.
        """
        board, is_proven = self._board, False
        start, best, ahead = board.mark(), None, list[PlacedConsumer]()
        for most in (0, self._most) if others else (0,):
            promoted = set[str]()
            while True:
                left = self._gone(ahead, going, most)
                if best is None or len(left) < len(best[1]):
                    best = board.done_since(start), left
                if not left:
                    return [], False
                failed = left[0][0]
                is_first = failed is (ahead or going)[0]
                # No consumer went before it, and all others might have been moved for it.
                is_proven = bool(most) and is_first and not self._cut
                if is_first or failed.uuid in promoted or self._cut == TIME_UP:
                    break
                promoted.add(failed.uuid)
                ahead = [failed, *(each for each in ahead if each is not failed)]
                board.back(start)
            if is_proven or self._cut == TIME_UP:
                break
            board.back(start)
        assert best is not None
        board.back_to(start, best[0])
        return best[1], is_proven

    def _gone(
        self, ahead: Sequence[PlacedConsumer], going: Sequence[PlacedConsumer], most: int
    ) -> list[NotMoved]:
        """Move each consumer that can go with at most `most` moves of others; return the rest, and why."""
        left = []
        first = {each.uuid for each in ahead}
        for consumer in [*ahead, *(each for each in going if each.uuid not in first)]:
            why = self._maker.why_not(consumer)
            if not why and self.spare < 1:
                why = "no more moves are allowed"
            if not why and self._cut == TIME_UP:
                why = f"{NO_PLACE} before the time was up"
            if not why:
                ways = partial(self._maker.moves, consumer)
                if not self._first(ways, min(self.spare - 1, most)).found:
                    why = NO_PLACE
            if why:
                left.append((consumer, why))
        return left

    def _by_size(self, root: int) -> list[PlacedConsumer]:
        here = self._board.on.get(root, {}).values()
        return sorted(here, key=lambda each: (-sum(draw.amount for draw in each.spot.draws), each.uuid))

    # -- free hosts ---------------------------------------------------------------------------------

    def free(self, wanted: int, roots: Sequence[int]) -> Reached:
        """Empty `wanted` more of these hosts; hosts that are empty now are filled where that helps."""
        board, reached = self._board, Reached(wanted)
        counts = sorted((len(board.on.get(root, ())), at, root) for at, root in enumerate(roots))
        empty = [root for count, _, root in counts if not count]
        occupied = [root for count, _, root in counts if count]
        staying = {root for root in occupied if any(map(self._maker.why_not, board.on[root].values()))}
        leaving = [root for root in occupied if root not in staying]
        possible, why = most_free(board, roots, wanted, staying)
        if not possible:
            reached.bound = Bound(0, IMPOSSIBLE)
            return self._with_reason(reached, why)
        reached.bound = Bound(sum(len(board.on[root]) for root in leaving[:wanted]), SUMS)
        start = board.mark()
        # One host after another is left, fewest consumers first; hosts that are empty now stay empty.
        for root in empty:
            board.close(root)
        for root in leaving:
            if reached.achieved == possible or self._cut == TIME_UP:
                break
            if len(board.on[root]) <= self.spare:
                mark = board.mark()
                board.close(root)
                if self._vacate(self._by_size(root))[0]:
                    board.back(mark)
                else:
                    reached.achieved += 1
                    reached.emptied.append(root)
        while reached.achieved < possible and self._cut != TIME_UP:
            before = board.done_since(start)
            chosen = self._together(start, empty, leaving, reached.achieved + 1)
            if not chosen:
                board.back_to(start, before)
                break
            reached.emptied = list(chosen)
            reached.achieved = sum(not board.on.get(root) for root in roots) - len(empty)
        return self._with_reason(reached, why)

    def _together(
        self, start: Mark, empty: Sequence[int], leaving: Sequence[int], wanted: int
    ) -> Sequence[int]:
        """Empty `wanted` more hosts, any of them, and return them; hosts that are empty now may be filled.

        Every choice of hosts is tried first in the orders that are quick, and then in all ways.
        """

        def closed_for(filled: Sequence[int], chosen: Sequence[int]) -> list[PlacedConsumer]:
            """Start anew with all but `filled` closed; return the consumers on `chosen`."""
            self._maker.budget.look()
            self._board.back(start)
            for root in {*empty, *chosen} - {*filled}:
                self._board.close(root)
            return [each for root in chosen for each in self._by_size(root)]

        open_: list[tuple[Sequence[int], Sequence[int]]] = []
        try:
            for filled, chosen in _choices(empty, leaving, wanted):
                going = closed_for(filled, chosen)
                if len(going) > self.spare or self._no_room_for(going):
                    continue
                left, is_proven = self._vacate(going)
                if not left:
                    return chosen
                if not is_proven:
                    open_.append((filled, chosen))
            for filled, chosen in open_:
                going = closed_for(filled, chosen)
                if self._all(self._tasks(going), len(going)):
                    return chosen
        except SearchEnded as ended:
            self._end(ended, start)
        return ()


def _choices(
    empty: Sequence[int], leaving: Sequence[int], wanted: int
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Yield empty hosts that may be filled, and occupied hosts to leave: `wanted` more of these."""
    for count in range(min(len(empty), len(leaving) - wanted) + 1):
        for filled in combinations(empty, count):
            for chosen in combinations(leaving, wanted + count):
                yield filled, chosen


def most_free(
    board: MoveSimulation, roots: Sequence[int], wanted: int, staying: Collection[int]
) -> tuple[int, str]:
    """Return how many more hosts, at most `wanted`, can be empty as far as sums tell, and why no more.

    Hosts in `staying` have a consumer that may not be moved.
    """
    here = [each for root in roots for each in board.on.get(root, {}).values()]
    occupied = sum(bool(board.on.get(root)) for root in roots)
    slack = _slack(here)
    most, why = occupied - len(staying), "hosts that others would have to leave have consumers that stay"
    for class_id in sorted({name for each in here if each.wish is not None for name in each.wish.wanted}):
        found = board.ground.by_root(class_id)
        uses = {root: found[root] for root in found.keys() & set(roots)}
        held = sum(used for _, used in uses.values()) - slack[class_id]
        rooms = {root: free + used for root, (free, used) in uses.items()}
        left = sum(rooms.get(root, 0) for root in staying)
        others = sorted((rooms.get(root, 0) for root in roots if root not in staying), reverse=True)
        kept = len(staying)
        for room in others:
            if left >= held:
                break
            left, kept = left + room, kept + 1
        if left >= held and occupied - kept < most:
            most = occupied - kept
            name = board.class_name(class_id)
            why = f"{held} {name} are held, for which {kept} hosts are needed at least"
    return (wanted, "") if most >= wanted else (max(most, 0), why)


def _slack(consumers: Iterable[PlacedConsumer]) -> Counter[int]:
    """Return how much less consumers could hold elsewhere than they hold now, by class."""
    slack: Counter[int] = Counter()
    for each in consumers:
        if each.wish is not None and not each.fixed:
            least = each.wish.wanted
            slack.update(
                {name: max(0, held - least.get(name, 0)) for name, held in sums_of(each.spot.draws).items()}
            )
    return slack


# Moves after which more of what is free can be used; the moves that regain most come first.


# Bounds of a step: consumers that leave a host together, the best spots of each, ways, and sets tried.
_MOST_TOGETHER, _MOST_SPOTS, _MOST_WAYS, _MOST_SETS = 4, 4, 4, 6


class Defragmenting:
    """A planner that reduces what is stranded of a class for a request: free where no more of it fits."""

    def __init__(
        self,
        board: MoveSimulation,
        maker: EvictionPlanner,
        wish: QueryWish,
        class_id: int,
        roots: Collection[int],
    ) -> None:
        """Look at the hosts with these roots. Raises SearchEnded."""
        self._board, self._maker, self._wish, self._class_id = board, maker, wish, class_id
        self._roots = frozenset(roots)
        everywhere = board.ground.stranded(wish.queries, class_id)
        self._stranded = {root: everywhere[root] for root in roots if root in everywhere}
        self._at_first = dict(self._stranded)
        self._offers: dict[int, bool] = {}
        maker.choose = self._chosen

    @property
    def total(self) -> int:
        """Return how much is stranded now."""
        return sum(self._stranded.values())

    def run(self, most: int) -> Reached:
        """Make at most `most` moves."""
        reached = Reached(self.total)
        try:
            worth = max(self._stranded.values(), default=0)
            while worth:
                found = False
                for root in sorted(self._stranded, key=lambda root: (-self._stranded[root], root)):
                    for size in range(1, _MOST_TOGETHER + 1):
                        here = self._stranded.get(root, 0)
                        if here < size * worth or len(self._board.moved) + size > most:
                            break
                        if self._improved(root, size, worth):
                            found = True
                            break
                if not found:
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
        # Each move changes two hosts.
        left, moves = reached.achieved, 0
        largest = sorted(self._at_first.values(), reverse=True)
        while left > 0 and 2 * moves < len(largest):
            left -= sum(largest[2 * moves : 2 * moves + 2])
            moves += 1
        reached.bound = Bound(moves, SUMS)
        return reached

    def _improved(self, root: int, size: int, worth: int) -> bool:
        """Let `size` consumers leave a host if that is worth it; return whether they left."""
        board = self._board
        for some, spot in list(islice(self._maker.in_the_way(self._wish, root, size), _MOST_SETS)):
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
        """Keep the moves made for a spot if they regain at least `worth`; return whether they do."""
        board = self._board
        mark = board.mark()
        board.release(spot)
        # The hosts where another amount may be stranded after these moves.
        touched, left = {spot.root}, Counter[tuple[int, int]]()
        for each in board.moved[-_MOST_TOGETHER:]:
            touched |= {each.consumer.root, each.to.root}
            left.update({(row, name): amount for row, name, amount in each.consumer.spot.draws})
            left.subtract({(row, name): amount for row, name, amount in each.to.draws})
        if any(amount and row in board.ground.sharers for (row, _), amount in left.items()):
            # What a sharing provider has left also affects hosts that nothing came to or left.
            touched |= self._roots
        now = board.ground.stranded(self._wish.queries, self._class_id, touched)
        gain = sum(self._stranded.get(root, 0) - now.get(root, 0) for root in touched)
        if gain < worth:
            board.back(mark)
            return False
        for root in touched:
            self._stranded.pop(root, None)
        self._stranded.update(now)
        return True

    def _chosen(self, spots: Iterable[Spot]) -> list[Spot]:
        """Return the spots that harm least: on hosts without the class, then where it is stranded anyway."""

        def harm(spot: Spot) -> tuple[int, int]:
            root = spot.root
            if root not in self._offers:
                self._offers[root] = self._class_id in self._board.ground.amounts(root)
            if not self._offers[root]:
                return 0, 0
            return (1, -self._stranded[root]) if root in self._stranded else (2, 0)

        return sorted(spots, key=harm)[:_MOST_SPOTS]
