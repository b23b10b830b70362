"""Giving a pod its place on a node on which it was found to fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from placement.dialects.koordinator.pod.pod_request import PodImport
from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.scheduling.host_fit import loose_amounts
from placement.scheduling.pipeline import Ranked
from placement.scheduling.remarks import remarks_on
from placement.scheduling.reserve import allocate_on_host
from placement.services.clusters.node_states import NodeState
from placement.services.clusters.pod_answers import PodAnswer, scheduled_answer
from placement.services.clusters.pod_documents import PodDocument


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod on a node: what to record of it, and what to tell."""

    state: NodeState
    recorded: RecordedPod
    answer: PodAnswer


def placed(ranked: Ranked[NodeState], incoming: PodImport, document: PodDocument) -> Placed:
    """What the pod gets on the node. Raises Refused if it does not fit after all.

    Source: koordinator.md, "Reserve", "What is written".
    """
    state = ranked.node
    allocation = allocate_on_host(state.host, incoming.request, ranked.fit)
    holding = allocation.holding(incoming.qos)
    recorded = RecordedPod(
        namespace=document.namespace,
        name=document.name,
        uid=document.uid,
        consumer=document.consumer,
        qos=str(incoming.qos or ""),
        requests=incoming.amounts,
        holding=holding,
        loose=loose_amounts(state.offers, state.left, incoming.amounts, holding.amounts),
    )
    remarks = remarks_on(state.host, incoming.request) if incoming.request else ()
    answer = scheduled_answer(incoming, recorded, allocation, ranked.score, remarks)
    row = state.row
    return Placed(state, recorded, replace(answer, node=row.name, resource_provider=row.root_uuid))
