"""The place of a pod on a node on which it fits, and the answer about it, as of now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from placement.common.gang import Membership
from placement.common.manifest import ManifestError
from placement.common.pod_identity import is_former
from placement.engine.domain.errors import BadRequest, Conflict, RequestPlace
from placement.engine.numa.cpus import format_cpu_list, parse_cpu_list
from placement.engine.numa.host import BindPolicy, ExclusiveLevel
from placement.pods.decide.ranking import Ranked
from placement.pods.decide.reading import PodDocument, reading_of
from placement.pods.decide.reservation_ends import used_up
from placement.pods.decide.rules.amounts import loose_amounts
from placement.pods.decide.rules.numa import allocate_on_host
from placement.pods.decide.rules.rule import Fit
from placement.pods.koordinator.annotations import written_annotations
from placement.pods.manifests.affinity import NO_AFFINITY
from placement.pods.state import host, model
from placement.pods.state.node_info import NodeInfo, NodeTemplate
from placement.pods.store.answers import PodAnswer, PodPlacement, using
from placement.pods.store.rows import answer_of
from placement.pods.store.statements import StoredPod


def placed(ranked: Ranked, pod: model.PodSpec, document: PodDocument) -> PodPlacement:
    """Return the place of the pod on the node. Raises PodRefused if it does not fit after all.

    Source: koordinator.md, "Reserve", "What is written".
    """
    node, used = ranked.node, ranked.used_reservation
    opened = ranked.opened_node or node
    request = pod.request
    status, cpu_demand = allocate_on_host(node.host, request, ranked.fit, ranked.reservations)
    if cpu_demand is None:
        holding = status.holding(ExclusiveLevel.NONE, pod.qos, "")
        annotations = written_annotations(pod.spec, status, BindPolicy.NONE, strict=False)
    else:
        holding = status.holding(request.exclusive, pod.qos, request.group)
        annotations = written_annotations(pod.spec, status, cpu_demand.bind, cpu_demand.strict)
    # A reservation is no pod to others.
    gang = pod.gang if document.keeps is None else None
    recorded = model.RecordedPod(
        namespace=document.namespace,
        name=document.name,
        uid=document.uid,
        consumer=document.consumer,
        qos=str(pod.qos or ""),
        requests=request.amounts,
        holding=holding,
        loose_amounts=loose_amounts(opened.offers, opened.left, request.amounts, holding.amounts),
        treated_as=model.pool_class(pod.treated_as, pod.qos, holding),
        pools=tuple(map(itemgetter(1), status.pools)),
        reservation="" if used is None else used.consumer,
        keeps=document.keeps,
        labels=pod.rules.bearer[1] if document.keeps is None else (),
        affinity=pod.rules.affinity if document.keeps is None else NO_AFFINITY,
        membership=None if gang is None else Membership(gang.name, gang.least),
        host_ports=pod.selection.host_ports,
    )
    answer = PodAnswer(
        namespace=recorded.namespace,
        name=recorded.name,
        uid=recorded.uid,
        consumer_uuid=recorded.consumer,
        node=node.name,
        resource_provider=node.root_uuid,
        qos=recorded.qos,
        kubernetes_qos=str(pod.kubernetes_qos),
        scheduled=True,
        cpuset=format_cpu_list(holding.cpus),
        annotations=annotations,
        containers=pod.containers,
        score=ranked.score,
        missed=ranked.missed,
        warnings=pod.warnings,
        undecided=pod.undecided,
        remarks=tuple(host.remarks_on(node.host, request)) if request is not model.NO_REQUEST else (),
    )
    answer = as_of_now(answer, node, (*node.pods, recorded), recorded)
    answer = answer if used is None else using(answer, used)
    ending = None if used is None else used_up(used, node, document)
    return PodPlacement(document, answer, node, recorded, ending)


def placed_on_each(
    ranked_nodes: Iterable[Ranked], pod: model.PodSpec, document: PodDocument
) -> list[PodPlacement]:
    """Return the place that the pod would get on each of these nodes.

    Empty nodes with like manifests get one answer, which differs in the node only. Raises PodRefused.
    """
    placements, of_empty_nodes = list[PodPlacement](), dict[tuple[NodeTemplate, Fit], PodPlacement]()
    for ranked in ranked_nodes:
        node, key = ranked.node, (ranked.node.template, ranked.fit)
        is_empty = not (node.holders or node.others)
        placement = of_empty_nodes.get(key) if is_empty else None
        if placement is None:
            placement = placed(ranked, pod, document)
            if is_empty:
                of_empty_nodes[key] = placement
        else:
            answer = replace(
                placement.answer,
                node=node.name,
                resource_provider=node.root_uuid,
                score=ranked.score,
                missed=ranked.missed,
            )
            placement = replace(placement, answer=answer, node=node)
        placements.append(placement)
    return placements


def as_of_now(
    answer: PodAnswer, node: NodeInfo, pods: Collection[model.RecordedPod], pod: model.RecordedPod
) -> PodAnswer:
    """Return the answer about one of these pods of a node with the CPU list of its containers as of now."""
    imported = node.template.node_import

    def pools() -> host.HostPools:
        return host.host_pools(
            imported, host.ledger_of(imported, pods), host.foreign_cpus(node.offers, node.others)
        )

    cpus = host.pod_cpus(imported, pods, pod, pools)
    return replace(
        answer,
        lifts_cfs_quota=bool(host.own_cpus(imported, pods, pod)),
        container_cpus=None if cpus is None else format_cpu_list(cpus),
        is_pinned_unseen=host.is_pinned_unseen(imported, pod),
    )


def asks_for_the_same(stored_pod: StoredPod, pod: model.PodSpec, settings: model.SchedulerSettings) -> bool:
    """Return whether a pod has the demands with which it got its place."""
    manifest = {**stored_pod.manifest, "spec": {**stored_pod.manifest["spec"], "nodeName": None}}
    try:
        before = reading_of(manifest, settings)
    except ManifestError:
        return False  # the settings of the cluster became stricter meanwhile
    has_same_ports = before.selection.host_ports == pod.selection.host_ports
    return has_same_ports and (before.request, before.qos, before.spec) == (pod.request, pod.qos, pod.spec)


def same_pod(known_pods: Sequence[StoredPod], document: PodDocument) -> StoredPod | None:
    """Return the pod with the uid of the document, None if it is not among these pods.

    Raises BadRequest if it has another name; Conflict if the name is that of a newer pod by now.
    """
    same = next((pod for pod in known_pods if pod.uid == document.uid), None)
    if same is not None and (same.namespace, same.name) != (document.namespace, document.name):
        raise BadRequest(
            f"{document.uid!r} is pod {same.namespace}/{same.name}",
            place=RequestPlace("Pod") / "metadata" / "uid",
        )
    for pod in known_pods:
        if pod is not same and is_former(document.manifest, pod.manifest):
            raise Conflict(
                f"Pod {document.full_name} is a newer one by now, with uid {pod.uid}, not {document.uid}."
            )
    return same


def without_namesakes(
    documents: Mapping[int, PodDocument], known_pods: Iterable[StoredPod] = ()
) -> dict[int, PodDocument]:
    """Return pods with neither the name nor the uid of a known pod, or of a pod before them."""
    seen = set[object]().union(*({(pod.namespace, pod.name), pod.uid} for pod in known_pods))
    found: dict[int, PodDocument] = {}
    for number, document in documents.items():
        mine = {(document.namespace, document.name), document.uid}
        if seen.isdisjoint(mine):
            found[number] = document
        seen |= mine
    return found


def pod_answer(nodes: Mapping[int, NodeInfo], pod: StoredPod) -> PodAnswer:
    """Return the answer about a stored pod, with the CPU list of its containers as the node is now."""
    answer = answer_of(pod)
    node = None if pod.root_id is None else nodes.get(pod.root_id)
    present = () if node is None else node.pods
    mine = next((each for each in present if each.consumer == answer.consumer_uuid), None)
    if node is None or mine is None:
        return answer
    sharing = sharing_cpus(mine, present)
    answer = replace(answer, remarks=(*answer.remarks, *sharing.values()), shared_with=tuple(sharing))
    return as_of_now(answer, node, present, mine)


def sharing_cpus(pod: model.RecordedPod, present_pods: Iterable[model.RecordedPod]) -> dict[str, str]:
    """Return the names of other pods that hold some of the pod's CPUs, each with a sentence that says so."""
    return {
        each.full_name: f"CPUs {format_cpu_list(shared)} are also held by pod {each.full_name}"
        for each in present_pods
        # The former pod of a name leaves when another one comes.
        if each.full_name != pod.full_name and (shared := each.holding.cpus & pod.holding.cpus)
    }


def with_moves(answer: PodAnswer, leaving_pods: Iterable[StoredPod]) -> PodAnswer:
    """Return the answer about a pod with remarks on CPUs that the leaving pods gave back."""
    remarks = []
    for before in map(answer_of, leaving_pods):
        if before.node is None:
            continue
        given_back = parse_cpu_list(before.cpuset)
        if before.node != answer.node:
            remarks.append(f"moved from node {before.node} to node {answer.node}")
        else:
            given_back -= parse_cpu_list(answer.cpuset)
        if given_back:
            remarks.append(f"gave back CPUs {format_cpu_list(given_back)} of node {before.node}")
    return replace(answer, remarks=(*answer.remarks, *remarks))
