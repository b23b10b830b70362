"""What the reservations of a node have left, beside the pods that are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.numa.amounts import Amounts, NumaAmounts, summed
from placement.numa.ledger import Holding
from placement.numa.reservations import amounts_left, what_is_left
from placement.scheduling.host import counted_holding
from placement.scheduling.node_offers import NodeOffers


def holders(
    offers: NodeOffers, pods: tuple[RecordedPod, ...], reservations: Iterable[RecordedPod]
) -> tuple[RecordedPod, ...]:
    """Everybody who holds something of a node: its pods, then its reservations with what they have left."""
    return (*pods, *(left_of(offers, reservation, pods) for reservation in reservations))


def left_of(offers: NodeOffers, reservation: RecordedPod, pods: Sequence[RecordedPod]) -> RecordedPod:
    """A reservation with what it has left: less what its owners took, and less CPUs that any pod has.

    Source: koordinator.md, "Reservations".
    """
    owners = [pod for pod in pods if pod.reservation == reservation.consumer]
    others = frozenset[int]().union(*(pod.holding.cpus for pod in pods if pod not in owners))
    lost = reservation.holding.cpus & others
    if not owners and not lost:
        return reservation
    taken = [counted_holding(owner.holding, offers) for owner in owners]
    if lost:
        taken.append(counted_holding(Holding(lost), offers))
    requests = Counter({"cpu": 1000 * len(lost)})
    for owner in owners:
        requests.update(owner.requests)
    return replace(
        reservation,
        requests=amounts_left(reservation.requests, requests),
        holding=what_is_left(counted_holding(reservation.holding, offers), taken),
        loose=_left(reservation.loose, summed(owner.loose for owner in owners)),
        slots=0 if owners else 1,
    )


def _left(held: NumaAmounts, taken: NumaAmounts) -> NumaAmounts:
    nothing: Amounts = {}
    return NumaAmounts(
        {numa: amounts_left(amounts, taken.get(numa, nothing)) for numa, amounts in held.items()}
    )
