"""What the reservations of a node have left, beside the pods that are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from placement.dialects.koordinator.node.node import NodeImport
from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.numa.amounts import Amounts, NumaAmounts, summed
from placement.numa.cpuset import CpuSet
from placement.numa.ledger import Holding
from placement.numa.reservations import amounts_left, what_is_left
from placement.scheduling.host import counted_holding, unknown_pods
from placement.scheduling.node_offers import NodeOffers


def holders(
    node: NodeImport,
    offers: NodeOffers,
    pods: tuple[RecordedPod, ...],
    reservations: Sequence[RecordedPod],
) -> tuple[RecordedPod, ...]:
    """Everybody who holds something of a node: its pods, then its reservations with what they have left.

    The reservations are in the order in which they were made. A CPU that one gave up, as an owner in a shared
    pool took what it stands for, may be given to a later one, which then keeps it.
    Source: koordinator.md, "Reservations".
    """
    if not reservations:
        return pods
    reported = (pod.cpus for pod in (*node.kubelet_pods, *unknown_pods(node, pods)))
    gone = offers.unallocatable.union(*reported)
    left: list[RecordedPod] = []
    for reservation in reversed(reservations):
        left.append(_left_of(offers, reservation, pods, gone))
        gone |= left[-1].holding.cpus
    return (*pods, *reversed(left))


def _left_of(
    offers: NodeOffers, reservation: RecordedPod, pods: Sequence[RecordedPod], gone: CpuSet
) -> RecordedPod:
    """A reservation less what its owners took, and less CPUs that any pod has or that are gone."""
    owners = [pod for pod in pods if pod.reservation == reservation.consumer]
    others = gone.union(*(pod.holding.cpus for pod in pods if pod not in owners))
    lost = reservation.holding.cpus & others
    if not owners and not lost:
        return reservation
    taken = [counted_holding(owner.holding, offers) for owner in owners]
    if lost:
        taken.append(counted_holding(Holding(lost), offers))
    requested = Counter({"cpu": 1000 * len(lost)})
    for owner in owners:
        requested.update(owner.requests)
    requests = amounts_left(reservation.requests, requested)
    left = what_is_left(counted_holding(reservation.holding, offers), taken)
    return replace(
        reservation,
        requests=requests,
        holding=_with_cpus_covered(offers, left, requests) if reservation.holding.cpus else left,
        loose=_left(reservation.loose, summed(owner.loose for owner in owners)),
        slots=0 if owners else 1,
    )


def _with_cpus_covered(offers: NodeOffers, left: Holding, requests: Amounts) -> Holding:
    """A holding with no more CPUs than what is left of `cpu`, of the host as a whole and of NUMA nodes.

    Owners in shared pools take that, but no CPUs.
    """
    kept: set[int] = set()
    by_numa: Counter[int] = Counter()
    for cpu in sorted(left.cpus & offers.numa_of.keys()):
        numa = offers.numa_of[cpu]
        covered = left.amounts.get(numa, {}).get("cpu", 0) - 1000 * by_numa[numa]
        if covered >= 1000 and requests.get("cpu", 0) >= 1000 * (len(kept) + 1):
            kept.add(cpu)
            by_numa[numa] += 1
    rest = {
        numa: {name: amount for name, amount in row.items() if name != "cpu"}
        for numa, row in left.amounts.items()
    }
    for numa, count in by_numa.items():
        rest[numa]["cpu"] = 1000 * count
    amounts = NumaAmounts({numa: row for numa, row in rest.items() if row})
    return replace(left, cpus=frozenset(kept), amounts=amounts)


def _left(held: NumaAmounts, taken: NumaAmounts) -> NumaAmounts:
    nothing: Amounts = {}
    return NumaAmounts(
        {numa: amounts_left(amounts, taken.get(numa, nothing)) for numa, amounts in held.items()}
    )
