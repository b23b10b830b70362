"""The check whether the moves of a plan are still possible, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placement.engine.forest.inventories import Draw
from placement.engine.search.simulation import Draws, SearchedForest
from placement.planning.board import MoveSimulation, PlacedConsumer, Spot
from placement.planning.plan import Move, QueryWish, Resources
from placement.providers.view import View

POSSIBLE, DONE, IMPOSSIBLE = "possible", "done", "impossible"


@dataclass(frozen=True, slots=True)
class Checked:
    """The state of a move; `why` it is impossible, else empty."""

    consumer: str
    state: str
    why: str = ""


def resources_of(view: View, ground: SearchedForest, draws: Draws) -> dict[str, dict[str, int]]:
    """Return the amounts of draws by provider uuid and class name."""
    resources: dict[str, dict[str, int]] = {}
    for uuid, draw in zip(ground.uuids([draw.row for draw in draws]), draws, strict=True):
        resources.setdefault(uuid, {})[view.names.classes[draw.class_id]] = draw.amount
    return resources


class Checking:
    """A check that makes moves on a board; a move that is impossible is left out."""

    def __init__(self, view: View, ground: SearchedForest, board: MoveSimulation) -> None:
        self._view, self._ground, self._board = view, ground, board
        self._known = {uuid: each for here in board.on.values() for uuid, each in here.items()}

    def checked(self, moves: Sequence[Move]) -> list[Checked]:
        """Return the state of each move after the moves before it. Raises SearchEnded."""
        return list(self._checked(moves))

    def _checked(self, moves: Sequence[Move]) -> Iterator[Checked]:
        for move in moves:
            consumer = self._known.get(move.consumer)
            why = "holds nothing here any more"
            if consumer is not None:
                if move.after == self._held(consumer):
                    yield Checked(move.consumer, DONE)
                    continue
                why = consumer.fixed or self._refusal(move, consumer)
            yield Checked(move.consumer, IMPOSSIBLE if why else POSSIBLE, why)

    def _refusal(self, move: Move, consumer: PlacedConsumer) -> str:
        """Return why a move is impossible; empty if it was made on the board."""
        if move.before != self._held(consumer):
            return "holds something else by now"
        if move.generation != consumer.generation:
            return f"has generation {consumer.generation} by now, not {move.generation}"
        mark = self._board.mark()
        self._board.leave(consumer)
        spot = self._pod_spot(move, consumer) if move.pod is not None else self._spot(move, consumer)
        if isinstance(spot, str):
            self._board.back(mark)
            return spot
        self._board.arrive(consumer, spot)
        # It does not move again.
        self._known[consumer.uuid] = self._board.on[spot.root][consumer.uuid]
        return ""

    def _held(self, consumer: PlacedConsumer) -> Resources:
        return resources_of(self._view, self._ground, consumer.spot.draws)

    def _spot(self, move: Move, consumer: PlacedConsumer) -> Spot | str:
        """Return the spot of a consumer that has left its old one, or why it cannot be there."""
        spot = self._named_spot(move)
        if isinstance(spot, str):
            return spot
        if self._board.closed[spot.root] > 0:
            return f"host {self._ground.uuids([spot.root])[0]} does not take part"
        if why := self._lack(spot.draws):
            return why
        if not isinstance(consumer.wish, QueryWish) or not consumer.wish.admits(self._board, spot):
            return "is no candidate of its request there any more"
        return spot

    def _named_spot(self, move: Move) -> Spot | str:
        draws = []
        for uuid, amounts in move.after.items():
            row = self._ground.row_of_uuid(uuid)
            if row < 0:
                return f"there is no provider {uuid} any more"
            for name, amount in amounts.items():
                class_id = self._view.names.class_ids.get(name)
                if class_id is None:
                    return f"there is no resource class {name} any more"
                draws.append(Draw(row, class_id, amount))
        roots = [self._ground.root_of(draw.row) for draw in draws if not self._ground.is_shared(draw.row)]
        return Spot(roots[0], tuple(sorted(draws))) if roots else "holds nothing of a host"

    def _lack(self, draws: Draws) -> str:
        for draw in draws:
            if not self._ground.admits(draw):
                (uuid,) = self._ground.uuids([draw.row])
                name = self._view.names.classes[draw.class_id]
                return f"{draw.amount} {name} of provider {uuid} are not free"
        return ""

    def _pod_spot(self, move: Move, consumer: PlacedConsumer) -> Spot | str:
        """Return the pod's spot on the plan's node, or why it has none; Kubernetes decides what it gets."""
        if consumer.wish is None:
            return consumer.fixed
        row = self._ground.row_of_uuid(move.to_host)
        if row >= 0 and self._board.closed[row] > 0:
            return f"host {move.to_host} does not take part"
        spots = consumer.wish.spots_on(self._board, row) if row >= 0 else ()
        return spots[0] if spots else "does not fit there any more"
