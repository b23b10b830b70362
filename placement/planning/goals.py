"""The goals of plans: room for requests, empty hosts, cores that are of use again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import NamedTuple

from placement.engine.search.budget import SearchEnded
from placement.planning.board import MoveSimulation, PlacedConsumer, Relocation, Spot
from placement.planning.making_room import NEVER, EvictionPlanner
from placement.planning.plan import Bound, PlanDemand, sums_of

# Sums show at once where hosts have too little in all, however consumers are moved among them.


def too_little(board: MoveSimulation, need: Mapping[int, int], open_: Collection[int], staying: str) -> str:
    """Return why so much of each class can never be placed on open hosts; empty where sums do not show that.

    Consumers on these hosts may change places among them. `staying` is the name of these hosts in the text.
    """
    slack = _slack(each for root in open_ for each in board.on.get(root, {}).values())
    for class_id, wanted in need.items():
        free = board.ground.by_root(class_id)
        left = sum(free[root].free for root in free.keys() & open_) + slack[class_id]
        if wanted > left:
            return f"{staying} have {left} {board.class_name(class_id)} left in all, {wanted} are needed"
    return ""


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
        held = sum(use.used for use in uses.values()) - slack[class_id]
        rooms = {root: use.free + use.used for root, use in uses.items()}
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


def needs(consumers: Iterable[PlacedConsumer]) -> Counter[int]:
    """Return how much consumers take at least wherever they go, by class."""
    need: Counter[int] = Counter()
    for each in consumers:
        if each.wish is not None:
            need.update(each.wish.wanted)
    return need


# Several things that are done together: each way of one is tried with each way of the next.


Task = Callable[[int], Iterator[int]]
"""Yields for each way to do one thing how many moves of others it takes, at most as many as given.

At each yield the board shows that way; it is restored when the caller goes on.
"""


def all_done(state: Callable[[], Hashable], tasks: Sequence[Task], spare: int) -> Iterator[int]:
    """Yield for each way to do all tasks with at most `spare` moves of others how many of these are left.

    Nothing is tried again where the board is in a `state` that led nowhere. Raises SearchEnded.
    """
    return _rest(state, tasks, spare, set())


def _rest(
    state: Callable[[], Hashable], tasks: Sequence[Task], spare: int, nowhere: set[Hashable]
) -> Iterator[int]:
    if not tasks:
        yield spare
        return
    here = (len(tasks), spare, state())
    if here in nowhere:
        return
    for moves in tasks[0](spare):
        yield from _rest(state, tasks[1:], spare - moves, nowhere)
    nowhere.add(here)


SUMS, SEARCH, IMPOSSIBLE = "sums", "search", "impossible"
# The search for moves that depend on one another ends at this depth: each takes frames of the stack.
_DEEPEST = 150
TIME_UP = "the time was up before all was tried"
TOO_DEEP = f"more than {_DEEPEST} moves that wait for one another were not looked for"
NOT_ALL = "not all ways could be tried: hosts have more places than are looked at, or share providers"
ALL_TRIED = "all ways were tried"
NO_PLACE = "found no other place"


@dataclass(slots=True)
class Reached:
    """A result: how much of what was wanted the moves achieve. `left`: consumers that could not go, and why.

    `complete`: the goal is reached, or proven to be out of reach. `why`: the reason it was not reached.
    """

    wanted: int
    achieved: int = 0
    complete: bool = True
    bound: Bound = field(default_factory=lambda: Bound(0, SUMS))
    left: list[tuple[PlacedConsumer, str]] = field(default_factory=list)
    emptied: list[int] = field(default_factory=list)
    why: str = ""


class _First(NamedTuple):
    """A result: whether a way was `found`, and how many moves are proven `too_few` (-1: not even 0 is).

    `hopeless`: there is no way, however many moves are allowed.
    """

    found: bool
    too_few: int
    hopeless: bool = False


class _Start(NamedTuple):
    """A moment to go back to, and how many moves and placed requests there were then."""

    mark: int
    moved: int
    placed: int


class _Done(NamedTuple):
    """The changes of a board since a start: moves in their order, and places of requests."""

    moved: Sequence[Relocation]
    placed: Sequence[Spot]


class _Vacated(NamedTuple):
    """The consumers that could not go, and whether it is `proven` that not all can."""

    left: list[tuple[PlacedConsumer, str]]
    proven: bool


class Goals:
    """A planner that makes the moves on a board, at most `most`."""

    def __init__(self, board: MoveSimulation, maker: EvictionPlanner, most: int) -> None:
        self._board, self._maker, self._most = board, maker, most
        here = {each.uuid: each for on in board.on.values() for each in on.values()}
        self._movable = [each for each in here.values() if maker.may_move(each)]
        # Why not everything was tried; empty if everything was.
        self._cut = ""

    @property
    def spare(self) -> int:
        """Return how many more moves there may be."""
        return self._most - len(self._board.moved)

    def _told(self, reached: Reached, why: str = "") -> Reached:
        """Return the result with its `why`; one that is given proves that no more can be reached."""
        if reached.achieved >= reached.wanted:
            return reached
        if not why and not self._cut and not self._maker.tells_all(self._movable):
            self._cut = NOT_ALL
        reached.complete = bool(why) or not self._cut
        reached.why = why or self._cut or ALL_TRIED
        return reached

    # -- requests -----------------------------------------------------------------------------------

    def fit(self, wish: PlanDemand, wanted: int, fits_already: Callable[[], bool]) -> Reached:
        """Place `wanted` requests. `fits_already` returns whether all of them may fit without any move."""
        reached = Reached(wanted)
        needed = self._needed(wish)
        open_ = {root for root in self._board.ground.roots_in_order() if self._board.closed[root] <= 0}
        need = Counter({name: amount * wanted for name, amount in wish.wanted.items()})
        why = too_little(self._board, need, open_, "hosts")
        start = self._now()
        ways = partial(self._maker.requests, wish)
        while reached.achieved < wanted:
            if too_little(self._board, wish.wanted, open_, "hosts"):
                first = _First(False, 0, hopeless=True)
            else:
                first = self._first(ways, self.spare)
            if not reached.achieved and first.too_few >= 0:
                reached.bound = self._bound(wish, first, needed)
            if not first.found and (why or not reached.achieved or not self._again(start, ways, reached)):
                break
            reached.achieved += 1
        if reached.bound == Bound(0, SUMS) and not fits_already():
            reached.bound = Bound(1, SUMS)
        if needed == NEVER and not reached.achieved:
            why = why or "no host would fit it if everything that may move left it"
        if not wish.tells_all(self._board):
            self._cut = self._cut or NOT_ALL
        return self._told(reached, why)

    def _again(self, start: _Start, ways: Task, reached: Reached) -> bool:
        """Start anew and place one more than before, in any way; return whether that was possible."""
        before = self._done(start)
        self._board.back(start.mark)
        if self._all([ways] * (reached.achieved + 1), 0):
            return True
        self._board.carry_out(*before)
        return False

    def _needed(self, wish: PlanDemand) -> int:
        """Return how many moves sums show to be needed where a request does not fit without any."""
        try:
            return self._maker.bound(wish)
        except SearchEnded as ended:
            if ended.abandoned:
                raise
            return 1

    def _bound(self, wish: PlanDemand, first: _First, needed: int) -> Bound:
        """Return how many moves the first request takes at least; `needed` is what sums show."""
        if needed == NEVER:
            return Bound(0, IMPOSSIBLE)
        if not wish.tells_all(self._board) or not self._maker.tells_all(self._movable):
            # Not all ways with fewer were looked at.
            return Bound(needed if first.too_few >= 0 else 0, SUMS)
        return Bound(0, IMPOSSIBLE) if first.hopeless else Bound(first.too_few + 1, SEARCH)

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
                if next(all_done(self._maker.state, tasks, spare), None) is not None:
                    return True
        except SearchEnded as ended:
            self._end(ended, mark)
        return False

    def _end(self, ended: SearchEnded, mark: int) -> None:
        """Go back to a mark when the time is up during a search. Raises SearchEnded if the caller left."""
        if ended.abandoned:
            raise ended
        self._board.back(mark)
        self._maker.forget()
        self._cut = TIME_UP

    def _now(self) -> _Start:
        board = self._board
        return _Start(board.mark(), len(board.moved), len(board.placed))

    def _done(self, since: _Start) -> _Done:
        return _Done(self._board.moved[since.moved :], self._board.placed[since.placed :])

    def _go_back_to(self, start: _Start, done: _Done) -> None:
        """Go back to a start, and carry out only what was done."""
        self._board.back(start.mark)
        self._board.carry_out(*done)

    # -- hosts --------------------------------------------------------------------------------------

    def empty(self, roots: Sequence[int]) -> Reached:
        """Move all consumers away from hosts."""
        reached = Reached(len(roots))
        for root in roots:
            self._board.close(root)
        here = [each for root in roots for each in self._by_size(root)]
        reached.bound = Bound(len(here), SUMS)
        stays = {each.uuid: why for each in here if (why := self._why_not(each))}
        going = [each for each in here if each.uuid not in stays]
        why = self._too_little(going)
        if why:
            reached.bound = Bound(0, IMPOSSIBLE)
        elif len(going) > self.spare:
            why = f"{len(going)} moves are needed, at most {self.spare} are allowed"
        start = self._now()
        vacated = self._vacate(going, others=not why)
        if vacated.left and not vacated.proven and not why:
            before = self._done(start)
            self._board.back(start.mark)
            if self._all(self._tasks(going), len(going)):
                vacated = _Vacated([], proven=False)
            else:
                self._board.carry_out(*before)
        reached.left = [(each, stays[each.uuid]) for each in here if each.uuid in stays] + vacated.left
        reached.emptied = [root for root in roots if not self._board.on.get(root)]
        reached.achieved = len(reached.emptied)
        if stays:
            why = why or "some consumers there may not move"
        return self._told(reached, why)

    def _why_not(self, consumer: PlacedConsumer) -> str:
        """Return why a consumer can never go; empty if that is not known at once."""
        why = self._maker.why_not(consumer)
        if why or consumer.wish is None:
            return why
        try:
            hosts = consumer.wish.hosts(self._board)
        except SearchEnded as ended:
            if ended.abandoned:
                raise
            return ""
        return (
            "" if any(self._board.closed[root] <= 0 for root in hosts) else "no other host could ever take it"
        )

    def _too_little(self, going: Sequence[PlacedConsumer]) -> str:
        """Return why open hosts never have room for all of these consumers, as far as sums tell."""
        open_ = {root for root in self._board.ground.roots_in_order() if self._board.closed[root] <= 0}
        return too_little(self._board, needs(going), open_, "the hosts that may take them")

    def _tasks(self, going: Sequence[PlacedConsumer]) -> list[Task]:
        return [partial(self._ways, each) for each in going]

    def _ways(self, consumer: PlacedConsumer, spare: int) -> Iterator[int]:
        """Yield each way to move a consumer (`EvictionPlanner.moves`);

        none if it may not be moved any more.
        """
        return iter(()) if self._maker.why_not(consumer) else self._maker.moves(consumer, spare)

    def _vacate(self, going: Sequence[PlacedConsumer], *, others: bool = True) -> _Vacated:
        """Move all of these consumers away, in one order after another.

        A consumer that found no place goes first in the next order; others are moved for it only if orders
        alone do not help. The board keeps the moves of the order that left the fewest behind.
        """
        start, best, ahead = self._now(), None, list[PlacedConsumer]()
        for most in (0, self._most) if others else (0,):
            promoted = set[str]()
            while True:
                left = self._gone(ahead, going, most)
                if best is None or len(left) < len(best[1]):
                    best = self._done(start), left
                if not left:
                    return _Vacated([], proven=False)
                failed = left[0][0]
                is_first = failed is (ahead or going)[0]
                if most and is_first and not self._cut:
                    # No consumer went before it, and all others might have been moved for it.
                    self._go_back_to(start, best[0])
                    return _Vacated(best[1], proven=True)
                if is_first or failed.uuid in promoted or self._cut == TIME_UP:
                    break
                promoted.add(failed.uuid)
                ahead = [failed, *(each for each in ahead if each is not failed)]
                self._board.back(start.mark)
            if self._cut == TIME_UP:
                break
            self._board.back(start.mark)
        assert best is not None
        self._go_back_to(start, best[0])
        return _Vacated(best[1], proven=False)

    def _gone(
        self, ahead: Sequence[PlacedConsumer], going: Sequence[PlacedConsumer], most: int
    ) -> list[tuple[PlacedConsumer, str]]:
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
            return self._told(reached, why)
        reached.bound = Bound(sum(len(board.on[root]) for root in leaving[:wanted]), SUMS)
        start = self._now()
        self._one_by_one(empty, leaving, possible, reached)
        while reached.achieved < possible and self._cut != TIME_UP:
            before = self._done(start)
            chosen = self._together(start.mark, empty, leaving, reached.achieved + 1)
            if not chosen:
                self._go_back_to(start, before)
                break
            reached.emptied = list(chosen)
            reached.achieved = sum(not board.on.get(root) for root in roots) - len(empty)
        return self._told(reached, why)

    def _one_by_one(
        self, empty: Sequence[int], leaving: Sequence[int], wanted: int, reached: Reached
    ) -> None:
        """Empty one host after another, fewest consumers first; hosts that are empty now stay empty."""
        board = self._board
        for root in empty:
            board.close(root)
        for root in leaving:
            if reached.achieved == wanted or self._cut == TIME_UP:
                break
            if len(board.on[root]) <= self.spare:
                mark = board.mark()
                board.close(root)
                if self._vacate(self._by_size(root)).left:
                    board.back(mark)
                    continue
                reached.achieved += 1
                reached.emptied.append(root)

    def _together(
        self, start: int, empty: Sequence[int], leaving: Sequence[int], wanted: int
    ) -> Sequence[int]:
        """Empty `wanted` more hosts, any of them, and return them; hosts that are empty now may be filled.

        Every choice of hosts is tried first in the orders that are quick, and then in all ways.
        """
        open_: list[tuple[Sequence[int], Sequence[int]]] = []
        try:
            for filled, chosen in _choices(empty, leaving, wanted):
                going = self._closed_for(start, empty, filled, chosen)
                if len(going) > self.spare or self._too_little(going):
                    continue
                vacated = self._vacate(going)
                if not vacated.left:
                    return chosen
                if not vacated.proven:
                    open_.append((filled, chosen))
            for filled, chosen in open_:
                going = self._closed_for(start, empty, filled, chosen)
                if self._all(self._tasks(going), len(going)):
                    return chosen
        except SearchEnded as ended:
            self._end(ended, start)
        return ()

    def _closed_for(
        self, start: int, empty: Sequence[int], filled: Sequence[int], chosen: Sequence[int]
    ) -> list[PlacedConsumer]:
        """Start anew with all but `filled` closed; return the consumers on `chosen`. Raises SearchEnded."""
        self._maker.look()
        self._board.back(start)
        for root in {*empty, *chosen} - {*filled}:
            self._board.close(root)
        return [each for root in chosen for each in self._by_size(root)]


def _choices(
    empty: Sequence[int], leaving: Sequence[int], wanted: int
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Yield empty hosts that may be filled, and occupied hosts to leave: `wanted` more of these."""
    for count in range(min(len(empty), len(leaving) - wanted) + 1):
        for filled in combinations(empty, count):
            for chosen in combinations(leaving, wanted + count):
                yield filled, chosen


def fewest_hosts(stranded: Sequence[int], regained: int) -> int:
    """Return how many moves it takes at least to regain so much: each move changes two hosts."""
    left, moves = regained, 0
    largest = sorted(stranded, reverse=True)
    for at in range(0, len(largest), 2):
        if left <= 0:
            break
        left -= sum(largest[at : at + 2])
        moves += 1
    return moves
