"""The goals of plans: requests that fit, hosts that are empty, hosts that become free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from typing import NamedTuple

from placement.engine.search.budget import SearchEnded
from placement.planning import goal_results as results
from placement.planning.demands import PodPlanDemand
from placement.planning.evictions import NEVER, EvictionPlanner, Step, Way
from placement.planning.goal_results import Bound, GoalResult, NotMoved
from placement.planning.simulation import Mark, MoveSimulation, PlacedConsumer, PlanDemand, SimulatedChanges
from placement.planning.sums import most_empty, shortage

_MOST_CONDITIONS = 5


class _FirstWay(NamedTuple):
    """A result: whether a way was `found`, and how many moves are proven `too_few` (-1: not even 0 is).

    `hopeless`: there is no way, however many moves are allowed.
    """

    found: bool
    too_few: int
    hopeless: bool = False


class _MoveOrder(NamedTuple):
    """The consumers that an order of moves left behind, and the moves."""

    left: list[NotMoved]
    changes: SimulatedChanges


class Goals:
    """The moves for a goal, at most `most`, made in a simulation."""

    def __init__(self, simulation: MoveSimulation, planner: EvictionPlanner, most: int) -> None:
        self._simulation, self._planner, self._most = simulation, planner, most
        consumers = [each for on_host in simulation.on.values() for each in on_host.values()]
        self._movable = [each for each in consumers if planner.may_move(each)]
        # Why not everything was tried; empty if everything was.
        self._cut = ""
        self._conditions_named = 0

    @property
    def spare(self) -> int:
        """Return how many more moves there may be."""
        return self._most - len(self._simulation.relocations)

    def _with_reason(
        self, result: GoalResult, why: str = "", demands: Sequence[PlanDemand] = ()
    ) -> GoalResult:
        """Return the result with its `why`; one that is given proves that no more can be reached."""
        if not all(demand.is_searched_in_full(self._simulation) for demand in demands):
            self._cut = self._cut or results.NOT_ALL
        if result.achieved >= result.wanted:
            return result
        if not why and not self._cut and not self._planner.is_searched_in_full(self._movable):
            self._cut = results.NOT_ALL
        result.complete = bool(why) or not self._cut
        result.why = why or self._cut or results.ALL_TRIED
        return result

    # -- requests -----------------------------------------------------------------------------------

    def fit(self, demand: PlanDemand, wanted: int, fits_already: Callable[[], bool]) -> GoalResult:
        """Place `wanted` requests. `fits_already` returns whether all of them may fit without any move."""
        simulation, result = self._simulation, GoalResult(wanted)
        needed = self._least_moves(demand)
        why = shortage(simulation, {name: amount * wanted for name, amount in demand.wanted.items()}, "hosts")
        mark = simulation.mark()
        place = partial(self._planner.place, demand)
        while result.achieved < wanted:
            first = self._placed(demand, place)
            if not result.achieved and first.too_few >= 0:
                result.bound = self._bound(demand, needed, first)
            if not first.found:
                if why or not result.achieved:
                    break
                # Place one more than before, in any way.
                if not self._done_anew(mark, [place] * (result.achieved + 1), 0):
                    break
            result.achieved += 1
        if result.bound == Bound(0, results.SUMS) and not fits_already():
            result.bound = Bound(1, results.SUMS)
        if needed == NEVER and not result.achieved:
            why = why or "no host fits it, even after all possible moves"
        return self._with_reason(result, why, [demand])

    def _least_moves(self, demand: PlanDemand) -> int:
        """Return how many moves sums show to be needed where a request does not fit without any."""
        with _unless_abandoned():
            return self._planner.bound(demand)
        return 1

    def _placed(self, demand: PlanDemand, place: Step) -> _FirstWay:
        """Place one more request with as few moves as there may be."""
        if shortage(self._simulation, demand.wanted, "hosts"):
            return _FirstWay(False, 0, hopeless=True)
        return self._first(place, self.spare)

    def _bound(self, demand: PlanDemand, needed: int, first: _FirstWay) -> Bound:
        """Return the bound that the search for the first request proves."""
        if needed == NEVER:
            return Bound(0, results.IMPOSSIBLE)
        is_full = demand.is_searched_in_full(self._simulation)
        if not is_full or not self._planner.is_searched_in_full(self._movable):
            # Not all ways with fewer were looked at.
            return Bound(needed, results.SUMS)
        if first.hopeless:
            return Bound(0, results.IMPOSSIBLE)
        return Bound(first.too_few + 1, results.SEARCH)

    # -- searches -----------------------------------------------------------------------------------

    def _deepest(self, most: int) -> tuple[int, int]:
        """Return up to how many moves, at most `most`, ways are looked for, and how many might be made."""
        movable = min(most, len(self._movable) - len(self._simulation.relocations))
        return min(movable, results.DEEPEST), movable

    def _first(self, step: Step, most: int) -> _FirstWay:
        """Take the first way with the fewest moves, at most `most`."""
        mark = self._simulation.mark()
        deepest, possible = self._deepest(most)
        for spare in range(deepest + 1):
            try:
                if self._planner.search(step, spare).next_way() is not None:
                    return _FirstWay(True, spare - 1)
            except SearchEnded as ended:
                self._end(ended, mark)
                return _FirstWay(False, spare - 1)
        if deepest < possible:
            self._cut = self._cut or results.TOO_DEEP
        return _FirstWay(False, deepest, deepest == len(self._movable) - len(self._simulation.relocations))

    def _done_anew(self, mark: Mark, steps: Sequence[Step], moves: int) -> bool:
        """Go back and do all steps in any way; return whether it worked, else all is as before."""
        changes = self._simulation.changes_since(mark)
        self._simulation.back(mark)
        if self._all_done(steps, moves):
            return True
        self._simulation.replace_since(mark, changes)
        return False

    def _all_done(self, steps: Sequence[Step], moves: int) -> bool:
        """Do all steps in any way, with `moves` moves beside the ones of others; return whether it worked."""
        mark = self._simulation.mark()
        deepest, possible = self._deepest(self.spare - moves)
        if deepest < possible or len(steps) > results.DEEPEST:
            self._cut = self._cut or results.TOO_DEEP
        try:
            for spare in range(deepest + 1 if len(steps) <= results.DEEPEST else 0):
                search = self._planner.search(partial(self._all, steps, set()), spare)
                if search.next_way() is not None:
                    return True
        except SearchEnded as ended:
            self._end(ended, mark)
        return False

    def _all(self, steps: Sequence[Step], nowhere: set[Hashable], spare: int) -> Iterator[Way]:
        """Do steps one after the other: each way of one is tried with each way of the next.

        Nothing is tried again in a state in `nowhere`, which led nowhere.
        """
        here = (len(steps), spare, self._planner.state())
        if here in nowhere:
            return
        first, *rest = steps
        yield Way(_no_change, steps=(first, partial(self._all, rest, nowhere)) if rest else (first,))
        nowhere.add(here)

    def _end(self, ended: SearchEnded, mark: Mark) -> None:
        """Go back to a mark when the time is up during a search. Raises SearchEnded if the caller left."""
        if ended.abandoned:
            raise ended
        self._simulation.back(mark)
        self._cut = results.TIME_UP

    # -- empty hosts --------------------------------------------------------------------------------

    def empty(self, roots: Sequence[int]) -> GoalResult:
        """Move all consumers away from hosts."""
        simulation, result = self._simulation, GoalResult(len(roots))
        for root in roots:
            simulation.close(root)
        consumers = [each for root in roots for each in self._by_size(root)]
        stays = {each.uuid: why for each in consumers if (why := self._why_never(each))}
        leaving_consumers = [each for each in consumers if each.uuid not in stays]
        result.bound, why = self._bound_of_leaving(leaving_consumers, len(consumers))
        mark = simulation.mark()
        left, is_proven = self._vacate(leaving_consumers, others=not why)
        if left and not is_proven and not why:
            steps = self._steps(leaving_consumers)
            if self._done_anew(mark, steps, len(leaving_consumers)):
                left = []
        result.left = [(each, stays[each.uuid]) for each in consumers if each.uuid in stays] + left
        result.emptied = [root for root in roots if not simulation.on.get(root)]
        result.achieved = len(result.emptied)
        if stays:
            why = why or "some consumers there may not move"
        return self._with_reason(result, why)

    def _bound_of_leaving(self, leaving_consumers: Sequence[PlacedConsumer], moves: int) -> tuple[Bound, str]:
        """Return the bound of that many moves, and why not all consumers can leave; empty if they can."""
        if why := self._no_room_for(leaving_consumers):
            return Bound(0, results.IMPOSSIBLE), why
        if len(leaving_consumers) > self.spare:
            why = f"{len(leaving_consumers)} moves are needed, at most {self.spare} are allowed"
        return Bound(moves, results.SUMS), why

    def _why_never(self, consumer: PlacedConsumer) -> str:
        """Return why a consumer can never go; empty if that is not known at once."""
        why, demand = self._planner.why_not(consumer), consumer.demand
        if not why and demand is not None:
            with _unless_abandoned():
                if all(self._simulation.closed[root] > 0 for root in demand.hosts(self._simulation)):
                    why = "no other host could ever take it"
                    # Finding the condition takes as long as looking at all nodes.
                    if isinstance(demand, PodPlanDemand) and self._conditions_named < _MOST_CONDITIONS:
                        self._conditions_named += 1
                        why += demand.why_nowhere(self._simulation)
        return why

    def _no_room_for(self, leaving_consumers: Sequence[PlacedConsumer]) -> str:
        """Return why open hosts never have room for all of these consumers, by sums; empty if they may."""
        wanted: Counter[int] = Counter()
        for each in leaving_consumers:
            if each.demand is not None:
                wanted.update(each.demand.wanted)
        return shortage(self._simulation, wanted, "the hosts that may take them")

    def _steps(self, leaving_consumers: Sequence[PlacedConsumer]) -> list[Step]:
        """Return a step for each consumer, which has no way if it may not be moved any more."""

        def move(consumer: PlacedConsumer, spare: int) -> Iterator[Way]:
            return iter(()) if self._planner.why_not(consumer) else self._planner.move(consumer, spare)

        return [partial(move, each) for each in leaving_consumers]

    def _vacate(
        self, leaving_consumers: Sequence[PlacedConsumer], *, others: bool = True
    ) -> tuple[list[NotMoved], bool]:
        """Move all of these consumers away, in one order after another.

        Others are moved for them only if orders alone do not help. The simulation keeps the moves of the
        order that left the fewest behind. Returns these, and whether it is proven that not all can go.
        """
        simulation, is_proven = self._simulation, False
        mark = simulation.mark()
        promoted_consumers, orders = list[PlacedConsumer](), list[_MoveOrder]()
        for most in (0, self._most) if others else (0,):
            simulation.back(mark)
            is_proven = self._vacate_in_orders(mark, leaving_consumers, most, promoted_consumers, orders)
            if not orders[-1].left:
                return [], False
            if is_proven or self._cut == results.TIME_UP:
                break
        best = min(orders, key=lambda order: len(order.left))
        simulation.replace_since(mark, best.changes)
        return best.left, is_proven

    def _vacate_in_orders(
        self,
        mark: Mark,
        leaving_consumers: Sequence[PlacedConsumer],
        most: int,
        promoted_consumers: list[PlacedConsumer],
        orders: list[_MoveOrder],
    ) -> bool:
        """Try orders until one leaves no consumer behind; return whether one proves that not all can go.

        A consumer that found no place goes first in the next order.
        """
        promoted_uuids = set[str]()
        while True:
            left = self._move_away(promoted_consumers, leaving_consumers, most)
            orders.append(_MoveOrder(left, self._simulation.changes_since(mark)))
            if not left:
                return False
            failed = left[0][0]
            is_first = failed is (promoted_consumers or leaving_consumers)[0]
            if is_first or failed.uuid in promoted_uuids or self._cut == results.TIME_UP:
                # No consumer went before it, and all others might have been moved for it.
                return bool(most) and is_first and not self._cut
            promoted_uuids.add(failed.uuid)
            promoted_consumers[:] = [failed, *(each for each in promoted_consumers if each is not failed)]
            self._simulation.back(mark)

    def _move_away(
        self,
        promoted_consumers: Sequence[PlacedConsumer],
        leaving_consumers: Sequence[PlacedConsumer],
        most: int,
    ) -> list[NotMoved]:
        """Move each consumer that can go with at most `most` moves of others; return the rest, and why."""
        first = {each.uuid for each in promoted_consumers}
        order = [*promoted_consumers, *(each for each in leaving_consumers if each.uuid not in first)]
        return [(each, why) for each in order if (why := self._why_left(each, most))]

    def _why_left(self, consumer: PlacedConsumer, most: int) -> str:
        """Move a consumer; return why it cannot go, empty if it went."""
        if why := self._planner.why_not(consumer):
            return why
        if self.spare < 1:
            return "no more moves are allowed"
        if self._cut == results.TIME_UP:
            return f"{results.NO_PLACE} before time ran out"
        move = partial(self._planner.move, consumer)
        return "" if self._first(move, min(self.spare - 1, most)).found else results.NO_PLACE

    def _by_size(self, root: int) -> list[PlacedConsumer]:
        consumers = self._simulation.on.get(root, {}).values()
        return sorted(consumers, key=lambda each: (-sum(draw.amount for draw in each.spot.draws), each.uuid))

    # -- free hosts ---------------------------------------------------------------------------------

    def free(self, wanted: int, roots: Sequence[int]) -> GoalResult:
        """Empty `wanted` more of these hosts; hosts that are empty now are filled where that helps."""
        simulation, result = self._simulation, GoalResult(wanted)
        counts = sorted((len(simulation.on.get(root, ())), at, root) for at, root in enumerate(roots))
        empty = [root for count, _, root in counts if not count]
        occupied = [root for count, _, root in counts if count]
        staying = {root for root in occupied if any(map(self._planner.why_not, simulation.on[root].values()))}
        leaving = [root for root in occupied if root not in staying]
        possible, why = most_empty(simulation, roots, wanted, staying)
        if not possible:
            result.bound = Bound(0, results.IMPOSSIBLE)
            return self._with_reason(result, why)
        result.bound = Bound(sum(len(simulation.on[root]) for root in leaving[:wanted]), results.SUMS)
        mark = simulation.mark()
        # First what is quick, of all hosts: a host that is hard to leave must not use up the time.
        result.emptied = self._free_in_turn(empty, leaving, possible, others=False)
        kept = simulation.changes_since(mark)
        if len(result.emptied) < possible or len(kept.relocations) > result.bound.moves:
            simulation.back(mark)
            emptied = self._free_in_turn(empty, leaving, possible, others=True)
            if (-len(emptied), len(simulation.relocations)) < (-len(result.emptied), len(kept.relocations)):
                result.emptied = emptied
            else:
                simulation.replace_since(mark, kept)
        result.achieved = len(result.emptied)
        while result.achieved < possible and self._cut != results.TIME_UP:
            changes = simulation.changes_since(mark)
            chosen = self._freed_together(mark, empty, leaving, result.achieved + 1)
            if not chosen:
                simulation.replace_since(mark, changes)
                break
            result.emptied = list(chosen)
            result.achieved = sum(not simulation.on.get(root) for root in roots) - len(empty)
        return self._with_reason(result, why)

    def _free_in_turn(
        self, empty: Sequence[int], leaving: Sequence[int], most: int, *, others: bool
    ) -> list[int]:
        """Empty one host after another, fewest consumers first; hosts that are empty now stay empty.

        `others`: consumers of other hosts may be moved, too, where that helps.
        """
        simulation, emptied = self._simulation, list[int]()
        for root in empty:
            simulation.close(root)
        for root in leaving:
            if len(emptied) == most or self._cut == results.TIME_UP:
                break
            if len(simulation.on[root]) <= self.spare:
                mark = simulation.mark()
                simulation.close(root)
                if self._vacate(self._by_size(root), others=others)[0]:
                    simulation.back(mark)
                else:
                    emptied.append(root)
        return emptied

    def _freed_together(
        self, mark: Mark, empty: Sequence[int], leaving: Sequence[int], wanted: int
    ) -> Sequence[int]:
        """Empty `wanted` more hosts, any of them, and return them; hosts that are empty now may be filled.

        Every choice of hosts is tried first in the orders that are quick, and then in all ways.
        """

        def closed_for(filled: Sequence[int], chosen: Sequence[int]) -> list[PlacedConsumer]:
            """Start anew with all but `filled` closed; return the consumers on `chosen`."""
            self._planner.budget.look()
            self._simulation.back(mark)
            for root in {*empty, *chosen} - {*filled}:
                self._simulation.close(root)
            return [each for root in chosen for each in self._by_size(root)]

        undecided: list[tuple[Sequence[int], Sequence[int]]] = []
        try:
            for filled, chosen in _choices(empty, leaving, wanted):
                leaving_consumers = closed_for(filled, chosen)
                if len(leaving_consumers) > self.spare or self._no_room_for(leaving_consumers):
                    continue
                left, is_proven = self._vacate(leaving_consumers)
                if not left:
                    return chosen
                if not is_proven:
                    undecided.append((filled, chosen))
            for filled, chosen in undecided:
                leaving_consumers = closed_for(filled, chosen)
                if self._all_done(self._steps(leaving_consumers), len(leaving_consumers)):
                    return chosen
        except SearchEnded as ended:
            self._end(ended, mark)
        return ()


def _choices(
    empty: Sequence[int], leaving: Sequence[int], wanted: int
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Yield empty hosts that may be filled, and occupied hosts to leave: `wanted` more of these."""
    for count in range(min(len(empty), len(leaving) - wanted) + 1):
        for filled in combinations(empty, count):
            for chosen in combinations(leaving, wanted + count):
                yield filled, chosen


@contextmanager
def _unless_abandoned() -> Iterator[None]:
    """Go on behind the block if its time is up. Raises SearchEnded if the caller went away."""
    try:
        yield
    except SearchEnded as ended:
        if ended.abandoned:
            raise


def _no_change() -> None:
    """Change nothing."""
