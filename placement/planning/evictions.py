"""The search for moves that make room for a request, fewest first.

A request takes a spot. Each consumer in its way goes to a spot of its own, for which others may have to go in
turn. A consumer is moved in the simulation as it is then, with promised spots kept. So each move is possible
when the moves before it are made.

The search is a list of steps, such as "move this consumer" or "open that host again". A step has several ways
to be done: a way changes the simulation, and may have steps of its own, which come first. `StepSearch` does
one step after another. Where a step has no way, it goes back to the last step that has another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations, permutations
from typing import NamedTuple

from placement.engine.search.budget import Budget
from placement.planning.limits import PlanLimits
from placement.planning.simulation import MoveSimulation, PlacedConsumer, PlanDemand, Spot

NEVER = 1_000_000
"""More moves than any plan has."""

ConsumersInTheWay = tuple[tuple[PlacedConsumer, ...], Spot]
"""Consumers that have to leave for a spot, and that spot."""


class Way(NamedTuple):
    """A way to do a step: a change, the `moves` it decides on, and the steps to do after the change.

    `change` returns whether the way is possible, None if it always is.
    """

    change: Callable[[], bool | None]
    moves: int = 0
    steps: tuple[Step, ...] = ()


Step = Callable[[int], Iterable[Way]]
"""Yields the ways to do a step with at most as many moves as given.

Each way is asked for when the simulation is as it was before the step.
"""


class _OpenStep(NamedTuple):
    """A step that may be done in further ways: the mark of the forest before it, and the steps after it."""

    mark: int
    ways: Iterator[Way]
    following: tuple[Step, ...]
    spare: int


class StepSearch:
    """A search for the ways to do a step with at most `spare` moves, one after the other."""

    def __init__(self, simulation: MoveSimulation, step: Step, spare: int) -> None:
        # The forest undoes all changes of the simulation.
        self._forest = simulation.forest
        self._spare = spare
        self._open = [_OpenStep(self._forest.mark(), iter(step(spare)), (), spare)]

    def next_way(self) -> int | None:
        """Return how many moves the next way takes, which the simulation shows then.

        Return None if there is no further way; the simulation is as it was at first then. Raises SearchEnded.
        """
        forest, open_steps = self._forest, self._open
        while open_steps:
            mark, ways, following, spare = open_steps[-1]
            forest.back(mark)
            way = next(ways, None)
            if way is None:
                open_steps.pop()
            elif way.change() is not False:
                spare -= way.moves
                steps = way.steps + following
                if not steps:
                    return self._spare - spare
                open_steps.append(_OpenStep(forest.mark(), iter(steps[0](spare)), steps[1:], spare))
        return None


class EvictionPlanner:
    """The ways to make room for requests, and to move consumers, in a simulation."""

    def __init__(self, simulation: MoveSimulation, limits: PlanLimits, budget: Budget) -> None:
        self._simulation = simulation
        self.choose: Callable[[Iterable[Spot]], Iterable[Spot]] = lambda spots: spots
        """Returns the spots that consumers are moved to, in the order in which they are tried."""
        self._limits = limits
        self.budget = budget
        # Consumers that are being moved, or wait for their move.
        self._moving: set[str] = set()
        self._needs: dict[Hashable, tuple[int, float]] = {}
        self._in_the_way: dict[Hashable, list[ConsumersInTheWay]] = {}

    def may_move(self, consumer: PlacedConsumer) -> bool:
        """Return whether a consumer may be moved next."""
        return consumer.uuid not in self._moving and not self.why_not(consumer)

    def why_not(self, consumer: PlacedConsumer) -> str:
        """Return why a consumer may not be moved next; empty if it may."""
        return self._limits.why_not(consumer, self._simulation.relocations)

    def state(self) -> Hashable:
        """Return a key that is equal if equal requests were placed and like consumers went to like spots."""
        simulation = self._simulation
        moved = Counter(
            (self._key(each.consumer), each.spot.root, each.spot.draws) for each in simulation.relocations
        )
        return frozenset(moved.items()), tuple(sorted(spot.draws for spot in simulation.placed_spots))

    def is_searched_in_full(self, consumers: Iterable[PlacedConsumer]) -> bool:
        """Return whether the search leaves out no way to move these consumers.

        It leaves out some candidates of trees that have too many. It also leaves out moves of consumers
        elsewhere that would make room on shared providers.
        """
        simulation = self._simulation
        demands = {each.demand.key: each.demand for each in consumers if each.demand is not None}
        sharers = simulation.forest.sharers
        return (
            not simulation.forest.was_cut
            and all(demand.is_searched_in_full(simulation) for demand in demands.values())
            and not any(draw.row in sharers for each in consumers for draw in each.spot.draws)
        )

    # -- steps --------------------------------------------------------------------------------------

    def search(self, step: Step, spare: int) -> StepSearch:
        """Return a search for the ways to do a step with at most `spare` moves."""
        return StepSearch(self._simulation, step, spare)

    def place(self, demand: PlanDemand, spare: int) -> Iterator[Way]:
        """Place a request, at once or after moves. Raises SearchEnded."""
        for spot in demand.spots(self._simulation):
            yield Way(partial(self._place_at_once, spot))
        for evicted_consumers, spot in self._evictions(demand, spare, None):
            yield from self.evict(evicted_consumers, spot, None, partial(self._simulation.place, spot))

    def _place_at_once(self, spot: Spot) -> None:
        self._simulation.reserve(spot)
        self._simulation.place(spot)

    def move(self, consumer: PlacedConsumer, spare: int) -> Iterator[Way]:
        """Move a consumer, with at most `spare` moves of others. Raises SearchEnded."""
        assert consumer.demand is not None
        yield Way(partial(self._simulation.leave, consumer), steps=(partial(self._arrive, consumer),))
        for evicted_consumers, spot in self._evictions(consumer.demand, spare, consumer):
            yield from self.evict(evicted_consumers, spot, consumer, partial(self._settle, consumer, spot))

    def _arrive(self, consumer: PlacedConsumer, _spare: int) -> Iterator[Way]:
        assert consumer.demand is not None
        for spot in self.choose(consumer.demand.spots(self._simulation)):
            if self._is_elsewhere(consumer, spot):
                yield Way(partial(self._simulation.arrive, consumer, spot))

    def _settle(self, consumer: PlacedConsumer, spot: Spot) -> bool:
        """Move a consumer to the spot kept for it; return whether it may move, and the spot is free."""
        simulation = self._simulation
        if self.why_not(consumer):
            # The moves made for it were the last ones allowed for its kind.
            return False
        simulation.leave(consumer)
        simulation.settle(consumer, spot)
        simulation.unnote(self._moving, (consumer.uuid,))
        # A kept spot must be free by now, and not only once further consumers have left. For pods it always
        # is: nothing comes to a node while a spot is kept on it.
        free = simulation.forest.free
        return spot.node is not None or all(free(draw.row, draw.class_id) >= 0 for draw in spot.draws)

    def _is_elsewhere(self, consumer: PlacedConsumer, spot: Spot) -> bool:
        """Return whether going there is a move: a pod cannot get other CPUs on its own node."""
        if spot.root != consumer.root:
            return True
        forest = self._simulation.forest
        return spot.node is None and forest.look_of(spot.draws) != forest.look_of(consumer.spot.draws)

    def evict(
        self,
        evicted_consumers: Sequence[PlacedConsumer],
        spot: Spot,
        moving_consumer: PlacedConsumer | None,
        *then: Callable[[], bool | None],
    ) -> Iterator[Way]:
        """Move all consumers in the way of a spot, in any order, and make the changes `then`.

        The spot is kept for the moving consumer, or for a request. Raises SearchEnded.
        """
        reserve = partial(self._reserve, evicted_consumers, spot, moving_consumer)
        last = tuple(map(_only_way, then))
        if spot.node is not None:
            last = (_only_way(partial(self._simulation.open, spot.root)), *last)
        for order in permutations(evicted_consumers):
            self.budget.spend()
            yield Way(reserve, len(order), (partial(self._move_all, order), *last))

    def _reserve(
        self,
        evicted_consumers: Sequence[PlacedConsumer],
        spot: Spot,
        moving_consumer: PlacedConsumer | None,
    ) -> None:
        """Keep a spot; nothing else comes to its node until it is opened again."""
        simulation = self._simulation
        if moving_consumer is not None:
            simulation.note(self._moving, (moving_consumer.uuid,))
        simulation.reserve(spot, evicted_consumers, moving_consumer)
        if spot.node is not None:
            simulation.close(spot.root)

    def _move_all(self, consumers: Sequence[PlacedConsumer], spare: int) -> Iterator[Way]:
        """Move consumers one after the other."""
        first, *rest = consumers
        if not self.may_move(first):
            return
        if not rest:
            yield from self.move(first, spare)
            return
        # Consumers that move later anyway are not moved to make room for this one.
        waiting = {each.uuid for each in rest} - self._moving
        wait, end_waiting = (
            partial(change, self._moving, waiting)
            for change in (self._simulation.note, self._simulation.unnote)
        )
        yield Way(
            wait, steps=(partial(self.move, first), _only_way(end_waiting), partial(self._move_all, rest))
        )

    # -- consumers in the way -----------------------------------------------------------------------

    def _evictions(
        self, demand: PlanDemand, spare: int, moving_consumer: PlacedConsumer | None
    ) -> Iterator[tuple[Sequence[PlacedConsumer], Spot]]:
        """Yield sets of consumers that are all in the way of a spot, the smallest first, and that spot.

        Hosts with the smallest lack come first. `moving_consumer` counts as gone. Raises SearchEnded.
        """
        simulation = self._simulation
        fullest = max(map(len, simulation.on.values()), default=0)
        for size in range(1, min(spare, fullest) + 1):
            for root in self._hosts(demand, size, moving_consumer):
                self.budget.look()
                with simulation.tried():
                    if moving_consumer is not None:
                        simulation.leave(moving_consumer)
                    found = self._known_in_the_way(demand, root, size)
                for evicted_consumers, spot in found:
                    if moving_consumer is None or self._is_elsewhere(moving_consumer, spot):
                        yield evicted_consumers, spot

    def _hosts(self, demand: PlanDemand, size: int, moving_consumer: PlacedConsumer | None) -> list[int]:
        """Return the hosts where `size` moves may make room, by moves needed, burdens and lack."""
        own_root, is_pod = None, False
        if moving_consumer is not None:
            own_root, is_pod = moving_consumer.root, moving_consumer.pod is not None
        ranked, burdens = [], demand.burdens(self._simulation)
        self.budget.look()
        for root in demand.hosts(self._simulation):
            self.budget.spend()
            is_own = root == own_root
            if self._simulation.closed[root] > 0 or (is_own and is_pod):
                continue
            # Without the consumer its own host has more left than sums tell.
            needed, lacks = (1, 0.0) if is_own else self._need(demand, root)
            if needed <= size:
                ranked.append((needed, int(burdens[root]), lacks, root))
        # Stable: equal ones stay in the order of their ids.
        return [root for *_, root in sorted(ranked, key=lambda each: each[:3])]

    def _need(self, demand: PlanDemand, root: int) -> tuple[int, float]:
        """Return the least number of consumers that must leave a host, by sums, and its lack as a share."""
        simulation = self._simulation
        key = (demand.key, root, simulation.forest.state(root), simulation.consumer_hashes[root])
        if key not in self._needs:
            here = [demand.freed(simulation, each) for each in simulation.on.get(root, {}).values()]
            needed, lacks = 1, 0.0
            for name, amount in demand.lacking(simulation, root).items():
                largest = sorted((each.get(name, 0) for each in here), reverse=True)
                count, left = 0, amount
                while left > 0 and count < len(largest) and largest[count] > 0:
                    left -= largest[count]
                    count += 1
                needed = max(needed, NEVER if left > 0 else count)
                lacks = max(lacks, amount / (sum(largest) or 1))
            self._needs[key] = needed, lacks
        return self._needs[key]

    def bound(self, demand: PlanDemand) -> int:
        """Return the least number of moves, by sums, that a request needs where it does not fit at once."""
        simulation = self._simulation
        roots = (root for root in demand.hosts(simulation) if simulation.closed[root] <= 0)
        return min((self._need(demand, root)[0] for root in roots), default=NEVER)

    def _known_in_the_way(self, demand: PlanDemand, root: int, size: int) -> Sequence[ConsumersInTheWay]:
        """Return the findings of `in_the_way`, from memory where chains of moves come to a host again.

        They are used again only if the host holds the same and the same consumers may be moved from it. For
        nodes with pods nothing is remembered.
        """
        simulation = self._simulation
        if root in simulation.nodes:
            return list(self.in_the_way(demand, root, size))
        movable = frozenset(uuid for uuid, each in simulation.on.get(root, {}).items() if self.may_move(each))
        key = (demand.key, root, size, simulation.forest.state(root), movable)
        if key not in self._in_the_way:
            self._in_the_way[key] = list(self.in_the_way(demand, root, size))
        return self._in_the_way[key]

    def in_the_way(self, demand: PlanDemand, root: int, size: int) -> Iterator[ConsumersInTheWay]:
        """Yield sets of `size` consumers of a host that all have to leave for a spot, and that spot.

        Raises SearchEnded.
        """
        simulation = self._simulation
        movable = [each for each in simulation.on.get(root, {}).values() if self.may_move(each)]
        movable.sort(key=lambda each: (sum(draw.amount for draw in each.spot.draws), each.uuid))
        lacking = demand.lacking(simulation, root).items()
        freed = {each.uuid: demand.freed(simulation, each) for each in movable}
        known = set()
        for consumers in combinations(movable, size):
            self.budget.spend()
            amounts = [freed[each.uuid] for each in consumers]
            if any(sum(each.get(name, 0) for each in amounts) < least for name, least in lacking):
                continue
            key = tuple(sorted(map(self._key, consumers)))
            if key in known:
                continue
            known.add(key)
            with simulation.tried():
                for each in consumers:
                    simulation.leave(each)
                spots = demand.spots_on(simulation, root)
                needed = [spot for spot in spots if self._all_needed(consumers, spot)]
            for spot in needed:
                yield consumers, spot

    def _key(self, consumer: PlacedConsumer) -> int:
        """Return a key that is equal for consumers of a host that can stand for each other."""
        assert consumer.demand is not None
        if consumer.pod is not None and consumer.pod.holding.cpus:
            return hash(consumer.uuid)
        limits = tuple(bound.covers(consumer) for bound in self._limits.at_most)
        return hash((consumer.demand.key, consumer.spot.draws, limits))

    def _all_needed(self, consumers: Sequence[PlacedConsumer], spot: Spot) -> bool:
        """Return whether none of these consumers could come back beside the spot; always true for pods."""
        if spot.node is not None:
            return True
        forest = self._simulation.forest
        wanted = {(draw.row, draw.class_id): draw.amount for draw in spot.draws}
        return all(
            any(
                forest.free(draw.row, draw.class_id) - wanted.get((draw.row, draw.class_id), 0) < draw.amount
                for draw in each.spot.draws
            )
            for each in consumers
        )


def _only_way(change: Callable[[], bool | None]) -> Step:
    return lambda _spare: (Way(change),)
