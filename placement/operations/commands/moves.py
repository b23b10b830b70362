"""Making the moves of a plan: what consumers hold is rewritten, guarded by their generations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placement.domain.allocation import MOVE_HEADER
from placement.domain.errors import PlacementError
from placement.operations.client import VERSION, ServiceError, path

if TYPE_CHECKING:
    from placement.operations.client import Client

MADE, MADE_BEFORE = "made", "made before"
# The last one in which the type of a consumer is not said, which leaves it as it is.
_WITHOUT_TYPES = "1.37"
_NO_TYPE = "unknown"
# No answer, or one that says that the service ran out of time or of its database.
_UNCERTAIN = (None, 502, 503, 504)


class _Uncertain(PlacementError):
    """It is not known whether a move was made."""


class Moves:
    """The moves of a plan, in their order."""

    def __init__(self, client: Client, moves: Sequence[Mapping[str, Any]]) -> None:
        self._client, self._moves = client, moves

    def made(self) -> Iterator[tuple[int, Mapping[str, Any], str]]:
        """Make them one by one: the number of each, the move, and whether it was made now or before.

        Raises PlacementError naming the first that is refused; nothing after it is done.
        """
        for at, move in enumerate(self._moves, start=1):
            try:
                state = self._make(move)
            except _Uncertain as error:
                raise PlacementError(
                    f"move {at} of {len(self._moves)}, {move['consumer']}: {error}. "
                    f"Move {at} may have been made; apply the plan again."
                ) from None
            except PlacementError as error:
                raise PlacementError(
                    f"move {at} of {len(self._moves)}, {move['consumer']}: {error}. "
                    f"The {at - 1} before it are made, nothing else is."
                ) from None
            yield at, move, state

    def _make(self, move: Mapping[str, Any]) -> str:
        """Make a move. Raises PlacementError saying why it is refused."""
        place = path("allocations", move["consumer"])
        present = self._client.get(place)
        held = _amounts(present["allocations"])
        if held == _amounts(move["to_allocations"]):
            return MADE_BEFORE
        if held != _amounts(move["from_allocations"]):
            raise PlacementError("holds something else than the plan knows" if held else "holds nothing")
        if move["by"] != "rewriting":
            raise PlacementError(
                f"is a pod on node {move['pod']['from_node']}, which Kubernetes has to evict; "
                f"{move['pod']['to_node']} has room for it"
            )
        generation, known = present["consumer_generation"], move["consumer_generation"]
        if generation != known:
            raise PlacementError(f"has generation {generation} by now, the plan knows {known}")
        self._write(place, present, move)
        return MADE

    def _write(self, place: str, present: Mapping[str, Any], move: Mapping[str, Any]) -> None:
        body = {
            "allocations": move["to_allocations"],
            "project_id": present["project_id"],
            "user_id": present["user_id"],
            "consumer_generation": move["consumer_generation"],
        }
        typed = present["consumer_type"] != _NO_TYPE
        if typed:
            body["consumer_type"] = present["consumer_type"]
        try:
            self._client.put(place, body, VERSION if typed else _WITHOUT_TYPES, {MOVE_HEADER: "true"})
        except ServiceError as error:
            if error.status not in _UNCERTAIN:
                raise
            # The answer may have been lost after the move was made.
            if not self._is_made(place, move):
                raise _Uncertain(str(error)) from error

    def _is_made(self, place: str, move: Mapping[str, Any]) -> bool:
        """Whether it is certain that a move was made."""
        try:
            held = _amounts(self._client.get(place)["allocations"])
        except ServiceError:
            return False
        return held == _amounts(move["to_allocations"])


def _amounts(allocations: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return {uuid: dict(entry["resources"]) for uuid, entry in allocations.items()}
