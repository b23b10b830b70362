"""Schemas of clusters, nodes and pods for callers; `placement.pods.koordinator` checks what it reads.

The context of answers about pods, nodes and reservations is the name of their cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as MappingABC
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from marshmallow import missing

from placement.allocations.candidate_schemas import ExplanationShownSchema
from placement.allocations.orders import scoring_remarks
from placement.common.manifest import Profile
from placement.engine.domain.errors import PlacementError
from placement.engine.numa import host as numa
from placement.engine.numa.cpus import format_cpu_list
from placement.http import schemas as fields
from placement.http.context import error_document, status_of
from placement.http.schemas import (
    CONTEXT,
    ELSEWHERE,
    OPTIONAL,
    AnswerSchema,
    Boolean,
    Choice,
    ErrorSchema,
    Given,
    InContext,
    Integer,
    Mapping,
    NullableUuid,
    Number,
    Object,
    Sequence,
    String,
    Uuid,
    VersionedSchema,
    dump,
    texts,
)
from placement.pods.clusters import NodeTree
from placement.pods.cycle import in_plain_words
from placement.pods.koordinator.annotations import status_document
from placement.pods.manifests.pod import quantities
from placement.pods.model import AllocatePolicy, QosClass, ResourceStatus
from placement.pods.rows import PodAnswer
from placement.pods.views import Closure, CpuView
from placement.providers.fleet import ClusterUse
from placement.providers.schemas import CapacityUsedSchema
from placement.providers.statements.contents import Stored
from placement.providers.statements.providers import TreeMember

# A name, a strategy, a list of them, or what kube-scheduler is configured with; by use, or for all.
_SCORING = Given(
    {
        "anyOf": [
            {"type": "string"},
            {"type": "object"},
            {"type": "array", "items": {"type": "object"}},
            {"type": "null"},
        ]
    }
)


class ClusterSettingsSchema(VersionedSchema):
    """PUT /ext/v1/clusters/{cluster}; what is left out, or null, has its default."""

    description = String()
    profile = Choice(list(Profile), nullable=True)
    nodeLabels = Sequence(String(1), nullable=True)
    defaultCPUBindPolicy = Choice(list(numa.BindPolicy), nullable=True)
    defaultCPUExclusivePolicy = Choice(list(numa.ExclusiveLevel), nullable=True)
    defaultNUMATopologyPolicy = Choice(list(numa.NumaPolicy), nullable=True)
    numaAllocateStrategy = Choice(list(numa.NumaStrategy), nullable=True)
    scoring = _SCORING
    hostScoring = _SCORING
    numaScoring = _SCORING
    guaranteedQoS = Choice(filter(None, QosClass), nullable=True)
    subPriorityImmutable = Boolean(nullable=True)


# Answers about reservations.


def _texts_by_key(**options: Any) -> Mapping:
    return Mapping("", String(), shown_pattern="^.*$", **options)


def _cpu_list(path: str) -> Callable[[Any], str | None]:
    """Return a reader of CPUs as a list of Linux, None if they are not known."""
    read = attrgetter(path)
    return lambda source: None if (cpus := read(source)) is None else format_cpu_list(cpus)


class NumaAmountsSchema(AnswerSchema):
    """Amounts on a NUMA node, as annotations of Koordinator have them."""

    node = Integer()
    resources = _texts_by_key()


class HoldingSchema(AnswerSchema):
    """A holding: CPUs, amounts on NUMA nodes, and amounts of the host as a whole."""

    cpuset = String(source=_cpu_list("holding.cpus"))
    numaNodeResources = Sequence(
        Object(NumaAmountsSchema),
        source=lambda pod: status_document(ResourceStatus(amounts=pod.holding.amounts)).get(
            "numaNodeResources", []
        ),
    )
    resources = _texts_by_key(source=lambda pod: quantities(pod.requests))


class PodReferenceSchema(AnswerSchema):
    """A pod that uses a reservation."""

    namespace = String()
    name = String()
    uid = String()


class ReservationSchema(AnswerSchema):
    """A place kept for pods to come."""

    cluster = String(source=CONTEXT)
    name = String(source="pod.name")
    uid = String(source="pod.uid")
    consumer_uuid = Uuid(source="pod.consumer_uuid")
    node = String(nullable=True, source="pod.node")
    resource_provider = NullableUuid(source="pod.resource_provider")
    phase = String()
    allocate_once = Boolean(source="terms.allocate_once")
    allocate_policy = Choice(
        ["Default", "Aligned", "Restricted"],
        source=lambda each: str(each.terms.policy) or AllocatePolicy.DEFAULT.name.title(),
    )
    expires_at = String(
        nullable=True,
        source=lambda each: None if (at := each.terms.expires_at) is None else f"{at.isoformat()}Z",
    )
    # Owners as their manifest has them.
    owners = Given(
        {"type": "array", "items": {"type": "object"}},
        source=lambda each: [owner.document() for owner in each.terms.owners],
    )
    held = Object(HoldingSchema)
    left = Object(HoldingSchema, nullable=True)
    current_owners = Sequence(Object(PodReferenceSchema), source="owners")
    score = Integer(nullable=True, source="pod.score")
    warnings = texts(source="pod.warnings")
    remarks = texts(source="pod.remarks")
    unreadable = texts(source="pod.unreadable")


class ReservationsSchema(AnswerSchema):
    """Reservations in the order in which they were made; `next` is the `marker` of the following page."""

    reservations = Sequence(Object(ReservationSchema), source=itemgetter(0))
    next = Integer(nullable=True, source=itemgetter(1))


# Answers about clusters and their nodes.


class ClusterShownSchema(AnswerSchema, ClusterSettingsSchema):
    """A cluster with the settings that were given."""

    name = String()
    uuid = Uuid()
    aggregate = Uuid()
    nodes = Integer()
    remarks = texts(metadata=OPTIONAL)

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        for name in ClusterSettingsSchema().fields:
            self.fields[name].required = False

    def body(self, source: Any, context: Any = None) -> dict[str, Any]:
        """Return a cluster with its settings in their stored order, and remarks on scores without effect."""
        remarks = scoring_remarks(source.settings)
        return {
            "name": source.name,
            "uuid": source.uuid,
            "aggregate": source.aggregate_uuid,
            "nodes": source.nodes,
            **source.settings,
            **({"remarks": remarks} if remarks else {}),
        }


class ClusterListedSchema(ClusterShownSchema):
    """A cluster, and if that is asked for its hosts (nodes and others, no shared storage) and their use."""

    hosts = Integer(metadata=OPTIONAL)
    resources = Mapping(fields.NAME, Object(CapacityUsedSchema), metadata=OPTIONAL)

    def body(self, source: Any, context: Any = None) -> dict[str, Any]:
        """Return a cluster as it is shown by itself, and the use that `context` has of it."""
        shown = super().body(source)
        if context is not None:
            resources: Any = self.fields["resources"]
            use = context.get(source.name, ClusterUse(0, {}))
            shown |= {"hosts": use.hosts, "resources": resources.dumper()(use.resources, None)}
        return shown


class ClustersSchema(AnswerSchema):
    """The clusters that the caller may see."""

    clusters = Sequence(Object(ClusterListedSchema), source=list)


def _of_state(member: str) -> InContext:
    """Return a source of a member of the state of a node; None where no state is known."""
    return InContext(lambda node, states: getattr(states.get(node.name), member, None))


class NodeReferenceSchema(AnswerSchema):
    """A node, the root of its tree, when it was imported first, and its state if that is asked for.

    The context has the states by the names of the nodes. `closed` says why the node takes no pods, `uid` is
    that of its Node.
    """

    name = String()
    resource_provider = Uuid(source="root_uuid")
    created_at = String(source=lambda node: f"{node.created_at.isoformat(timespec='seconds')}Z")
    pods = Integer(metadata=OPTIONAL, source=_of_state("pods"))
    closed = Sequence(Choice(list(Closure)), metadata=OPTIONAL, source=_of_state("closed"))
    uid = String(metadata=OPTIONAL, source=_of_state("uid"))


class NodesSchema(AnswerSchema):
    """The nodes of a cluster."""

    nodes = Sequence(Object(NodeReferenceSchema))


def _of_import(path: str) -> Callable[[tuple[str, Any]], Any]:
    """Return a reader of a named import, which reads None where there is an error instead."""
    read = attrgetter(path)
    return lambda named: None if isinstance(named[1], PlacementError) else read(named[1])


class NodeImportedSchema(AnswerSchema):
    """The names of the providers that an import created, changed and deleted."""

    cluster = String(source=CONTEXT)
    name = String(source=itemgetter(0))
    created = texts(source=_of_import("change.created"))
    changed = texts(source=_of_import("change.changed"))
    deleted = texts(source=_of_import("change.deleted"))
    warnings = texts(source=_of_import("warnings"))


def _status(outcome: Any, is_new: str) -> int:
    if isinstance(outcome, PlacementError):
        return status_of(outcome)
    return 201 if getattr(outcome, is_new) else 200


def _error(outcome: Any, place: str) -> dict[str, Any] | None:
    return error_document(outcome, place) if isinstance(outcome, PlacementError) else None


class NodeOutcomeSchema(AnswerSchema):
    """The outcome for one of many nodes: what its import changed, or what is wrong."""

    name = String(source=itemgetter(0))
    status = Integer(200, 599, source=lambda named: _status(named[1], "created"))
    created = texts(metadata=OPTIONAL, source=_of_import("change.created"))
    changed = texts(metadata=OPTIONAL, source=_of_import("change.changed"))
    deleted = texts(metadata=OPTIONAL, source=_of_import("change.deleted"))
    warnings = texts(metadata=OPTIONAL, source=_of_import("warnings"))
    error = Object(ErrorSchema, metadata=OPTIONAL, source=lambda named: _error(named[1], f"node {named[0]}"))


class NodesImportedSchema(AnswerSchema):
    """The outcome for each of many nodes, in their order."""

    cluster = String(source=CONTEXT)
    nodes = Sequence(Object(NodeOutcomeSchema), source=list)


class CapacityRecordSchema(AnswerSchema):
    """An inventory with its capacity and use."""

    capacity = Integer(source="inventory.capacity")
    used = Integer()
    total = Integer(source="inventory.total")
    reserved = Integer(source="inventory.reserved")
    min_unit = Integer(source="inventory.min_unit")
    max_unit = Integer(source="inventory.max_unit")
    step_size = Integer(source="inventory.step_size")
    allocation_ratio = Number(source="inventory.allocation_ratio")


class _Branch(NamedTuple):
    member: TreeMember
    records: MappingABC[int, Stored]
    children: list[_Branch]


def _branches(tree: NodeTree) -> _Branch:
    """Return the root of a tree with all that is below it."""
    branches = {each.id: _Branch(each, tree.records.get(each.id, {}), []) for each in tree.members}
    for member in tree.members:
        if member.parent_id is not None:
            branches[member.parent_id].children.append(branches[member.id])
    return next(branch for branch in branches.values() if branch.member.parent_id is None)


class ProviderTreeSchema(AnswerSchema):
    """A provider of a node with the providers below it."""

    uuid = Uuid(source="member.uuid")
    name = String(source="member.name")
    generation = Integer(source="member.generation")
    traits = texts(source="member.traits")
    resources = Mapping(
        fields.NAME,
        Object(CapacityRecordSchema),
        source=lambda branch: {record.class_name: record for record in branch.records.values()},
    )
    children = Given(
        {"type": "array", "items": {"$ref": "#/components/schemas/ProviderTree"}},
        source=lambda branch: [dump(ProviderTreeSchema, child) for child in branch.children],
    )


def _first_pod(cpu: CpuView) -> str | None:
    if cpu.kubelet_pod is not None:
        return f"{cpu.kubelet_pod.namespace}/{cpu.kubelet_pod.name}"
    return cpu.pods[0].full_name if cpu.pods else None


class CpuSchema(AnswerSchema):
    """A logical CPU and its owner."""

    cpu = Integer(source="cpu.cpu")
    core = Integer(source="cpu.core")
    numa = Integer(source="cpu.numa")
    socket = Integer(source="cpu.socket")
    owner = String()
    pod = String(metadata=OPTIONAL, source=_first_pod)
    qos_class = String(
        nullable=True,
        metadata=OPTIONAL,
        source=lambda cpu: (cpu.pods[0].qos or None) if cpu.pods else missing,
    )
    exclusive = String(
        metadata=OPTIONAL, source=lambda cpu: str(cpu.pods[0].holding.level) if cpu.pods else None
    )
    shared_with = texts(metadata=OPTIONAL, source=lambda cpu: [pod.full_name for pod in cpu.pods[1:]] or None)
    reservation = String(metadata=OPTIONAL)
    consumer_uuid = Uuid(metadata=OPTIONAL, source="consumer")


class PoolSchema(AnswerSchema):
    """CPUs that are shared on a NUMA node."""

    socket = Integer()
    node = Integer(source="numa")
    cpuset = String(source=_cpu_list("cpus"))


class ReportedPodSchema(AnswerSchema):
    """A pod that is known by report."""

    namespace = String(source="pod.namespace")
    name = String(source="pod.name")
    uid = String(source="pod.uid")
    consumer_uuid = Uuid(source="consumer")
    cpuset = String(source=_cpu_list("pod.cpus"))


class NodePodSchema(AnswerSchema):
    """A pod that is recorded."""

    namespace = String(source="pod.namespace")
    name = String(source="pod.name")
    uid = String(source="pod.uid")
    consumer_uuid = Uuid(source="pod.consumer")
    qos_class = String(nullable=True, source=lambda each: each.pod.qos or None)
    cpuset = String(source=_cpu_list("cpus"))
    container_cpus = String(nullable=True, source=_cpu_list("container_cpus"))


class TakeoverSchema(AnswerSchema):
    """The state of taking CPUs over from kubelet, and a warning about it."""

    state = String(source="takeover")
    warning = String(nullable=True, source="takeover_warning")


class QuarantineSchema(AnswerSchema):
    """A pod with a resource-status or row that cannot be read, so that no pod is bound on its node."""

    pod = String(source="full_name")
    unreadable = texts()


class KeptOnNodeSchema(AnswerSchema):
    """A reservation on a node: what it holds, and what of it is left."""

    name = String(source="held.name")
    uid = String(source="held.uid")
    consumer_uuid = Uuid(source="held.consumer")
    held = Object(HoldingSchema)
    left = Object(HoldingSchema)


def _totals(tree: NodeTree) -> dict[str, dict[str, int]]:
    """Return capacity and use over the whole tree, by resource class."""
    totals: dict[str, dict[str, int]] = {}
    for records in tree.records.values():
        for record in records.values():
            total = totals.setdefault(record.class_name, {"capacity": 0, "used": 0})
            total["capacity"] += record.inventory.capacity
            total["used"] += record.used
    return dict(sorted(totals.items()))


class NodeSchema(AnswerSchema):
    """A node with its tree, its CPUs, its pods and its pools."""

    cluster = String(source="cluster.name")
    name = String(source="node.name")
    imported_at = String(source=lambda tree: f"{tree.node.imported_at.isoformat(timespec='seconds')}Z")
    resources = Mapping(fields.NAME, Object(CapacityUsedSchema), source=_totals)
    tree = Object(ProviderTreeSchema, source=_branches)
    cpus = Sequence(Object(CpuSchema), source="view.cpus")
    ls_pools = Sequence(Object(PoolSchema), source="view.ls_pools")
    be_pools = Sequence(Object(PoolSchema), source="view.be_pools")
    reported_ls_pools = Sequence(Object(PoolSchema), source="view.reported_ls_pools")
    reported_be_pools = Sequence(Object(PoolSchema), source="view.reported_be_pools")
    kubelet_pods = Sequence(Object(ReportedPodSchema), source="view.kubelet_pods")
    reported_pods = Sequence(Object(ReportedPodSchema), source="view.reported_pods")
    remarks = texts(source="view.remarks")
    takeover = Object(TakeoverSchema, source="view")
    pods = Sequence(Object(NodePodSchema), source="view.pods")
    quarantine = Sequence(Object(QuarantineSchema), source="view.quarantined_by")
    reservations = Sequence(
        Object(KeptOnNodeSchema), metadata=OPTIONAL, source=lambda tree: tree.view.reservations or None
    )


# Answers about pods, also of the scheduler extender.


_PINNED_UNSEEN = "kubelet pins the pod to CPUs that no pod-cpu-allocs entry names: its CPUs are not known"


class ContainerSchema(AnswerSchema):
    """A container of a pod, and its CPUs if it has a node; null if they are not known."""

    name = String(source=itemgetter(0))
    lift_cfs_quota = Boolean(source=itemgetter(1))
    cpuset = String(nullable=True, metadata=OPTIONAL, source=itemgetter(2))


def _containers(pod: PodAnswer) -> list[tuple[str, bool, Any]]:
    cpus = missing if pod.node is None else pod.container_cpus
    return [(name, pod.lifts_cfs_quota, cpus) for name in pod.containers]


def _pod_remarks(pod: PodAnswer) -> tuple[str, ...]:
    return (*pod.remarks, _PINNED_UNSEEN) if pod.is_pinned_unseen else pod.remarks


class PodSchema(AnswerSchema):
    """A pod, its place and what it was given."""

    cluster = String(source=CONTEXT)
    namespace = String()
    name = String()
    uid = String()
    consumer_uuid = Uuid()
    node = String(nullable=True)
    resource_provider = NullableUuid()
    phase = String()
    qos_class = String(nullable=True, source=lambda pod: pod.qos or None)
    kubernetes_qos_class = String(source="kubernetes_qos")
    scheduled = Boolean()
    cpuset = String()
    annotations = _texts_by_key()
    containers = Sequence(Object(ContainerSchema), source=_containers)
    score = Integer(nullable=True)
    warnings = texts()
    remarks = texts(source=_pod_remarks)
    unreadable = texts()
    shared_with = texts(metadata=OPTIONAL, source=lambda pod: pod.shared_with or None)
    changed_at = String(metadata=OPTIONAL, source=ELSEWHERE)


class ClaimSchema(PodSchema):
    """A claim can be released by its `changed_at`, unless the pod was claimed again since."""

    changed_at = String()


def _named(pod: Any, key: str) -> str | None:
    """Return the name or namespace of a manifest that may be anything."""
    metadata = pod.get("metadata")
    stated = metadata.get(key) if isinstance(metadata, MappingABC) else None
    return stated if isinstance(stated, str) else None


class PodOutcomeSchema(AnswerSchema):
    """The outcome for one of many pods, by the name in its manifest: the pod, or what is wrong."""

    namespace = String(nullable=True, source=lambda outcome: _named(outcome[0], "namespace"))
    name = String(nullable=True, source=lambda outcome: _named(outcome[0], "name"))
    status = Integer(200, 599, source=lambda outcome: _status(outcome[1], "is_new"))
    pod = Object(PodSchema, metadata=OPTIONAL, source=lambda outcome: getattr(outcome[1], "answer", None))
    error = Object(
        ErrorSchema,
        metadata=OPTIONAL,
        source=lambda outcome: _error(
            outcome[1], f"pod {_named(outcome[0], 'namespace') or 'default'}/{_named(outcome[0], 'name')}"
        ),
    )


class PodsTakenSchema(AnswerSchema):
    """The outcome for each of many pods, in their order."""

    cluster = String(source=CONTEXT)
    pods = Sequence(Object(PodOutcomeSchema), source=list)


class PodsSchema(AnswerSchema):
    """Pods in the order in which they were recorded; `next` is the `marker` of the following page."""

    pods = Sequence(Object(PodSchema), source=itemgetter(0))
    next = Integer(nullable=True, source=itemgetter(1))


class ClaimsSchema(PodsSchema):
    """Pods that were placed here and not reported since."""

    pods = Sequence(Object(ClaimSchema), source=itemgetter(0))


class PossiblePlaceSchema(AnswerSchema):
    """A node on which a pod would fit; nodes with less in `missed` come first, then higher scores."""

    name = String(source="answer.node")
    resource_provider = Uuid(source="answer.resource_provider")
    score = Integer(source="answer.score")
    missed = Integer(-1, source="answer.missed")
    cpuset = String(source="answer.cpuset")
    annotations = _texts_by_key(source="answer.annotations")
    remarks = texts(source="answer.remarks")


class RefusingNodeSchema(AnswerSchema):
    """A node that refuses a pod, and why."""

    node = String(source=itemgetter(0))
    reasons = texts(source=lambda named: list(map(in_plain_words, named[1].reasons)))
    status = Choice(list(numa.RefusalClass), source=lambda named: named[1].status)


def by_name(refusals: MappingABC[str, numa.Refusal]) -> list[tuple[str, numa.Refusal]]:
    """Return refusals by the names of their nodes: equal requests have equal answers."""
    return sorted(refusals.items(), key=itemgetter(0))


class PreviewSchema(AnswerSchema):
    """A preview of where a pod would go, best first, and why not elsewhere."""

    cluster = String(source=CONTEXT)
    message = String()
    nodes = Sequence(Object(PossiblePlaceSchema), source="places")
    fitting = Integer()
    rejected = Sequence(Object(RefusingNodeSchema), source=lambda preview: by_name(preview.refusals))
    explanation = Object(ExplanationShownSchema)
    warnings = texts()


class MeantQuerySchema(AnswerSchema):
    """A query, and what it stands for."""

    meaning = String(source=itemgetter(0))
    query = String(source=itemgetter(1))


class PodTranslationSchema(AnswerSchema):
    """A pod as queries, best first, and what they leave out."""

    queries = Sequence(Object(MeantQuerySchema))
    not_expressed = texts(source="gaps")
    warnings = texts()


class PodErrorSchema(ErrorSchema):
    """An error; for a pod that no node can take, with the reasons of the nodes."""

    nodes = Sequence(Object(RefusingNodeSchema), metadata=OPTIONAL)
    nodes_omitted = Integer(metadata=OPTIONAL)
    explanation = Object(ExplanationShownSchema, metadata=OPTIONAL)


class PodErrorsSchema(AnswerSchema):
    """The body of a refusal of a pod or reservation by the present state."""

    errors = Sequence(Object(PodErrorSchema), least=1)
