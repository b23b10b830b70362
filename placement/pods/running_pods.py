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
from placement.engine.domain.errors import BadRequest
from placement.engine.numa.cpus import CpuSet, CpuTopology, format_cpu_list
from placement.engine.numa.host import Amounts, Holding, NumaAmounts
from placement.pods import statements
from placement.pods.cache import ClusterFacts, ClusterSnapshot
from placement.pods.gangs import used_up
from placement.pods.host import known_cpus
from placement.pods.koordinator import annotations as keys
from placement.pods.manifests.affinity import may_keep_off
from placement.pods.model import NO_HOLDING, KubeletPolicy, RecordedPod, RunningPod, pool_class
from placement.pods.node_info import NodeInfo
from placement.pods.placing import as_of_now, same_pod, sharing_cpus
from placement.pods.reading import PodDocument, import_running_pod
from placement.pods.rows import PodAnswer, PodEntry, PodPlacement, answer_of
from placement.pods.rules.amounts import loose_amounts
from placement.pods.statements import StoredPod
from placement.pods.writer import NodeChanged, PodAttributes, PodKey, PodMoves, PodWriter
from placement.providers.statements import clusters
from placement.storage.database import Transaction

_ABOUT_CPUS = (keys.RESOURCE_STATUS, keys.RESOURCE_SPEC, keys.RESERVATION_ALLOCATED)
_KEPT = "no resource-status is written yet: the pod keeps what it was given when it was placed"


def record(
    transaction: Transaction,
    writer: PodWriter,
    view: ClusterSnapshot,
    document: PodDocument,
    attributes: PodAttributes,
) -> tuple[bool, PodAnswer]:
    """Record a pod where it runs, and return whether it is new, and the answer.

    Raises ManifestError, BadRequest, NodeChanged, Conflict.
    """
    facts, sought = view.facts, PodKey(document.namespace, document.name, document.uid)
    known = statements.namesakes(transaction, facts.id, *sought)
    same = same_pod(known, document)
    root_id = None if document.has_ended else _host(view, document).root_id
    roots = {pod.root_id for pod in known} | {root_id}
    if may_keep_off(document.manifest) and not document.has_ended:
        clusters.lock_alone(transaction, facts.id)
    locked = writer.lock(transaction, view, {root for root in roots if root is not None})
    if root_id is not None and root_id not in locked.states:
        raise NodeChanged(f"Node {document.host} was replaced meanwhile.")
    writer.check_namesakes(transaction, facts, [sought], known)
    report: PodEntry
    if root_id is None:
        report, stays = PodEntry(document, _read(facts, document, same, KubeletPolicy())[1]), True
    else:
        report = placement = _arrival(facts, document, same, locked.states[root_id])
        stays = _recorded_before(placement.state, document) == placement.recorded
    if same is not None and known == [same] and same.root_id == root_id and stays:
        writer.stay(transaction, facts, [(same, report)])
    else:
        writer.commit(transaction, locked, attributes, PodMoves([report], known))
    return not known, report.answer


def record_known(
    transaction: Transaction,
    writer: PodWriter,
    view: ClusterSnapshot,
    documents: Sequence[PodDocument],
    attributes: PodAttributes,
) -> None:
    """Record what running pods of one node say by now, of the ones recorded there with their uids.

    A pod that cannot be read stays as it is recorded. Raises NodeChanged, Conflict.
    """
    facts, host = view.facts, view.by_name.get(documents[0].host)
    if host is None:
        return
    if any(may_keep_off(each.manifest) for each in documents):
        clusters.lock_alone(transaction, facts.id)
    locked = writer.lock(transaction, view, {host.root_id})
    state = locked.states.get(host.root_id)
    if state is None:
        raise NodeChanged(f"Node {host.name} was replaced meanwhile.")
    names = {(each.namespace, each.name) for each in documents}
    rows = statements.any_namesakes(transaction, facts.id, names, {each.uid for each in documents})
    staying, arriving, leaving = list[tuple[StoredPod, PodEntry]](), list[PodEntry](), list[StoredPod]()
    for document in documents:
        key = document.namespace, document.name
        found = [row for row in rows if row.uid == document.uid or (row.namespace, row.name) == key]
        if [(row.uid, row.root_id) for row in found] != [(document.uid, host.root_id)]:
            continue
        with suppress(BadRequest):
            arrival = _arrival(facts, document, found[0], state)
            if _recorded_before(state, document) == arrival.recorded:
                staying.append((found[0], arrival))
            else:
                arriving.append(arrival)
                leaving.append(found[0])
    writer.stay(transaction, facts, staying)
    if arriving:
        writer.commit(transaction, locked, attributes, PodMoves(arriving, leaving))


def new_arrival(view: ClusterSnapshot, document: PodDocument) -> PodPlacement:
    """Return the arrival of a pod that is not known yet. Raises ManifestError, BadRequest."""
    return _arrival(view.facts, document, None, _host(view, document))


def repeated_arrivals(
    transaction: Transaction, view: ClusterSnapshot, documents: Mapping[int, PodDocument]
) -> dict[int, tuple[StoredPod, PodPlacement]]:
    """Return running pods that stay as they are, each with its row, on locked nodes that are as in the view.

    No other pod has their name or their uid. What is wrong with a pod is reported when it comes by itself.
    """
    hosts = {number: view.by_name[document.host] for number, document in documents.items()}
    stamps = statements.lock_hosts(transaction, {state.root_id for state in hosts.values()}, view.facts.id)
    names = {(each.namespace, each.name) for each in documents.values()}
    rows = statements.any_namesakes(
        transaction, view.facts.id, names, {each.uid for each in documents.values()}
    )
    by_name = {(row.namespace, row.name): row for row in rows}
    by_uid = {row.uid: row for row in rows}
    found: dict[int, tuple[StoredPod, PodPlacement]] = {}
    for number, document in documents.items():
        state, same = hosts[number], by_uid.get(document.uid)
        if same is None or same is not by_name.get((document.namespace, document.name)):
            continue
        if same.root_id != state.root_id or stamps.get(state.root_id) != state.revision:
            continue
        with suppress(BadRequest):
            arrival = _arrival(view.facts, document, same, state)
            if _recorded_before(state, document) == arrival.recorded:
                found[number] = same, arrival
    return found


def _host(view: ClusterSnapshot, document: PodDocument) -> NodeInfo:
    state = view.by_name.get(document.host)
    if state is None:
        raise BadRequest(f"Pod.spec.nodeName: no node {document.host!r} in cluster {view.facts.name}")
    return state


def _read(
    facts: ClusterFacts, document: PodDocument, same: StoredPod | None, kubelet: KubeletPolicy
) -> tuple[RunningPod, PodAnswer]:
    """Return what a pod says on a node with that kubelet, and what is answered wherever it is."""
    running = import_running_pod(
        document.manifest, facts.settings, kubelet, None if same is None else same.manifest
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
    facts: ClusterFacts, document: PodDocument, same: StoredPod | None, state: NodeInfo
) -> PodPlacement:
    running, answer = _read(facts, document, same, state.template.imported.kubelet)
    running, findings = _limited(running, state, _recorded_before(state, document), document.consumer)
    recorded = _recorded(document, running, state)
    kept = not running.has_status and recorded.holding != NO_HOLDING
    if same is None or not kept:
        carried = document.manifest["metadata"].get("annotations") or {}
        shown = {key: carried[key] for key in _ABOUT_CPUS if carried.get(key)}
    else:
        shown = dict(answer_of(same).annotations)
    # A pod that is reported again stays before pods that were recorded after it.
    by_consumer = {pod.consumer: pod for pod in state.pods} | {recorded.consumer: recorded}
    present = tuple(by_consumer.values())
    sharing = sharing_cpus(recorded, state.pods)
    answer = replace(
        answer,
        node=state.name,
        resource_provider=state.root_uuid,
        cpuset=format_cpu_list(known_cpus(state.template.imported, recorded)),
        annotations=shown,
        unreadable=recorded.unreadable,
        warnings=(*answer.warnings, *findings, *_warnings(recorded, state, sharing.values())),
        shared_with=tuple(sharing),
        remarks=(_KEPT,) if kept else (),
    )
    answer = as_of_now(answer, state, present, recorded)
    used = next((each for each in state.reservations if each.consumer == recorded.reservation), None)
    ends = None if used is None else used_up(used, state, document)
    return PodPlacement(document, answer, state, recorded, ends)


def _recorded(document: PodDocument, running: RunningPod, state: NodeInfo) -> RecordedPod:
    """Return what to record of the pod; what it was given here stays unless its status says otherwise."""
    before = _recorded_before(state, document)
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
        reservation=_reservation_of(document, state) if before is None else before.reservation,
        labels=running.rules.bearer[1],
        affinity=running.rules.affinity,
        is_leaving=bool(document.manifest["metadata"].get("deletionTimestamp")),
        membership=None if running.gang is None else Membership(running.gang.name, running.gang.least),
    )
    if before is not None and (before.requests, before.holding) == (recorded.requests, holding):
        return replace(recorded, loose=before.loose)
    rest = state.without(frozenset({document.consumer}))
    loose = loose_amounts(state.offers, rest.left, recorded.requests, holding.amounts)
    return replace(recorded, loose=loose)


def _recorded_before(state: NodeInfo, document: PodDocument) -> RecordedPod | None:
    return next((pod for pod in state.pods if pod.consumer == document.consumer), None)


def _reservation_of(document: PodDocument, state: NodeInfo) -> str:
    """Return the consumer of the reservation that the pod says it takes from, if it is there for the pod."""
    metadata = Field("Pod", document.manifest, ManifestReport(), soft=True).member("metadata")
    allocated = metadata.member("annotations").member(keys.RESERVATION_ALLOCATED).json()
    uid = canonical_uid(allocated.member("uid").text() or "")
    for each in state.reservations:
        if each.uid == uid and each.keeps is not None and each.keeps.owned_by(document.manifest):
            return each.consumer
    return ""


def _limited(
    running: RunningPod, state: NodeInfo, before: RecordedPod | None, consumer: str
) -> tuple[RunningPod, tuple[str, ...]]:
    """Return the pod, cut to what it may have on that node, and the warnings about the rest.

    A pod that can have no CPUs of its own does not put its node in quarantine, whatever it says.
    """
    owns_cpus = running.qos.owns_cpus or state.host.bind.all_pods
    if running.unreadable and not owns_cpus:
        return replace(running, unreadable=()), running.unreadable
    if running.holding == NO_HOLDING:
        return running, ()
    # Reservations give way to pods.
    giving_way = {consumer, *(each.consumer for each in state.reservations)}
    owners = state.accounts.cpus.items()
    taken = state.offers.unallocatable | {cpu for cpu, owner in owners if owner.consumer not in giving_way}
    kept, topology = NO_HOLDING if before is None else before.holding, state.template.imported.topology
    holding, findings = _limited_claim(
        running.holding, running.requests, kept, topology, taken, owns_cpus=owns_cpus
    )
    return replace(running, holding=holding), findings


def _warnings(recorded: RecordedPod, state: NodeInfo, sharing: Iterable[str]) -> Iterator[str]:
    unknown = recorded.holding.cpus - state.template.imported.topology.cpus
    if unknown:
        yield f"CPUs {format_cpu_list(unknown)} are not in the cpu-topology; left out"
    requested, own = recorded.requests.get("cpu", 0) // 1000, len(recorded.holding.cpus - unknown)
    if own and own != requested:
        yield (
            f"the pod requests {requested} CPUs and has {own} of its own: a resize in place changes amounts, "
            "and which CPUs are its own changes only with its resource-status"
        )
    yield from sharing
    for consumer, kubelet_pod in state.kubelet_pods:
        shared = kubelet_pod.cpus & recorded.holding.cpus
        if consumer != recorded.consumer and shared:
            yield f"CPUs {format_cpu_list(shared)} are managed by kubelet for pod {kubelet_pod.uid}, too"
    reserved = state.offers.reserved & recorded.holding.cpus
    if reserved:
        yield f"CPUs {format_cpu_list(reserved)} are reserved on the node"


# Which part of a running pod's resource-status counts: no more than the pod may have.
#
# Users that may write pods may write that annotation, so it does not prove that CPUs were given.


def _limited_claim(
    claimed: Holding,
    requests: Amounts,
    kept: Holding,
    topology: CpuTopology,
    taken: CpuSet,
    *,
    owns_cpus: bool,
) -> tuple[Holding, tuple[str, ...]]:
    """Return the part of a claim that counts, and warnings about the rest.

    If a claim has more CPUs than are requested or kept, only as many count: CPUs that exist and that no other
    pod has, first the ones it had before, then whole cores, then lowest numbers. `taken` are CPUs that other
    pods have or no pod may have. `kept` is what the pod was recorded with before, which stays as long as it
    claims it: after a resize in place to less, a node agent still pins it to all CPUs of its annotation.
    """
    requested = requests.get("cpu", 0) // 1000
    most = max(requested, len(claimed.cpus & kept.cpus))
    cpus = claimed.cpus if owns_cpus else frozenset()
    if len(cpus) > most:
        rows = topology.by_cpu
        usable = (cpus & rows.keys()) - taken

        def rank(cpu: int) -> tuple[bool, bool, int, int]:
            core = topology.cores[rows[cpu].core_id]
            return cpu not in kept.cpus, not usable.issuperset(core), core[0], cpu

        cpus = frozenset(sorted(usable, key=rank)[:most])
    amounts = _limited_amounts(claimed.amounts, requests, kept.amounts)
    findings = []
    if cpus != claimed.cpus:
        why = f"requests {requested} CPUs" if owns_cpus else "gets no CPUs of its own"
        claims = f"resource-status claims CPUs {format_cpu_list(claimed.cpus - cpus)}, but the pod {why}"
        findings.append(f"{claims}; no pod is charged for them")
    for resource in sorted({name for row in claimed.amounts.values() for name in row}):
        if _total(claimed.amounts, resource) != _total(amounts, resource):
            claims = f"resource-status claims more {resource} of NUMA nodes than the pod requests"
            findings.append(f"{claims}; no pod is charged for the rest")
    return replace(claimed, cpus=cpus, amounts=amounts), tuple(findings)


def _limited_amounts(claimed: NumaAmounts, requests: Amounts, kept: NumaAmounts) -> NumaAmounts:
    """Count amounts of NUMA nodes in the order of their ids, up to what is requested or kept."""
    names = {name for row in claimed.values() for name in row}
    left = {name: max(requests.get(name, 0), _total(kept, name)) for name in names}
    counted: dict[int, dict[str, int]] = {}
    for numa, row in claimed.items():
        for resource, amount in row.items():
            share = min(amount, left[resource])
            if share > 0:
                left[resource] -= share
                counted.setdefault(numa, {})[resource] = share
    return NumaAmounts(counted)


def _total(amounts: NumaAmounts, resource: str) -> int:
    return sum(row.get(resource, 0) for row in amounts.values())
