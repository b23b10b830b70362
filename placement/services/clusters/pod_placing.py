"""The place of a pod: on a node on which it fits, or on the best of all, and what is told of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from placement.dialects.koordinator.pod.gang import Membership
from placement.dialects.koordinator.pod.pod_reading import reading_of
from placement.dialects.koordinator.pod.pod_request import PodImport
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.dialects.koordinator.status.recorded_pod import RecordedPod, pool_class
from placement.domain.errors import BadRequest, Conflict
from placement.kubernetes.errors import ManifestError
from placement.kubernetes.pod_affinity import NO_AFFINITY
from placement.kubernetes.pod_identity import is_former
from placement.numa.cpuset import format_cpu_list
from placement.numa.refusal import Refusal, Refused
from placement.scheduling.filter import loose_amounts
from placement.scheduling.host import foreign_cpus, ledger_of
from placement.scheduling.host_pools import HostPools, host_pools, is_pinned_unseen, own_cpus, pod_cpus
from placement.scheduling.node_info import NodeInfo
from placement.scheduling.pipeline import Ranked
from placement.scheduling.remarks import remarks_on
from placement.scheduling.reserve import allocate_on_host
from placement.services.clusters.pod_answers import PodAnswer, scheduled_answer, using
from placement.services.clusters.pod_documents import PodDocument
from placement.services.clusters.pod_rows import answer_of
from placement.storage.statements.pods import StoredPod


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod on a node: what to record of it, what to tell, and the reservation that it takes from."""

    state: NodeInfo
    recorded: RecordedPod
    answer: PodAnswer
    used: RecordedPod | None = None


def placed(ranked: Ranked, incoming: PodImport, document: PodDocument) -> Placed:
    """What the pod gets on the node. Raises Refused if it does not fit after all.

    Source: koordinator.md, "Reserve", "What is written".
    """
    state, used = ranked.node, ranked.used
    room = ranked.opened or state
    allocation = allocate_on_host(state.host, incoming.request, ranked.fit, ranked.reservations)
    holding = allocation.holding(incoming.qos)
    recorded = RecordedPod(
        namespace=document.namespace,
        name=document.name,
        uid=document.uid,
        consumer=document.consumer,
        qos=str(incoming.qos or ""),
        requests=incoming.amounts,
        holding=holding,
        loose=loose_amounts(room.offers, room.left, incoming.amounts, holding.amounts),
        treated_as=pool_class(incoming.treated_as, incoming.qos, holding),
        pools=tuple(numa for _, numa in allocation.status.pools),
        reservation="" if used is None else used.consumer,
        keeps=document.keeps,
        # A reservation is no pod to others.
        labels=incoming.rules.bearer[1] if document.keeps is None else (),
        affinity=incoming.rules.affinity if document.keeps is None else NO_AFFINITY,
        membership=_membership(incoming) if document.keeps is None else None,
    )
    remarks = remarks_on(state.host, incoming.request) if incoming.request else ()
    answer = scheduled_answer(incoming, recorded, allocation, ranked.score, remarks)
    answer = replace(answer, node=state.name, resource_provider=state.root_uuid)
    answer = as_of_now(answer, state, (*state.pods, recorded), recorded)
    return Placed(state, recorded, answer if used is None else using(answer, used), used)


def _membership(incoming: PodImport) -> Membership | None:
    return None if incoming.gang is None else Membership(incoming.gang.name, incoming.gang.least)


def as_of_now(
    answer: PodAnswer, state: NodeInfo, pods: Collection[RecordedPod], pod: RecordedPod
) -> PodAnswer:
    """Return the answer about one of these pods of a node with the CPU list of its containers as of now."""
    imported = state.template.imported

    def pools() -> HostPools:
        return host_pools(imported, ledger_of(imported, pods), foreign_cpus(state.offers, state.others))

    cpus = pod_cpus(imported, pods, pod, pools)
    return replace(
        answer,
        lifts_cfs_quota=bool(own_cpus(imported, pods, pod)),
        container_cpus=None if cpus is None else format_cpu_list(cpus),
        is_pinned_unseen=is_pinned_unseen(imported, pod),
    )


def best_place(
    best_first: Iterable[Ranked],
    incoming: PodImport,
    document: PodDocument,
    unplaced: dict[str, Refusal],
) -> Placed | None:
    """The pod on the best node that can take it, None if none can; `unplaced`: where it fits, but fails."""
    for ranked in best_first:
        try:
            return placed(ranked, incoming, document)
        except Refused as refused:
            unplaced[ranked.node.name] = refused.refusal
    return None


def asks_for_the_same(stored: StoredPod, incoming: PodImport, settings: SchedulerSettings) -> bool:
    """Whether a pod asks for what it asked for when it got its place."""
    manifest = {**stored.manifest, "spec": {**stored.manifest["spec"], "nodeName": None}}
    try:
        before = reading_of(manifest, settings)
    except ManifestError:
        return False  # the settings of the cluster became stricter meanwhile
    return (before.request, before.qos, before.spec) == (incoming.request, incoming.qos, incoming.spec)


def same_pod(known: Sequence[StoredPod], document: PodDocument) -> StoredPod | None:
    """The one among these pods that has the uid of the document.

    Raises BadRequest if it has another name; Conflict if the name is that of a newer pod by now.
    """
    same = next((pod for pod in known if pod.uid == document.uid), None)
    if same is not None and (same.namespace, same.name) != (document.namespace, document.name):
        raise BadRequest(f"Pod.metadata.uid: {document.uid!r} is pod {same.namespace}/{same.name}")
    for pod in known:
        if pod is not same and is_former(document.manifest, pod.manifest):
            raise Conflict(
                f"Pod {document.full_name} is a newer one by now, with uid {pod.uid}, not {document.uid}."
            )
    return same


def told(nodes: Mapping[int, NodeInfo], pod: StoredPod) -> PodAnswer:
    """Return what is told about a stored pod, with the CPU list of its containers as the node is now."""
    answer = answer_of(pod)
    state = None if pod.root_id is None else nodes.get(pod.root_id)
    present = () if state is None else state.pods
    mine = next((each for each in present if each.consumer == answer.consumer_uuid), None)
    return answer if state is None or mine is None else as_of_now(answer, state, present, mine)
