"""Schemas of clusters, nodes and pods for callers; `placement.pods.koordinator` checks what it reads."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from placement.allocations.candidate_schemas import CapacityUsedSchema, ExplanationShownSchema
from placement.common.manifest import Profile
from placement.engine.numa.demand import BindPolicy, ExclusiveLevel, NumaPolicy, NumaStrategy, RefusalClass
from placement.http import fields
from placement.http.fields import (
    Boolean,
    Choice,
    Given,
    Integer,
    Mapping,
    NullableUuid,
    Object,
    Sequence,
    String,
    Uuid,
)
from placement.http.schemas import OPTIONAL, AnswerSchema, ErrorSchema, VersionedSchema, texts
from placement.pods.model import QosClass
from placement.providers.schemas import InventoryRecordSchema

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
    defaultCPUBindPolicy = Choice(list(BindPolicy), nullable=True)
    defaultCPUExclusivePolicy = Choice(list(ExclusiveLevel), nullable=True)
    defaultNUMATopologyPolicy = Choice(list(NumaPolicy), nullable=True)
    numaAllocateStrategy = Choice(list(NumaStrategy), nullable=True)
    scoring = _SCORING
    hostScoring = _SCORING
    numaScoring = _SCORING
    guaranteedQoS = Choice(filter(None, QosClass), nullable=True)
    subPriorityImmutable = Boolean(nullable=True)


# Manifests of Kubernetes as bodies: what they have at least. The rest is for Kubernetes to say.


Document = dict[str, Any]
_METADATA: Document = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 253}},
    "required": ["name"],
}


def _manifest(kind: str, *required: str, **properties: Document) -> Document:
    return {
        "type": "object",
        "properties": {"kind": {"type": "string", "const": kind}, "metadata": _METADATA, **properties},
        "required": ["kind", "metadata", *required],
    }


POD = _manifest("Pod", "spec", spec={"type": "object"})
RESERVATION = _manifest("Reservation", "spec", spec={"type": "object"})
NODE = _manifest("Node", status={"type": "object"})
TOPOLOGY = _manifest("NodeResourceTopology")
# In YAML as two documents, in JSON as a List.
NODE_AND_TOPOLOGY: Document = {
    "anyOf": [
        NODE,
        {
            "type": "object",
            "properties": {
                "kind": {"type": "string", "const": "List"},
                "items": {"type": "array", "items": {"anyOf": [NODE, TOPOLOGY]}, "minItems": 1},
            },
            "required": ["kind", "items"],
        },
    ]
}
# Pods: in YAML as several documents, in JSON as a List.
PODS: Document = {
    "anyOf": [
        POD,
        {
            "type": "object",
            "properties": {
                "kind": {"type": "string", "const": "List"},
                "items": {"type": "array", "items": POD, "minItems": 1},
            },
            "required": ["kind", "items"],
        },
    ]
}
PREVIEW: Document = {
    "anyOf": [
        POD,
        {
            "type": "object",
            "properties": {
                "pod": POD,
                "nodeNames": {"type": ["array", "null"], "items": {"type": "string"}},
                "limit": {"type": ["integer", "null"], "minimum": 0},
            },
            "required": ["pod"],
            "additionalProperties": False,
        },
    ]
}


# Answers about reservations.


# Owners as their manifest has them.
_OWNERS = Given({"type": "array", "items": {"type": "object"}})
_QUANTITIES = Mapping("", String(), shown_pattern="^.*$")


class NumaAmountsSchema(AnswerSchema):
    """Amounts on a NUMA node, as annotations of Koordinator have them."""

    node = Integer()
    resources = _QUANTITIES


class HoldingSchema(AnswerSchema):
    """A holding: CPUs, amounts on NUMA nodes, and amounts of the host as a whole."""

    cpuset = String()
    numaNodeResources = Sequence(Object(NumaAmountsSchema))
    resources = _QUANTITIES


class PodReferenceSchema(AnswerSchema):
    """A pod that uses a reservation."""

    namespace = String()
    name = String()
    uid = String()


class ReservationSchema(AnswerSchema):
    """A place kept for pods to come."""

    cluster = String()
    name = String()
    uid = String()
    consumer_uuid = Uuid()
    node = String(nullable=True)
    resource_provider = NullableUuid()
    phase = String()
    allocate_once = Boolean()
    allocate_policy = Choice(["Default", "Aligned", "Restricted"])
    expires_at = String(nullable=True)
    owners = _OWNERS
    held = Object(HoldingSchema)
    left = Object(HoldingSchema, nullable=True)
    current_owners = Sequence(Object(PodReferenceSchema))
    score = Integer(nullable=True)
    warnings = texts()
    remarks = texts()
    unreadable = texts()


class ReservationsSchema(AnswerSchema):
    """Reservations in the order in which they were made; `next` is the `marker` of the following page."""

    reservations = Sequence(Object(ReservationSchema))
    next = Integer(nullable=True)


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


class ClustersSchema(AnswerSchema):
    """The clusters that the caller may see."""

    clusters = Sequence(Object(ClusterShownSchema))


class NodeReferenceSchema(AnswerSchema):
    """A node and the root of its tree."""

    name = String()
    resource_provider = Uuid()


class NodesSchema(AnswerSchema):
    """The nodes of a cluster."""

    nodes = Sequence(Object(NodeReferenceSchema))


class NodeImportedSchema(AnswerSchema):
    """The names of the providers that an import created, changed and deleted."""

    cluster = String()
    name = String()
    created = texts()
    changed = texts()
    deleted = texts()
    warnings = texts()


class NodeOutcomeSchema(AnswerSchema):
    """The outcome for one of many nodes: what its import changed, or what is wrong."""

    name = String()
    status = Integer(200, 599)
    created = texts(metadata=OPTIONAL)
    changed = texts(metadata=OPTIONAL)
    deleted = texts(metadata=OPTIONAL)
    warnings = texts(metadata=OPTIONAL)
    error = Object(ErrorSchema, metadata=OPTIONAL)


class NodesImportedSchema(AnswerSchema):
    """The outcome for each of many nodes, in their order."""

    cluster = String()
    nodes = Sequence(Object(NodeOutcomeSchema))


class CapacityRecordSchema(InventoryRecordSchema):
    """An inventory with its capacity and use."""

    capacity = Integer()
    used = Integer()


class ProviderTreeSchema(AnswerSchema):
    """A provider of a node with the providers below it."""

    uuid = Uuid()
    name = String()
    generation = Integer()
    traits = texts()
    resources = Mapping(fields.NAME, Object(CapacityRecordSchema))
    children = Given({"type": "array", "items": {"$ref": "#/components/schemas/ProviderTree"}})


class CpuSchema(AnswerSchema):
    """A logical CPU and its owner."""

    cpu = Integer()
    core = Integer()
    numa = Integer()
    socket = Integer()
    owner = String()
    pod = String(metadata=OPTIONAL)
    qos_class = String(nullable=True, metadata=OPTIONAL)
    exclusive = String(metadata=OPTIONAL)
    shared_with = texts(metadata=OPTIONAL)
    reservation = String(metadata=OPTIONAL)
    consumer_uuid = Uuid(metadata=OPTIONAL)


class PoolSchema(AnswerSchema):
    """CPUs that are shared on a NUMA node."""

    socket = Integer()
    node = Integer()
    cpuset = String()


class ReportedPodSchema(AnswerSchema):
    """A pod that is known by report."""

    namespace = String()
    name = String()
    uid = String()
    consumer_uuid = Uuid()
    cpuset = String()


class NodePodSchema(ReportedPodSchema):
    """A pod that is recorded."""

    qos_class = String(nullable=True)
    container_cpus = String(nullable=True)


class TakeoverSchema(AnswerSchema):
    """The state of taking CPUs over from kubelet, and a warning about it."""

    state = String()
    warning = String(nullable=True)


class QuarantineSchema(AnswerSchema):
    """A pod with a resource-status or row that cannot be read, so that no pod is bound on its node."""

    pod = String()
    unreadable = texts()


class KeptOnNodeSchema(AnswerSchema):
    """A reservation on a node: what it holds, and what of it is left."""

    name = String()
    uid = String()
    consumer_uuid = Uuid()
    held = Object(HoldingSchema)
    left = Object(HoldingSchema)


class NodeSchema(AnswerSchema):
    """A node with its tree, its CPUs, its pods and its pools."""

    cluster = String()
    name = String()
    imported_at = String()
    resources = Mapping(fields.NAME, Object(CapacityUsedSchema))
    tree = Object(ProviderTreeSchema)
    cpus = Sequence(Object(CpuSchema))
    ls_pools = Sequence(Object(PoolSchema))
    be_pools = Sequence(Object(PoolSchema))
    reported_ls_pools = Sequence(Object(PoolSchema))
    reported_be_pools = Sequence(Object(PoolSchema))
    kubelet_pods = Sequence(Object(ReportedPodSchema))
    reported_pods = Sequence(Object(ReportedPodSchema))
    remarks = texts()
    takeover = Object(TakeoverSchema)
    pods = Sequence(Object(NodePodSchema))
    quarantine = Sequence(Object(QuarantineSchema))
    reservations = Sequence(Object(KeptOnNodeSchema), metadata=OPTIONAL)


# Answers about pods, also of the scheduler extender.


_ANNOTATIONS = Mapping("", String(), shown_pattern="^.*$")


class ContainerSchema(AnswerSchema):
    """A container of a pod, and its CPUs if it has a node; null if they are not known."""

    name = String()
    lift_cfs_quota = Boolean()
    cpuset = String(nullable=True, metadata=OPTIONAL)


class PodSchema(AnswerSchema):
    """A pod, its place and what it was given."""

    cluster = String()
    namespace = String()
    name = String()
    uid = String()
    consumer_uuid = Uuid()
    node = String(nullable=True)
    resource_provider = NullableUuid()
    phase = String()
    qos_class = String(nullable=True)
    kubernetes_qos_class = String()
    scheduled = Boolean()
    cpuset = String()
    annotations = _ANNOTATIONS
    containers = Sequence(Object(ContainerSchema))
    score = Integer(nullable=True)
    warnings = texts()
    remarks = texts()
    unreadable = texts()
    # In lists of claims only.
    changed_at = String(metadata=OPTIONAL)


class PodOutcomeSchema(AnswerSchema):
    """The outcome for one of many pods, by the name in its manifest: the pod, or what is wrong."""

    status = Integer(200, 599)
    namespace = String(nullable=True)
    name = String(nullable=True)
    pod = Object(PodSchema, metadata=OPTIONAL)
    error = Object(ErrorSchema, metadata=OPTIONAL)


class PodsTakenSchema(AnswerSchema):
    """The outcome for each of many pods, in their order."""

    cluster = String()
    pods = Sequence(Object(PodOutcomeSchema))


class PodsSchema(AnswerSchema):
    """Pods in the order in which they were recorded; `next` is the `marker` of the following page."""

    pods = Sequence(Object(PodSchema))
    next = Integer(nullable=True)


class PossiblePlaceSchema(AnswerSchema):
    """A node on which a pod would fit."""

    name = String()
    resource_provider = Uuid()
    score = Integer()
    cpuset = String()
    annotations = _ANNOTATIONS
    remarks = texts()


class RefusingNodeSchema(AnswerSchema):
    """A node that refuses a pod, and why."""

    node = String()
    reasons = texts()
    status = Choice(list(RefusalClass))


class PreviewSchema(AnswerSchema):
    """A preview of where a pod would go, best first, and why not elsewhere."""

    cluster = String()
    message = String()
    nodes = Sequence(Object(PossiblePlaceSchema))
    fitting = Integer()
    rejected = Sequence(Object(RefusingNodeSchema))
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
