"""Defragmentation: moves after which less is stranded; the ones that regain most come first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from placement.engine.search.budget import SearchEnded
from placement.planning.demands import QueryPlanDemand
from placement.planning.evictions import EvictionPlanner, Way
from placement.planning.goal_results import SUMS, TIME_UP, Bound, GoalResult
from placement.planning.simulation import MoveSimulation, PlacedConsumer, Spot

# Bounds of a step: consumers that leave a host together, the best spots of each, ways, and sets tried.
_MOST_TOGETHER, _MOST_SPOTS, _MOST_WAYS, _MOST_SETS = 4, 4, 4, 6


class Defragmentation:
    """The reduction of stranded amounts of a class: free on hosts where the request does not fit any more."""

    def __init__(
        self,
        simulation: MoveSimulation,
        planner: EvictionPlanner,
        demand: QueryPlanDemand,
        class_id: int,
        roots: Collection[int],
    ) -> None:
        """Look at the hosts with these roots. Raises SearchEnded."""
        self._simulation, self._planner, self._demand, self._class_id = simulation, planner, demand, class_id
        self._roots = frozenset(roots)
        everywhere = simulation.forest.stranded(demand.queries, class_id)
        self._stranded = {root: everywhere[root] for root in roots if root in everywhere}
        self._at_first = dict(self._stranded)
        self._offers: dict[int, bool] = {}
        planner.choose = self._chosen

    @property
    def total(self) -> int:
        """Return how much is stranded now."""
        return sum(self._stranded.values())

    def run(self, most: int) -> GoalResult:
        """Make at most `most` moves."""
        result = GoalResult(self.total)
        try:
            self._make_moves(most)
        except SearchEnded as ended:
            if ended.abandoned:
                raise
            result.why = TIME_UP
        result.achieved = result.wanted - self.total
        if self.total:
            result.complete = False
            result.why = result.why or "the best moves were taken first; not all plans were tried"
        result.bound = Bound(self._least_moves(result.achieved), SUMS)
        return result

    def _make_moves(self, most: int) -> None:
        """Make the moves that are worth most, then the ones that are worth half of that, and so on."""
        worth = max(self._stranded.values(), default=0)
        while worth:
            roots = sorted(self._stranded, key=lambda root: (-self._stranded[root], root))
            improved = [root for root in roots if self._regained(root, worth, most)]
            if not improved:
                worth //= 2

    def _regained(self, root: int, worth: int, most: int) -> bool:
        """Let few consumers leave a host if each move is worth that much; return whether they left."""
        for size in range(1, _MOST_TOGETHER + 1):
            stranded = self._stranded.get(root, 0)
            if stranded < size * worth or len(self._simulation.relocations) + size > most:
                return False
            if self._improved(root, size, worth):
                return True
        return False

    def _improved(self, root: int, size: int, worth: int) -> bool:
        """Let `size` consumers leave a host if that is worth it; return whether they left."""
        simulation, planner = self._simulation, self._planner
        for consumers, spot in list(islice(planner.in_the_way(self._demand, root, size), _MOST_SETS)):
            mark = simulation.mark()
            search = planner.search(partial(self._evict, consumers, spot), size)
            try:
                for _ in range(_MOST_WAYS):
                    if search.next_way() is None:
                        break
                    if self._accepted(spot, size * worth):
                        return True
            except SearchEnded:
                simulation.back(mark)
                raise
            simulation.back(mark)
        return False

    def _evict(self, consumers: Sequence[PlacedConsumer], spot: Spot, _spare: int) -> Iterator[Way]:
        return self._planner.evict(consumers, spot, None)

    def _accepted(self, spot: Spot, worth: int) -> bool:
        """Keep the moves made for a spot if they regain at least `worth`; return whether they do."""
        simulation = self._simulation
        mark = simulation.mark()
        simulation.release(spot)
        changed = self._changed_hosts(spot)
        now = simulation.forest.stranded(self._demand.queries, self._class_id, changed)
        gain = sum(self._stranded.get(root, 0) - now.get(root, 0) for root in changed)
        if gain < worth:
            simulation.back(mark)
            return False
        for root in changed:
            self._stranded.pop(root, None)
        self._stranded.update(now)
        return True

    def _changed_hosts(self, spot: Spot) -> set[int]:
        """Return the hosts where another amount may be stranded after the moves made for a spot."""
        changed, left = {spot.root}, Counter[tuple[int, int]]()
        for each in self._simulation.relocations[-_MOST_TOGETHER:]:
            changed |= {each.consumer.root, each.spot.root}
            left.update({(row, name): amount for row, name, amount in each.consumer.spot.draws})
            left.subtract({(row, name): amount for row, name, amount in each.spot.draws})
        if any(amount and row in self._simulation.forest.sharers for (row, _), amount in left.items()):
            # What a sharing provider has left also affects hosts that nothing came to or left.
            changed |= self._roots
        return changed

    def _least_moves(self, regained: int) -> int:
        """Return the least number of moves that may regain that much: each changes two hosts."""
        moves = 0
        largest = sorted(self._at_first.values(), reverse=True)
        while regained > 0 and 2 * moves < len(largest):
            regained -= sum(largest[2 * moves : 2 * moves + 2])
            moves += 1
        return moves

    def _chosen(self, spots: Iterable[Spot]) -> list[Spot]:
        """Return the spots that harm least: on hosts without the class, then where it is stranded anyway."""

        def harm(spot: Spot) -> tuple[int, int]:
            root = spot.root
            if root not in self._offers:
                self._offers[root] = self._class_id in self._simulation.forest.amounts(root)
            if not self._offers[root]:
                return 0, 0
            return (1, -self._stranded[root]) if root in self._stranded else (2, 0)

        return sorted(spots, key=harm)[:_MOST_SPOTS]
