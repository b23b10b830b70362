"""Making the moves of a plan: what consumers hold is rewritten, guarded by their generations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from placement.client.client import VERSION, ServiceError, path
from placement.engine.domain.claims import MOVE_HEADER
from placement.engine.domain.errors import PlacementError

if TYPE_CHECKING:
    from placement.client.client import Client

MADE, MADE_BEFORE = "made", "made before"
# The last microversion without types of consumers; a write in it leaves the type as it is.
_WITHOUT_TYPES = "1.37"
_NO_TYPE = "unknown"
# No answer, or one that says that the service ran out of time or of its database.
_UNCERTAIN = (None, 502, 503, 504)


class _Uncertain(PlacementError):
    """A failure after which it is not known whether a move was made."""


def make_moves(
    client: Client, moves: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, Mapping[str, Any], str]]:
    """Make the moves one by one; yield the number, the move, and whether it was made now or before.

    Raises PlacementError naming the first move that is refused; no move after it is made.
    """
    for at, move in enumerate(moves, start=1):
        try:
            state = _make(client, move)
        except PlacementError as error:
            outcome = "The moves before it were made, and no others." if at > 1 else "No move was made."
            if isinstance(error, _Uncertain):
                outcome = f"Move {at} may have been made; apply the plan again."
            raise PlacementError(
                f"move {at} of {len(moves)}, {move['consumer']}: {error}. {outcome}"
            ) from None
        yield at, move, state


def _make(client: Client, move: Mapping[str, Any]) -> str:
    """Make a move, and return whether it was made now or before. Raises PlacementError if it is refused."""
    place = path("allocations", move["consumer"])
    present = client.get(place)
    held = _amounts(present["allocations"])
    if held == _amounts(move["to_allocations"]):
        return MADE_BEFORE
    _require_as_planned(move, held, present["consumer_generation"])
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
        client.put(place, body, VERSION if typed else _WITHOUT_TYPES, {MOVE_HEADER: "true"})
    except ServiceError as error:
        if error.status not in _UNCERTAIN:
            raise
        if not _is_made(client, place, move):
            raise _Uncertain(str(error)) from error
    return MADE


def _require_as_planned(move: Mapping[str, Any], held: Mapping[str, Any], generation: int | None) -> None:
    """Raise PlacementError unless the consumer is as the plan knows it, and may be moved by rewriting."""
    if held != _amounts(move["from_allocations"]):
        raise PlacementError("holds other resources than in the plan" if held else "holds nothing")
    if move["by"] != "rewriting":
        raise PlacementError(
            f"is a pod on node {move['pod']['from_node']}, which Kubernetes has to evict; "
            f"{move['pod']['to_node']} has room for it"
        )
    known = move["consumer_generation"]
    if generation != known:
        raise PlacementError(f"has generation {generation} now, and {known} in the plan")


def _is_made(client: Client, place: str, move: Mapping[str, Any]) -> bool:
    """Return whether a move was made of which the answer was lost."""
    with suppress(ServiceError):
        return _amounts(client.get(place)["allocations"]) == _amounts(move["to_allocations"])
    return False


def _amounts(allocations: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return {uuid: dict(entry["resources"]) for uuid, entry in allocations.items()}
