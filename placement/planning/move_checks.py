"""The check whether the moves of a plan are still possible, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from placement.engine.domain.claims import AmountsByProvider
from placement.engine.forest.inventories import Draw
from placement.planning.demands import QueryPlanDemand
from placement.planning.planning_state import PlanningState
from placement.planning.plans import DONE, IMPOSSIBLE, POSSIBLE, Move
from placement.planning.simulation import PlacedConsumer, Spot


class CheckedMove(NamedTuple):
    """The state of a move; `why` it is impossible, else empty."""

    consumer: str
    state: str
    why: str = ""


class MoveCheck:
    """The check whether the moves of a plan are possible, each after the possible ones before it."""

    def __init__(self, state: PlanningState) -> None:
        self._state, self._forest, self._simulation = state, state.hosts.forest, state.simulation
        on_hosts = self._simulation.on.values()
        self._consumers = {uuid: each for on_host in on_hosts for uuid, each in on_host.items()}

    def checked(self, moves: Sequence[Move]) -> Iterator[CheckedMove]:
        """Yield the state of each move after the moves before it. Raises SearchEnded."""
        for move in moves:
            consumer = self._consumers.get(move.consumer)
            why = "holds nothing here any more"
            if consumer is not None:
                held = self._state.resources(consumer.spot.draws)
                if move.after == held:
                    yield CheckedMove(move.consumer, DONE)
                    continue
                why = consumer.fixed or self._refusal(move, consumer, held)
            yield CheckedMove(move.consumer, IMPOSSIBLE if why else POSSIBLE, why)

    def _refusal(self, move: Move, consumer: PlacedConsumer, held: AmountsByProvider) -> str:
        """Return why a move is impossible; empty if it was made in the simulation."""
        if move.before != held:
            return "holds something else by now"
        if move.generation != consumer.generation:
            return f"has generation {consumer.generation} by now, not {move.generation}"
        mark = self._simulation.mark()
        self._simulation.leave(consumer)
        spot = self._pod_spot(move, consumer) if move.pod is not None else self._spot(move, consumer)
        if isinstance(spot, str):
            self._simulation.back(mark)
            return spot
        self._simulation.arrive(consumer, spot)
        # It does not move again.
        self._consumers[consumer.uuid] = self._simulation.on[spot.root][consumer.uuid]
        return ""

    def _spot(self, move: Move, consumer: PlacedConsumer) -> Spot | str:
        """Return the spot of a consumer that has left its old one, or why it cannot be there."""
        forest, names, draws = self._forest, self._state.hosts.view.names, []
        for uuid, amounts in move.after.items():
            row = forest.row_of_uuid(uuid)
            if row < 0:
                return f"there is no provider {uuid} any more"
            for name, amount in amounts.items():
                if name not in names.class_ids:
                    return f"there is no resource class {name} any more"
                draws.append(Draw(row, names.class_ids[name], amount))
        roots = [forest.root_of(draw.row) for draw in draws if draw.row not in forest.sharers]
        if not roots:
            return "holds nothing of a host"
        spot = Spot(roots[0], tuple(sorted(draws)))
        return self._why_not_there(consumer, spot) or spot

    def _why_not_there(self, consumer: PlacedConsumer, spot: Spot) -> str:
        """Return why a consumer cannot be at a spot; empty if it can."""
        names = self._state.hosts.view.names
        if why := self._why_closed(spot.root):
            return why
        for draw in spot.draws:
            if not self._forest.admits(draw):
                name, uuid = names.classes[draw.class_id], self._state.uuid(draw.row)
                return f"{draw.amount} {name} of provider {uuid} are not free"
        demand = consumer.demand
        if not isinstance(demand, QueryPlanDemand) or not demand.admits(self._simulation, spot):
            return "is no longer a candidate of its request there"
        return ""

    def _why_closed(self, root: int) -> str:
        """Return why no consumer may go to a host; empty if it may."""
        if self._simulation.closed[root] <= 0:
            return ""
        why = "is closed" if root in self._state.hosts.closed else "does not take part"
        return f"host {self._state.uuid(root)} {why}"

    def _pod_spot(self, move: Move, consumer: PlacedConsumer) -> Spot | str:
        """Return the pod's spot on the plan's node, or why it has none; its CPUs may be others."""
        if consumer.demand is None:
            return consumer.fixed
        row = self._forest.row_of_uuid(move.to_host)
        if row >= 0 and (why := self._why_closed(row)):
            return why
        spots = consumer.demand.spots_on(self._simulation, row) if row >= 0 else ()
        return spots[0] if spots else "does not fit there any more"
