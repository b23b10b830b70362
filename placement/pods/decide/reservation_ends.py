"""The ends of reservations: used up by the only pod that may use them, or expired.

Nothing runs by the clock: a request that places a pod or a reservation first releases what has expired;
requests that only read leave it out and write nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from placement.common.clock import agreed_now
from placement.pods.decide.reading import PodDocument
from placement.pods.state.model import RecordedReservation
from placement.pods.state.node_info import NodeInfo

AVAILABLE, SUCCEEDED, FAILED = "Available", "Succeeded", "Failed"
"""The phases of a reservation: on its node, used by its only owner, expired."""
EXPIRED = "expired"


class Ending(NamedTuple):
    """A reservation that ends: on which host provider it is, its phase from now on, and why."""

    reservation: RecordedReservation
    root_id: int
    phase: str
    remark: str


def used_up(reservation: RecordedReservation, node: NodeInfo, document: PodDocument) -> Ending | None:
    """Return the end of a reservation on a node that a pod uses up; None if other pods may use it."""
    if reservation.keeps is None or not reservation.keeps.allocate_once:
        return None
    return Ending(reservation, node.root_id, SUCCEEDED, used_by(document.full_name, document.uid))


def used_by(full_name: str, uid: str) -> str:
    """Return the remark on a reservation that one pod has used up."""
    return f"used by pod {full_name}, uid {uid}"


def due_on(nodes: Mapping[int, NodeInfo]) -> list[Ending]:
    """Return the reservations on nodes, by host provider, that have expired by now."""
    return [
        Ending(each, root_id, FAILED, EXPIRED)
        for root_id, node in nodes.items()
        for each in node.reservations
        if has_expired(each)
    ]


def has_expired(reservation: RecordedReservation) -> bool:
    """Return whether a reservation has expired by now."""
    return reservation.keeps is not None and reservation.keeps.is_over(agreed_now())
