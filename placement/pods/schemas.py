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
from placement.engine.domain.errors import PlacementError, RequestPlace
from placement.engine.numa import host as numa_host
from placement.engine.numa.cpus import format_cpu_list
from placement.http import schemas as fields
from placement.http.errors import error_document, status_of
from placement.pods import bodies
from placement.pods.decide.explanation import in_plain_words
from placement.pods.koordinator.annotations import status_document
from placement.pods.koordinator.settings import LoopNodes
from placement.pods.manifests.pod import quantities
from placement.pods.services.closed_nodes import Closure
from placement.pods.services.clusters import NodeTree
from placement.pods.services.node_view import CpuView
from placement.pods.state.model import AllocatePolicy, QosClass, ResourceStatus
from placement.pods.store.answers import PodAnswer
from placement.providers.fleet import ClusterUse
from placement.providers.schemas import CapacityUsedSchema
from placement.providers.statements.contents import Stored
from placement.providers.statements.providers import TreeMember

# A name, a strategy, a list of them, or what kube-scheduler is configured with; by use, or for all.
_SCORING = fields.Given(
    {
        "anyOf": [
            {"type": "string"},
            {"type": "object"},
            {"type": "array", "items": {"type": "object"}},
            {"type": "null"},
        ]
    }
)


class ClusterSettingsSchema(fields.VersionedSchema):
    """PUT /ext/v1/clusters/{cluster}; what is left out, or null, has its default."""

    description = fields.String()
    profile = fields.Choice(list(Profile), nullable=True)
    nodeLabels = fields.Sequence(fields.String(1), nullable=True)
    defaultCPUBindPolicy = fields.Choice(list(numa_host.BindPolicy), nullable=True)
    defaultCPUExclusivePolicy = fields.Choice(list(numa_host.ExclusiveLevel), nullable=True)
    defaultNUMATopologyPolicy = fields.Choice(list(numa_host.NumaPolicy), nullable=True)
    numaAllocateStrategy = fields.Choice(list(numa_host.NumaStrategy), nullable=True)
    scoring = _SCORING
    hostScoring = _SCORING
    numaScoring = _SCORING
    guaranteedQoS = fields.Choice(filter(None, QosClass), nullable=True)
    subPriorityImmutable = fields.Boolean(nullable=True)
    loopNodes = fields.Choice(list(LoopNodes), nullable=True)


# Answers about reservations.


def _texts_by_key(**options: Any) -> fields.Mapping:
    return fields.Mapping("", fields.String(), shown_pattern="^.*$", **options)


def _cpu_list(path: str) -> Callable[[Any], str | None]:
    """Return a reader of CPUs as a list of Linux, None if they are not known."""
    read = attrgetter(path)
    return lambda source: None if (cpus := read(source)) is None else format_cpu_list(cpus)


class NumaAmountsSchema(fields.AnswerSchema):
    """Amounts on a NUMA node, as annotations of Koordinator have them."""

    node = fields.Integer()
    resources = _texts_by_key()


class HoldingSchema(fields.AnswerSchema):
    """A holding: CPUs, amounts on NUMA nodes, and amounts of the host as a whole."""

    cpuset = fields.String(source=_cpu_list("holding.cpus"))
    numaNodeResources = fields.Sequence(
        fields.Object(NumaAmountsSchema),
        source=lambda pod: status_document(ResourceStatus(amounts=pod.holding.amounts)).get(
            "numaNodeResources", []
        ),
    )
    resources = _texts_by_key(source=lambda pod: quantities(pod.requests))


class PodReferenceSchema(fields.AnswerSchema):
    """A pod that uses a reservation."""

    namespace = fields.String()
    name = fields.String()
    uid = fields.String()


class ReservationSchema(fields.AnswerSchema):
    """A place kept for pods to come."""

    cluster = fields.String(source=fields.CONTEXT)
    name = fields.String(source="pod.name")
    uid = fields.String(source="pod.uid")
    consumer_uuid = fields.Uuid(source="pod.consumer_uuid")
    node = fields.String(nullable=True, source="pod.node")
    resource_provider = fields.NullableUuid(source="pod.resource_provider")
    phase = fields.String()
    allocate_once = fields.Boolean(source="terms.allocate_once")
    allocate_policy = fields.Choice(
        ["Default", "Aligned", "Restricted"],
        source=lambda each: str(each.terms.policy) or AllocatePolicy.DEFAULT.name.title(),
    )
    expires_at = fields.String(
        nullable=True,
        source=lambda each: None if (at := each.terms.expires_at) is None else f"{at.isoformat()}Z",
    )
    # Owners as their manifest has them.
    owners = fields.Given(
        {"type": "array", "items": {"type": "object"}},
        source=lambda each: [owner.document() for owner in each.terms.owners],
    )
    held = fields.Object(HoldingSchema)
    left = fields.Object(HoldingSchema, nullable=True)
    current_owners = fields.Sequence(fields.Object(PodReferenceSchema), source="owners")
    score = fields.Integer(nullable=True, source="pod.score")
    warnings = fields.texts(source="pod.warnings")
    remarks = fields.texts(source="pod.remarks")
    unreadable = fields.texts(source="pod.unreadable")


class ReservationsSchema(fields.AnswerSchema):
    """Reservations in the order in which they were made; `next` is the `marker` of the following page."""

    reservations = fields.Sequence(fields.Object(ReservationSchema), source=itemgetter(0))
    next = fields.Integer(nullable=True, source=itemgetter(1))


# Answers about clusters and their nodes.


class ClusterShownSchema(fields.AnswerSchema, ClusterSettingsSchema):
    """A cluster with the settings that were given."""

    name = fields.String()
    uuid = fields.Uuid()
    aggregate = fields.Uuid()
    nodes = fields.Integer()
    remarks = fields.texts(metadata=fields.OPTIONAL)

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

    hosts = fields.Integer(metadata=fields.OPTIONAL)
    resources = fields.Mapping(fields.NAME, fields.Object(CapacityUsedSchema), metadata=fields.OPTIONAL)

    def body(self, source: Any, context: Any = None) -> dict[str, Any]:
        """Return a cluster as it is shown by itself, and the use that `context` has of it."""
        shown = super().body(source)
        if context is not None:
            resources: Any = self.fields["resources"]
            use = context.get(source.name, ClusterUse(0, {}))
            shown |= {"hosts": use.hosts, "resources": resources.dumper()(use.resources, None)}
        return shown


class ClustersSchema(fields.AnswerSchema):
    """The clusters that the caller may see."""

    clusters = fields.Sequence(fields.Object(ClusterListedSchema), source=list)


def _of_state(member: str) -> fields.InContext:
    """Return a source of a member of the state of a node; None where no state is known."""
    return fields.InContext(lambda node, states: getattr(states.get(node.name), member, None))


class NodeReferenceSchema(fields.AnswerSchema):
    """A node, the root of its tree, when it was imported first, and its state if that is asked for.

    The context has the states by the names of the nodes. `closed` says why the node takes no pods, `uid` is
    that of its Node.
    """

    name = fields.String()
    resource_provider = fields.Uuid(source="root_uuid")
    created_at = fields.String(source=lambda node: f"{node.created_at.isoformat(timespec='seconds')}Z")
    pods = fields.Integer(metadata=fields.OPTIONAL, source=_of_state("pods"))
    closed = fields.Sequence(
        fields.Choice(list(Closure)), metadata=fields.OPTIONAL, source=_of_state("closed")
    )
    uid = fields.String(metadata=fields.OPTIONAL, source=_of_state("uid"))


class NodesSchema(fields.AnswerSchema):
    """The nodes of a cluster."""

    nodes = fields.Sequence(fields.Object(NodeReferenceSchema))


def _of_import(path: str) -> Callable[[tuple[str, Any]], Any]:
    """Return a reader of a named import, which reads None where there is an error instead."""
    read = attrgetter(path)
    return lambda named: None if isinstance(named[1], PlacementError) else read(named[1])


class NodeImportedSchema(fields.AnswerSchema):
    """The names of the providers that an import created, changed and deleted."""

    cluster = fields.String(source=fields.CONTEXT)
    name = fields.String(source=itemgetter(0))
    created = fields.texts(source=_of_import("change.created"))
    changed = fields.texts(source=_of_import("change.changed"))
    deleted = fields.texts(source=_of_import("change.deleted"))
    warnings = fields.texts(source=_of_import("warnings"))


def _status(outcome: Any, is_new: str) -> int:
    if isinstance(outcome, PlacementError):
        return status_of(outcome)
    return 201 if getattr(outcome, is_new) else 200


def _error(outcome: Any, place: RequestPlace) -> dict[str, Any] | None:
    return error_document(outcome, place) if isinstance(outcome, PlacementError) else None


class NodeOutcomeSchema(fields.AnswerSchema):
    """The outcome for one of many nodes: what its import changed, or what is wrong."""

    name = fields.String(source=itemgetter(0))
    status = fields.Integer(200, 599, source=lambda named: _status(named[1], "created"))
    created = fields.texts(metadata=fields.OPTIONAL, source=_of_import("change.created"))
    changed = fields.texts(metadata=fields.OPTIONAL, source=_of_import("change.changed"))
    deleted = fields.texts(metadata=fields.OPTIONAL, source=_of_import("change.deleted"))
    warnings = fields.texts(metadata=fields.OPTIONAL, source=_of_import("warnings"))
    error = fields.Object(
        fields.ErrorSchema,
        metadata=fields.OPTIONAL,
        source=lambda named: _error(named[1], RequestPlace(f"node {named[0]}")),
    )


class NodesImportedSchema(fields.AnswerSchema):
    """The outcome for each of many nodes, in their order."""

    cluster = fields.String(source=fields.CONTEXT)
    nodes = fields.Sequence(fields.Object(NodeOutcomeSchema), source=list)


class CapacityRecordSchema(fields.AnswerSchema):
    """An inventory with its capacity and use."""

    capacity = fields.Integer(source="inventory.capacity")
    used = fields.Integer()
    total = fields.Integer(source="inventory.total")
    reserved = fields.Integer(source="inventory.reserved")
    min_unit = fields.Integer(source="inventory.min_unit")
    max_unit = fields.Integer(source="inventory.max_unit")
    step_size = fields.Integer(source="inventory.step_size")
    allocation_ratio = fields.Number(source="inventory.allocation_ratio")


class _Branch(NamedTuple):
    member: TreeMember
    records: MappingABC[int, Stored]
    child_branches: list[_Branch]


def _branches(tree: NodeTree) -> _Branch:
    """Return the root of a tree with all that is below it."""
    branches = {each.id: _Branch(each, tree.records.get(each.id, {}), []) for each in tree.members}
    for member in tree.members:
        if member.parent_id is not None:
            branches[member.parent_id].child_branches.append(branches[member.id])
    return next(branch for branch in branches.values() if branch.member.parent_id is None)


class ProviderTreeSchema(fields.AnswerSchema):
    """A provider of a node with the providers below it."""

    uuid = fields.Uuid(source="member.uuid")
    name = fields.String(source="member.name")
    generation = fields.Integer(source="member.generation")
    traits = fields.texts(source="member.traits")
    resources = fields.Mapping(
        fields.NAME,
        fields.Object(CapacityRecordSchema),
        source=lambda branch: {record.class_name: record for record in branch.records.values()},
    )
    children = fields.Given(
        {"type": "array", "items": {"$ref": "#/components/schemas/ProviderTree"}},
        source=lambda branch: [fields.dump(ProviderTreeSchema, child) for child in branch.child_branches],
    )


def _first_pod(cpu: CpuView) -> str | None:
    if cpu.kubelet_pod is not None:
        return f"{cpu.kubelet_pod.namespace}/{cpu.kubelet_pod.name}"
    return cpu.pods[0].full_name if cpu.pods else None


class CpuSchema(fields.AnswerSchema):
    """A logical CPU and its owner."""

    cpu = fields.Integer(source="cpu.cpu")
    core = fields.Integer(source="cpu.core")
    numa = fields.Integer(source="cpu.numa")
    socket = fields.Integer(source="cpu.socket")
    owner = fields.String()
    pod = fields.String(metadata=fields.OPTIONAL, source=_first_pod)
    qos_class = fields.String(
        nullable=True,
        metadata=fields.OPTIONAL,
        source=lambda cpu: (cpu.pods[0].qos or None) if cpu.pods else missing,
    )
    exclusive = fields.String(
        metadata=fields.OPTIONAL, source=lambda cpu: str(cpu.pods[0].holding.level) if cpu.pods else None
    )
    shared_with = fields.texts(
        metadata=fields.OPTIONAL, source=lambda cpu: [pod.full_name for pod in cpu.pods[1:]] or None
    )
    reservation = fields.String(metadata=fields.OPTIONAL)
    consumer_uuid = fields.Uuid(metadata=fields.OPTIONAL, source="consumer")


class PoolSchema(fields.AnswerSchema):
    """CPUs that are shared on a NUMA node."""

    socket = fields.Integer()
    node = fields.Integer(source="numa")
    cpuset = fields.String(source=_cpu_list("cpus"))


class ReportedPodSchema(fields.AnswerSchema):
    """A pod that is known by report."""

    namespace = fields.String(source="pod.namespace")
    name = fields.String(source="pod.name")
    uid = fields.String(source="pod.uid")
    consumer_uuid = fields.Uuid(source="consumer")
    cpuset = fields.String(source=_cpu_list("pod.cpus"))


class NodePodSchema(fields.AnswerSchema):
    """A pod that is recorded."""

    namespace = fields.String(source="pod.namespace")
    name = fields.String(source="pod.name")
    uid = fields.String(source="pod.uid")
    consumer_uuid = fields.Uuid(source="pod.consumer")
    qos_class = fields.String(nullable=True, source=fields.unless_empty("pod.qos"))
    cpuset = fields.String(source=_cpu_list("cpus"))
    container_cpus = fields.String(nullable=True, source=_cpu_list("container_cpus"))


class TakeoverSchema(fields.AnswerSchema):
    """The state of taking CPUs over from kubelet, and a warning about it."""

    state = fields.String(source="takeover")
    warning = fields.String(nullable=True, source="takeover_warning")


class QuarantineSchema(fields.AnswerSchema):
    """A pod with a resource-status or row that cannot be read, so that no pod is bound on its node."""

    pod = fields.String(source="full_name")
    unreadable = fields.texts()


class KeptOnNodeSchema(fields.AnswerSchema):
    """A reservation on a node: what it holds, and what of it is left."""

    name = fields.String(source="whole.name")
    uid = fields.String(source="whole.uid")
    consumer_uuid = fields.Uuid(source="whole.consumer")
    held = fields.Object(HoldingSchema, source="whole")
    left = fields.Object(HoldingSchema, source="left")


def _totals(tree: NodeTree) -> dict[str, dict[str, int]]:
    """Return capacity and use over the whole tree, by resource class."""
    totals: dict[str, dict[str, int]] = {}
    for records in tree.records.values():
        for record in records.values():
            total = totals.setdefault(record.class_name, {"capacity": 0, "used": 0})
            total["capacity"] += record.inventory.capacity
            total["used"] += record.used
    return dict(sorted(totals.items()))


class NodeSchema(fields.AnswerSchema):
    """A node with its tree, its CPUs, its pods and its pools."""

    cluster = fields.String(source="cluster.name")
    name = fields.String(source="node.name")
    imported_at = fields.String(source=lambda tree: f"{tree.node.imported_at.isoformat(timespec='seconds')}Z")
    resources = fields.Mapping(fields.NAME, fields.Object(CapacityUsedSchema), source=_totals)
    tree = fields.Object(ProviderTreeSchema, source=_branches)
    cpus = fields.Sequence(fields.Object(CpuSchema), source="view.cpus")
    ls_pools = fields.Sequence(fields.Object(PoolSchema), source="view.ls_pools")
    be_pools = fields.Sequence(fields.Object(PoolSchema), source="view.be_pools")
    reported_ls_pools = fields.Sequence(fields.Object(PoolSchema), source="view.reported_ls_pools")
    reported_be_pools = fields.Sequence(fields.Object(PoolSchema), source="view.reported_be_pools")
    kubelet_pods = fields.Sequence(fields.Object(ReportedPodSchema), source="view.kubelet_pods")
    reported_pods = fields.Sequence(fields.Object(ReportedPodSchema), source="view.reported_pods")
    remarks = fields.texts(source="view.remarks")
    takeover = fields.Object(TakeoverSchema, source="view")
    pods = fields.Sequence(fields.Object(NodePodSchema), source="view.pods")
    quarantine = fields.Sequence(fields.Object(QuarantineSchema), source="view.quarantined_by")
    reservations = fields.Sequence(
        fields.Object(KeptOnNodeSchema),
        metadata=fields.OPTIONAL,
        source=fields.unless_empty("view.reservations"),
    )


# Answers about pods, also of the scheduler extender.


_PINNED_UNSEEN = "kubelet pins the pod to CPUs that no pod-cpu-allocs entry names: its CPUs are not known"


class ContainerSchema(fields.AnswerSchema):
    """A container of a pod, and its CPUs if it has a node; null if they are not known."""

    name = fields.String(source=itemgetter(0))
    lift_cfs_quota = fields.Boolean(source=itemgetter(1))
    cpuset = fields.String(nullable=True, metadata=fields.OPTIONAL, source=itemgetter(2))


def _containers(pod: PodAnswer) -> list[tuple[str, bool, Any]]:
    cpus = missing if pod.node is None else pod.container_cpus
    return [(name, pod.lifts_cfs_quota, cpus) for name in pod.containers]


def _pod_remarks(pod: PodAnswer) -> tuple[str, ...]:
    return (*pod.remarks, _PINNED_UNSEEN) if pod.is_pinned_unseen else pod.remarks


class UndecidedSchema(fields.AnswerSchema):
    """A thing that a pod asks for and that is not decided; `where` is a JSON Pointer into its manifest."""

    what = fields.String()
    where = fields.String()


class PodSchema(fields.AnswerSchema):
    """A pod, its place and what it was given."""

    cluster = fields.String(source=fields.CONTEXT)
    namespace = fields.String()
    name = fields.String()
    uid = fields.String()
    consumer_uuid = fields.Uuid()
    node = fields.String(nullable=True)
    resource_provider = fields.NullableUuid()
    phase = fields.String()
    qos_class = fields.String(nullable=True, source=fields.unless_empty("qos"))
    kubernetes_qos_class = fields.String(source="kubernetes_qos")
    scheduled = fields.Boolean()
    cpuset = fields.String()
    annotations = _texts_by_key()
    containers = fields.Sequence(fields.Object(ContainerSchema), source=_containers)
    score = fields.Integer(nullable=True)
    warnings = fields.texts()
    undecided = fields.Sequence(fields.Object(UndecidedSchema), metadata=fields.OPTIONAL)
    remarks = fields.texts(source=_pod_remarks)
    unreadable = fields.texts()
    shared_with = fields.texts(metadata=fields.OPTIONAL, source=fields.unless_empty("shared_with"))
    changed_at = fields.String(metadata=fields.OPTIONAL, source=fields.ELSEWHERE)


class ClaimSchema(PodSchema):
    """A claim can be released by its `changed_at`, unless the pod was claimed again since."""

    changed_at = fields.String()


def _named(pod: Any, key: str) -> str | None:
    """Return the name or namespace of a manifest that may be anything."""
    metadata = pod.get("metadata")
    stated = metadata.get(key) if isinstance(metadata, MappingABC) else None
    return stated if isinstance(stated, str) else None


class PodTakenSchema(PodSchema):
    """A pod that was placed or recorded; `changed_at` is that of its claim, by which it can be given back."""

    changed_at = fields.String(metadata=fields.OPTIONAL, source=fields.unless_empty("changed_at"))


class PodOutcomeSchema(fields.AnswerSchema):
    """The outcome for one of many pods, by the name in its manifest: the pod, or what is wrong."""

    namespace = fields.String(nullable=True, source=lambda outcome: _named(outcome[0], "namespace"))
    name = fields.String(nullable=True, source=lambda outcome: _named(outcome[0], "name"))
    status = fields.Integer(200, 599, source=lambda outcome: _status(outcome[1], "is_new"))
    pod = fields.Object(
        PodTakenSchema, metadata=fields.OPTIONAL, source=lambda outcome: getattr(outcome[1], "answer", None)
    )
    error = fields.Object(
        fields.ErrorSchema,
        metadata=fields.OPTIONAL,
        source=lambda outcome: _error(
            outcome[1],
            RequestPlace(f"pod {_named(outcome[0], 'namespace') or 'default'}/{_named(outcome[0], 'name')}"),
        ),
    )


class PodsTakenSchema(fields.AnswerSchema):
    """The outcome for each of many pods, in their order."""

    cluster = fields.String(source=fields.CONTEXT)
    pods = fields.Sequence(fields.Object(PodOutcomeSchema), source=list)


class PodsSchema(fields.AnswerSchema):
    """Pods in the order in which they were recorded; `next` is the `marker` of the following page."""

    pods = fields.Sequence(fields.Object(PodSchema), source=itemgetter(0))
    next = fields.Integer(nullable=True, source=itemgetter(1))


class ClaimsSchema(PodsSchema):
    """Pods that were placed here and not reported since."""

    pods = fields.Sequence(fields.Object(ClaimSchema), source=itemgetter(0))


class PossiblePlaceSchema(fields.AnswerSchema):
    """A node on which a pod would fit; nodes with less in `missed` come first, then higher scores."""

    name = fields.String(source="answer.node")
    resource_provider = fields.Uuid(source="answer.resource_provider")
    score = fields.Integer(source="answer.score")
    missed = fields.Integer(-1, source="answer.missed")
    cpuset = fields.String(source="answer.cpuset")
    annotations = _texts_by_key(source="answer.annotations")
    remarks = fields.texts(source="answer.remarks")


class RefusingNodeSchema(fields.AnswerSchema):
    """A node that refuses a pod, and why."""

    node = fields.String(source=itemgetter(0))
    reasons = fields.texts(source=lambda named: list(map(in_plain_words, named[1].reasons)))
    status = fields.Choice(list(numa_host.RefusalClass), source=lambda named: named[1].refusal_class)


def by_name(refusals: MappingABC[str, numa_host.Refusal]) -> list[tuple[str, numa_host.Refusal]]:
    """Return refusals by the names of their nodes: equal requests have equal answers."""
    return sorted(refusals.items(), key=itemgetter(0))


class PreviewSchema(fields.AnswerSchema):
    """A preview of where a pod would go, best first, and why not elsewhere."""

    cluster = fields.String(source=fields.CONTEXT)
    message = fields.String()
    nodes = fields.Sequence(fields.Object(PossiblePlaceSchema), source="placements")
    fitting = fields.Integer()
    rejected = fields.Sequence(
        fields.Object(RefusingNodeSchema), source=lambda preview: by_name(preview.refusals)
    )
    explanation = fields.Object(ExplanationShownSchema)
    warnings = fields.texts()
    undecided = fields.Sequence(fields.Object(UndecidedSchema), metadata=fields.OPTIONAL)


_MOST_BOUND = 500
_MOST_NAMED = 10_000
# As long as the column, and as Kubernetes has them.
_UID_LENGTH, _NAME_LENGTH = 36, 253


class BoundPodSchema(fields.VersionedSchema):
    """A pod, and the node to which it was bound."""

    namespace = fields.String(1, _NAME_LENGTH, required=True)
    name = fields.String(1, _NAME_LENGTH, required=True)
    uid = fields.String(1, _UID_LENGTH, required=True)
    node = fields.String(1, _NAME_LENGTH, required=True)


class BoundPodsSchema(fields.VersionedSchema):
    """POST /ext/v1/clusters/{cluster}/pods/bound."""

    pods = fields.Sequence(fields.Object(BoundPodSchema), least=1, most=_MOST_BOUND, required=True)


class ConfirmedPodSchema(fields.AnswerSchema):
    """The outcome for one of many bound pods; an unknown one has to be reported with its manifest."""

    namespace = fields.String(source=lambda outcome: outcome[0].namespace)
    name = fields.String(source=lambda outcome: outcome[0].name)
    uid = fields.String(source=lambda outcome: outcome[0].uid)
    outcome = fields.Choice(
        ["confirmed", "unknown"], source=lambda outcome: "confirmed" if outcome[1] else "unknown"
    )


class ConfirmedPodsSchema(fields.AnswerSchema):
    """The outcome for each of many bound pods, in their order."""

    pods = fields.Sequence(fields.Object(ConfirmedPodSchema), source=list)


class PreemptionBodySchema(fields.VersionedSchema):
    """POST /ext/v1/clusters/{cluster}/pods/preemption.

    `protected` are the uids of pods with disruption budgets that allow no more; only `nodes` count, if given.
    """

    pod = fields.Given(bodies.POD, required=True)
    protected = fields.Sequence(fields.String(1, _UID_LENGTH), most=_MOST_NAMED)
    nodes = fields.Sequence(fields.String(1, _NAME_LENGTH), most=_MOST_NAMED)


class VictimSchema(PodReferenceSchema):
    """A pod to be evicted, and how important it is."""

    priority = fields.Integer()


class PreemptionSchema(fields.AnswerSchema):
    """The node on which a pod fits once the victims are gone; null with the reason why there is none.

    `violations` counts protected victims.
    """

    node = fields.String(nullable=True)
    victims = fields.Sequence(fields.Object(VictimSchema), source="pods")
    violations = fields.Integer()
    reason = fields.String()


class MeantQuerySchema(fields.AnswerSchema):
    """A query, and what it stands for."""

    meaning = fields.String(source=itemgetter(0))
    query = fields.String(source=itemgetter(1))


class PodTranslationSchema(fields.AnswerSchema):
    """A pod as queries, best first, and what they leave out."""

    queries = fields.Sequence(fields.Object(MeantQuerySchema))
    not_expressed = fields.texts(source="gaps")
    warnings = fields.texts()


class PodErrorSchema(fields.ErrorSchema):
    """An error; for a pod that no node can take, with the reasons of the nodes."""

    nodes = fields.Sequence(fields.Object(RefusingNodeSchema), metadata=fields.OPTIONAL)
    nodes_omitted = fields.Integer(metadata=fields.OPTIONAL)
    explanation = fields.Object(ExplanationShownSchema, metadata=fields.OPTIONAL)


class PodErrorsSchema(fields.AnswerSchema):
    """The body of a refusal of a pod or reservation by the present state."""

    errors = fields.Sequence(fields.Object(PodErrorSchema), least=1)
