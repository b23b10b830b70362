"""The recording of pods that run already, or have ended; as they are facts, they are not refused.

Source: koordinator.md, "Recovery from pods".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from placement.common.gang import Membership
from placement.common.manifest import Field, ManifestReport
from placement.common.pod_identity import canonical_uid
from placement.engine.domain.errors import BadRequest, NameKind, NamesOf, RequestPlace
from placement.engine.numa.cpus import format_cpu_list
from placement.pods.decide.reading import PodDocument, import_running_pod
from placement.pods.decide.reservation_ends import used_up
from placement.pods.decide.rules.amounts import loose_amounts
from placement.pods.koordinator import annotations as keys
from placement.pods.manifests.affinity import may_keep_off
from placement.pods.manifests.ports import conflicting, used_ports
from placement.pods.services.limited_claims import limited_claim
from placement.pods.services.placing import as_of_now, same_pod, sharing_cpus
from placement.pods.state.host import known_cpus
from placement.pods.state.model import NO_HOLDING, KubeletPolicy, RecordedPod, RunningPod, pool_class
from placement.pods.state.node_info import NodeInfo
from placement.pods.store import statements
from placement.pods.store.answers import PodAnswer, PodPlacement
from placement.pods.store.cache import ClusterSnapshot
from placement.pods.store.loader import ClusterFacts
from placement.pods.store.rows import answer_of, ended_pod_values, pod_values
from placement.pods.store.statements import StoredPod
from placement.pods.store.writer import NodeChanged, PodAttributes, PodKey, PodMoves, PodReport, PodWriter
from placement.providers.statements import clusters
from placement.storage.database import Transaction

_ABOUT_CPUS = (keys.RESOURCE_STATUS, keys.RESOURCE_SPEC, keys.RESERVATION_ALLOCATED)
_KEPT = "no resource-status is written yet: the pod keeps the CPUs and amounts of its first placing"


def record(
    transaction: Transaction,
    writer: PodWriter,
    snapshot: ClusterSnapshot,
    document: PodDocument,
    attributes: PodAttributes,
) -> tuple[bool, PodAnswer]:
    """Record a pod where it runs, or that it has ended; return whether it is new, and the answer.

    Raises ManifestError, BadRequest, NodeChanged, Conflict.
    """
    facts, key = snapshot.facts, PodKey(document.namespace, document.name, document.uid)
    known_pods = statements.namesakes(transaction, facts.id, *key)
    stored_pod = same_pod(known_pods, document)
    root_id = None if document.has_ended else _host(snapshot, document).root_id
    roots = set(filter(None, {pod.root_id for pod in known_pods} | {root_id}))
    if may_keep_off(document.manifest) and not document.has_ended:
        clusters.lock_alone(transaction, facts.id)
    locked = writer.lock(transaction, snapshot, roots)
    if root_id is not None and root_id not in locked.nodes:
        raise NodeChanged(f"Node {document.host} was replaced meanwhile.")
    writer.check_namesakes(transaction, facts, [key], known_pods)
    placement = None
    if root_id is None:
        answer = _read(facts, document, stored_pod, KubeletPolicy())[1]
    else:
        placement = _arrival(facts, document, stored_pod, locked.nodes[root_id])
        if stored_pod is not None:
            placement = _with_move(placement, stored_pod)
        answer = placement.answer
    report = None
    if stored_pod is not None and known_pods == [stored_pod] and stored_pod.root_id == root_id:
        if placement is None:
            report = PodReport(stored_pod, answer, ended_pod_values(document, answer, stored_pod))
        else:
            report = _report(stored_pod, placement)
    if report is not None:
        writer.stay(transaction, facts, [report])
    else:
        moves = PodMoves(leaving_pods=known_pods, ended=(document, answer))
        if placement is not None:
            moves = PodMoves([placement], known_pods)
        writer.commit(transaction, locked, attributes, moves)
    return not known_pods, answer


def record_known(
    transaction: Transaction,
    writer: PodWriter,
    snapshot: ClusterSnapshot,
    documents: Sequence[PodDocument],
    attributes: PodAttributes,
) -> None:
    """Record running pods of one node as they are by now, if they are recorded there with their uids.

    A pod that cannot be read stays as it is recorded. Raises NodeChanged, Conflict.
    """
    facts, host = snapshot.facts, snapshot.by_name.get(documents[0].host)
    if host is None:
        return
    if any(may_keep_off(each.manifest) for each in documents):
        clusters.lock_alone(transaction, facts.id)
    locked = writer.lock(transaction, snapshot, {host.root_id})
    node = locked.nodes.get(host.root_id)
    if node is None:
        raise NodeChanged(f"Node {host.name} was replaced meanwhile.")
    reports, placements, leaving_pods = list[PodReport](), list[PodPlacement](), list[StoredPod]()
    for document, stored_pod in _stored_there(transaction, facts, documents, host.root_id):
        with suppress(BadRequest):
            placement = _arrival(facts, document, stored_pod, node)
            if report := _report(stored_pod, placement):
                reports.append(report)
            else:
                placements.append(placement)
                leaving_pods.append(stored_pod)
    writer.stay(transaction, facts, reports)
    if placements:
        writer.commit(transaction, locked, attributes, PodMoves(placements, leaving_pods))


def _stored_there(
    transaction: Transaction, facts: ClusterFacts, documents: Sequence[PodDocument], root_id: int
) -> Iterator[tuple[PodDocument, StoredPod]]:
    """Yield the pods that are recorded on the host provider, each with its row, if no other has its name."""
    names = {(each.namespace, each.name) for each in documents}
    rows = statements.any_namesakes(transaction, facts.id, names, {each.uid for each in documents})
    for document in documents:
        name = document.namespace, document.name
        found = [row for row in rows if row.uid == document.uid or (row.namespace, row.name) == name]
        if [(row.uid, row.root_id) for row in found] == [(document.uid, root_id)]:
            yield document, found[0]


def _report(stored_pod: StoredPod, placement: PodPlacement) -> PodReport | None:
    """Return the report about a pod that is recorded on its node and keeps what it holds; None for others.

    Only its labels may be others: Kubernetes from 1.35 on copies zone and region of the node to each pod that
    it binds.
    """
    before, recorded = _recorded_before(placement.node, placement.document), placement.recorded
    if before is None or replace(before, labels=recorded.labels) != recorded:
        return None
    values = pod_values(placement, stored_pod)
    return PodReport(stored_pod, placement.answer, values, is_counted_anew=before != recorded)


def new_arrival(snapshot: ClusterSnapshot, document: PodDocument) -> PodPlacement:
    """Return the arrival of a pod that is not known yet. Raises ManifestError, BadRequest."""
    return _arrival(snapshot.facts, document, None, _host(snapshot, document))


def repeated_reports(
    transaction: Transaction, snapshot: ClusterSnapshot, documents: Mapping[int, PodDocument]
) -> dict[int, PodReport]:
    """Return reports of running pods that keep what they hold, on locked nodes that are as in the snapshot.

    No other pod has their name or their uid. Pods with errors are left out: they have to be recorded alone.
    """
    hosts = {number: snapshot.by_name[document.host] for number, document in documents.items()}
    stamps = statements.lock_hosts(transaction, {node.root_id for node in hosts.values()}, snapshot.facts.id)
    names = {(each.namespace, each.name) for each in documents.values()}
    rows = statements.any_namesakes(
        transaction, snapshot.facts.id, names, {each.uid for each in documents.values()}
    )
    by_name = {(row.namespace, row.name): row for row in rows}
    by_uid = {row.uid: row for row in rows}
    found: dict[int, PodReport] = {}
    for number, document in documents.items():
        node, stored_pod = hosts[number], by_uid.get(document.uid)
        if stored_pod is None or stored_pod is not by_name.get((document.namespace, document.name)):
            continue
        if stored_pod.root_id != node.root_id or stamps.get(node.root_id) != node.revision:
            continue
        with suppress(BadRequest):
            placement = _arrival(snapshot.facts, document, stored_pod, node)
            if report := _report(stored_pod, placement):
                found[number] = report
    return found


def _host(snapshot: ClusterSnapshot, document: PodDocument) -> NodeInfo:
    node = snapshot.by_name.get(document.host)
    if node is None:
        raise BadRequest(
            f"no node {document.host!r} in cluster {snapshot.facts.name}",
            place=RequestPlace("Pod") / "spec" / "nodeName",
            value=document.host or "",
            known=NamesOf(NameKind.NODE, snapshot.facts.name),
        )
    return node


def _read(
    facts: ClusterFacts, document: PodDocument, stored_pod: StoredPod | None, kubelet: KubeletPolicy
) -> tuple[RunningPod, PodAnswer]:
    """Return the pod as it runs on a node with that kubelet, and the answer about it without its node."""
    running = import_running_pod(
        document.manifest, facts.settings, kubelet, None if stored_pod is None else stored_pod.manifest
    )
    answer = PodAnswer(
        namespace=document.namespace,
        name=document.name,
        uid=document.uid,
        consumer_uuid=document.consumer,
        qos=str(running.qos or ""),
        kubernetes_qos=str(running.kubernetes_qos),
        phase=running.phase,
        containers=running.containers,
        warnings=running.warnings,
    )
    return running, answer


def _arrival(
    facts: ClusterFacts, document: PodDocument, stored_pod: StoredPod | None, node: NodeInfo
) -> PodPlacement:
    running, answer = _read(facts, document, stored_pod, node.template.node_import.kubelet)
    running, findings = _limited(running, node, _recorded_before(node, document), document.consumer)
    recorded = _recorded(document, running, node)
    kept = not running.has_status and recorded.holding != NO_HOLDING
    if stored_pod is None or not kept:
        carried = document.manifest["metadata"].get("annotations") or {}
        shown = {key: carried[key] for key in _ABOUT_CPUS if carried.get(key)}
    else:
        shown = dict(answer_of(stored_pod).annotations)
    # A pod that is reported again stays before pods that were recorded after it.
    by_consumer = {pod.consumer: pod for pod in node.pods} | {recorded.consumer: recorded}
    present = tuple(by_consumer.values())
    sharing = sharing_cpus(recorded, node.pods)
    answer = replace(
        answer,
        node=node.name,
        resource_provider=node.root_uuid,
        cpuset=format_cpu_list(known_cpus(node.template.node_import, recorded)),
        annotations=shown,
        unreadable=recorded.unreadable,
        warnings=(*answer.warnings, *findings, *_warnings(recorded, node, sharing.values())),
        shared_with=tuple(sharing),
        remarks=(_KEPT,) if kept else (),
    )
    answer = as_of_now(answer, node, present, recorded)
    used = next((each for each in node.reservations if each.consumer == recorded.reservation), None)
    ending = None if used is None else used_up(used, node, document)
    return PodPlacement(document, answer, node, recorded, ending)


def _with_move(placement: PodPlacement, stored_pod: StoredPod) -> PodPlacement:
    """Return the placement with a warning if the pod had CPUs of its own on another node.

    A pod does not move in Kubernetes, so what reports it there may not know of its CPUs.
    """
    answer, before = placement.answer, answer_of(stored_pod)
    if before.node in (None, answer.node) or not before.cpuset:
        return placement
    has = f"CPUs {answer.cpuset}" if answer.cpuset else "none of its own: its resource-status names none"
    warning = (
        f"moved from node {before.node}, where it had CPUs {before.cpuset}, "
        f"to node {answer.node}, where it has {has}"
    )
    return replace(placement, answer=replace(answer, warnings=(*answer.warnings, warning)))


def _recorded(document: PodDocument, running: RunningPod, node: NodeInfo) -> RecordedPod:
    """Return the pod to be recorded. It keeps its holding unless its status names another one."""
    before = _recorded_before(node, document)
    holding = running.holding if before is None or running.has_status else before.holding
    recorded = RecordedPod(
        namespace=document.namespace,
        name=document.name,
        uid=document.uid,
        consumer=document.consumer,
        qos=str(running.qos or ""),
        requests=running.requests,
        holding=holding,
        unreadable=running.unreadable,
        treated_as=pool_class(running.treated_as, running.qos, holding),
        pools=running.pools,
        reservation=_reservation_of(document, node) if before is None else before.reservation,
        labels=running.rules.bearer[1],
        affinity=running.rules.affinity,
        is_leaving=bool(document.manifest["metadata"].get("deletionTimestamp")),
        membership=None if running.gang is None else Membership(running.gang.name, running.gang.least),
        host_ports=running.host_ports,
    )
    if before is not None and (before.requests, before.holding) == (recorded.requests, holding):
        return replace(recorded, loose_amounts=before.loose_amounts)
    rest = node.without(frozenset({document.consumer}))
    loose = loose_amounts(node.offers, rest.left, recorded.requests, holding.amounts)
    return replace(recorded, loose_amounts=loose)


def _recorded_before(node: NodeInfo, document: PodDocument) -> RecordedPod | None:
    return next((pod for pod in node.pods if pod.consumer == document.consumer), None)


def _reservation_of(document: PodDocument, node: NodeInfo) -> str:
    """Return the consumer of the reservation that the pod says it takes from, if it is there for the pod."""
    metadata = Field("Pod", document.manifest, ManifestReport(), soft=True).member("metadata")
    allocated = metadata.member("annotations").member(keys.RESERVATION_ALLOCATED).json()
    uid = canonical_uid(allocated.member("uid").text() or "")
    for each in node.reservations:
        if each.uid == uid and each.keeps is not None and each.keeps.owned_by(document.manifest):
            return each.consumer
    return ""


def _limited(
    running: RunningPod, node: NodeInfo, recorded_before: RecordedPod | None, consumer: str
) -> tuple[RunningPod, tuple[str, ...]]:
    """Return the pod with the part of its holding that it may have on that node, and warnings about the rest.

    A pod that can have no CPUs of its own does not put its node in quarantine, whatever it says.
    """
    owns_cpus = running.qos.owns_cpus or node.host.binding.all_pods
    if running.unreadable and not owns_cpus:
        return replace(running, unreadable=()), running.unreadable
    if running.holding == NO_HOLDING:
        return running, ()
    # Reservations give way to pods.
    giving_way = {consumer, *(each.consumer for each in node.reservations)}
    owners = node.accounts.cpus.items()
    taken_cpus = node.offers.unallocatable_cpus | {
        cpu for cpu, owner in owners if owner.consumer not in giving_way
    }
    kept_holding = NO_HOLDING if recorded_before is None else recorded_before.holding
    topology = node.template.node_import.topology
    holding, findings = limited_claim(
        running.holding, running.requests, kept_holding, topology, taken_cpus, owns_cpus=owns_cpus
    )
    return replace(running, holding=holding), findings


def _warnings(recorded: RecordedPod, node: NodeInfo, sharing: Iterable[str]) -> Iterator[str]:
    unknown = recorded.holding.cpus - node.template.node_import.topology.cpus
    if unknown:
        yield f"CPUs {format_cpu_list(unknown)} are not in the cpu-topology; left out"
    requested, own = recorded.requests.get("cpu", 0) // 1000, len(recorded.holding.cpus - unknown)
    if own and own != requested:
        yield (
            f"the pod requests {requested} CPUs and has {own} of its own: a resize in place changes amounts, "
            "and which CPUs are its own changes only with its resource-status"
        )
    yield from sharing
    for consumer, kubelet_pod in node.kubelet_pods:
        shared = kubelet_pod.cpus & recorded.holding.cpus
        if consumer != recorded.consumer and shared:
            yield f"CPUs {format_cpu_list(shared)} are also managed by kubelet for pod {kubelet_pod.uid}"
    reserved = node.offers.reserved_cpus & recorded.holding.cpus
    if reserved:
        yield f"CPUs {format_cpu_list(reserved)} are reserved on the node"
    if recorded.host_ports:
        for each in node.pods:
            # The former pod of a name leaves when another one comes.
            if each.full_name != recorded.full_name:
                for port in conflicting(recorded.host_ports, used_ports([each.host_ports])):
                    yield f"host port {port} is also taken by pod {each.full_name}"
