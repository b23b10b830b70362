"""A new pod on a node, decided and written in one round trip where the database can do that.

Everything else is done step by step (PodWriting): pods that replace others or give a node a reason to settle
what it owes, and whatever is refused here, to find out why.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

from placement.scheduling.node_allocations import NodeAllocations
from placement.scheduling.node_info import NodeInfo
from placement.services.clusters.node_writing import PodAttributes
from placement.services.clusters.pod_audit import arrived
from placement.services.clusters.pod_writing import Arrival, pod_values
from placement.services.following.cluster_cache import ClusterSnapshot
from placement.storage.backends.backend import Stamped
from placement.storage.database import Database, utcnow
from placement.storage.failures import TryAgain, Unreachable
from placement.storage.statements import pod_arrivals
from placement.storage.statements.allocations import Amount
from placement.storage.statements.pod_arrivals import PodArrival


class Arrived(NamedTuple):
    """A pod that has come to a node: when, the node before and with it, and what was written."""

    at: datetime.datetime
    before: NodeInfo
    after: NodeInfo
    written: Stamped


def place_at_once(
    database: Database, view: ClusterSnapshot, arrival: Arrival, attributes: PodAttributes
) -> Arrived | None:
    """Have a pod on its node if nobody of its name or uid exists and the node is as it was in the view.

    None, and nothing done, if it cannot be. Raises OutcomeUnknown, Unavailable.
    """
    recorded = arrival.recorded
    if not database.backend.has_claim_statement:
        return None
    if recorded is None or arrival.root_id is None or arrival.ends is not None:
        return None
    before = view.nodes[arrival.root_id]
    after = before.with_pod(recorded)
    if not _is_all_that_changes(recorded.consumer, before.accounts, after.accounts):
        return None
    places = after.accounts.shares[recorded.consumer]
    uuids = {path: before.identity.uuid(path) for path in {"", *(place.path for place in places)}}
    now = utcnow()
    wanted = PodArrival(
        cluster_id=before.cluster_id,
        values=pod_values(arrival, before.id),
        consumer=attributes.pod(recorded.consumer, recorded.namespace),
        host_id=before.root_id,
        host_revision=before.revision,
        used_below=before.due,
        providers=sorted(uuids.values()),
        amounts=[
            Amount(recorded.consumer, uuids[place.path], place.resource_class, amount)
            for place, amount in places.items()
        ],
        levels={
            cpu: owner.level
            for cpu, owner in sorted(after.accounts.cpus.items())
            if owner.consumer == recorded.consumer
        },
        record=arrived(view.facts.name, arrival.answer),
        rules_generation=view.rules_generation,
    )
    try:
        written = pod_arrivals.place_at_once(database, wanted, now)
    except Unreachable:
        raise
    except TryAgain:
        return None
    if written is None:
        return None
    return Arrived(now, before, after.stamped(written.stamp), written)


def _is_all_that_changes(consumer: str, before: NodeAllocations, after: NodeAllocations) -> bool:
    """Whether the accounts differ by what a new consumer holds, and nothing else."""
    if consumer in before.shares or {**before.shares, consumer: after.shares[consumer]} != after.shares:
        return False
    return all(after.cpus.get(cpu) == owner for cpu, owner in before.cpus.items())
