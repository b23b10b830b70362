"""A pod as it is recorded on a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.dialects.koordinator.pod.gang import Membership, stored_membership
from placement.dialects.koordinator.reservation.terms import ReservationTerms, stored_terms
from placement.kubernetes.pod_affinity import NO_AFFINITY, Labels, PodAffinity, stored_affinity
from placement.numa.amounts import NOTHING, Amounts, NumaAmounts
from placement.numa.cpuset import format_cpu_list, parse_cpu_list
from placement.numa.demand import ExclusiveLevel
from placement.numa.ledger import Holding

NO_HOLDING = Holding()


@dataclass(frozen=True, slots=True)
class RecordedPod:
    """Who a pod is, what it requests of its node as a whole, and what it holds there.

    `consumer` is the uuid under which it holds allocations; `qos` the class its label names, empty if none.
    `loose` are amounts that only NUMA nodes offer, of a pod that is aligned to none: where they are counted.
    `treated_as` is the class that decides in which pool it runs, empty if its label says so, `pools` the NUMA
    nodes in whose pools it has to stay, if not in all. `unreadable`: findings about its resource-status;
    while there are any, its CPUs are unknown. `reservation` is the consumer that is the reservation it takes
    from, if it takes from one; `keeps` has the terms if it is a reservation itself, which has no namespace.
    `slots` is how many of its node's pods it counts as. `labels` are those by which other pods want it near
    or apart, `affinity` is what it wants itself, `membership` that of its gang. `is_leaving`: it is being
    deleted, and so counts for no topology spread.
    """

    namespace: str
    name: str
    uid: str
    consumer: str
    qos: str
    requests: Amounts
    holding: Holding = NO_HOLDING
    loose: NumaAmounts = NOTHING
    unreadable: tuple[str, ...] = ()
    treated_as: str = ""
    pools: tuple[int, ...] = ()
    reservation: str = ""
    keeps: ReservationTerms | None = None
    slots: int = 1
    labels: Labels = ()
    affinity: PodAffinity = NO_AFFINITY
    membership: Membership | None = None
    is_leaving: bool = False

    @property
    def full_name(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def document(self) -> dict[str, Any]:
        """The pod as JSON to be stored, without names and uid."""
        holding = self.holding
        members: dict[str, Any] = {
            "consumer": self.consumer,
            "qos": self.qos,
            "requests": dict(self.requests),
            "cpus": format_cpu_list(holding.cpus),
            "level": "" if holding.level is ExclusiveLevel.NONE else str(holding.level),
            "amounts": _written(holding.amounts),
            "loose": _written(self.loose),
            "secluded": not holding.shares_with_best_effort,
            "unreadable": list(self.unreadable),
            "group": holding.group,
            "treated_as": self.treated_as,
            "pools": list(self.pools),
            "reservation": self.reservation,
            "keeps": None if self.keeps is None else self.keeps.document(),
            "affinity": self.affinity.document(),
            "membership": None if self.membership is None else self.membership.document(),
            "leaving": self.is_leaving,
        }
        # Rows without labels are those of releases that wrote none.
        return {key: member for key, member in members.items() if member} | {"labels": dict(self.labels)}


def recorded_pod(namespace: str, name: str, uid: str, document: Mapping[str, Any]) -> RecordedPod:
    """The pod that a stored document describes."""
    holding = Holding(
        cpus=parse_cpu_list(document.get("cpus", "")),
        level=ExclusiveLevel(document.get("level", ExclusiveLevel.NONE)),
        amounts=_read(document.get("amounts")),
        shares_with_best_effort=not document.get("secluded", False),
        group=document.get("group", ""),
    )
    keeps, membership = document.get("keeps"), document.get("membership")
    labels = tuple(sorted(document.get("labels", {}).items()))
    return RecordedPod(
        namespace=namespace,
        name=name,
        uid=uid,
        consumer=document["consumer"],
        qos=document.get("qos", ""),
        requests=document.get("requests", {}),
        holding=holding,
        loose=_read(document.get("loose")),
        unreadable=tuple(document.get("unreadable", ())),
        treated_as=document.get("treated_as", ""),
        pools=tuple(document.get("pools", ())),
        reservation=document.get("reservation", ""),
        keeps=None if keeps is None else stored_terms(keeps),
        labels=labels,
        affinity=stored_affinity(document.get("affinity"), (namespace, labels)),
        membership=None if membership is None else stored_membership(membership),
        is_leaving=document.get("leaving", False),
    )


def pool_class(treated_as: str, qos: str, holding: Holding) -> str:
    """What to note about the pool of a pod: nothing if its label says the same, or it has CPUs of its own."""
    return "" if holding.cpus or treated_as == qos else str(treated_as)


def _written(amounts: NumaAmounts) -> dict[str, dict[str, int]]:
    return {str(numa): dict(row) for numa, row in amounts.items()}


def _read(document: Mapping[str, Mapping[str, int]] | None) -> NumaAmounts:
    return NumaAmounts({int(numa): row for numa, row in document.items()}) if document else NOTHING
