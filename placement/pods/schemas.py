"""Schemas of clusters, nodes and pods for callers; `placement.pods.koordinator` checks what it reads."""

from __future__ import annotations

from typing import Any

from placement.allocations.candidate_schemas import CapacityUsed, ExplanationShown
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
from placement.http.schemas import OPTIONAL, Answer, Error, VersionedSchema, texts
from placement.pods.koordinator.qos import QosClass
from placement.providers.schemas import InventoryRecord

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


class ClusterSettings(VersionedSchema):
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


class NumaAmounts(Answer):
    """Amounts on a NUMA node, as annotations of Koordinator have them."""

    node = Integer()
    resources = _QUANTITIES


class Holding(Answer):
    """A holding: CPUs, amounts on NUMA nodes, and amounts of the host as a whole."""

    cpuset = String()
    numaNodeResources = Sequence(Object(NumaAmounts))
    resources = _QUANTITIES


class PodReference(Answer):
    """A pod that uses a reservation."""

    namespace = String()
    name = String()
    uid = String()


class Reservation(Answer):
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
    held = Object(Holding)
    left = Object(Holding, nullable=True)
    current_owners = Sequence(Object(PodReference))
    score = Integer(nullable=True)
    warnings = texts()
    remarks = texts()
    unreadable = texts()


class Reservations(Answer):
    """Reservations in the order in which they were made; `next` is the `marker` of the following page."""

    reservations = Sequence(Object(Reservation))
    next = Integer(nullable=True)


# Answers about clusters and their nodes.


class ClusterShown(Answer, ClusterSettings):
    """A cluster with the settings that were given."""

    name = String()
    uuid = Uuid()
    aggregate = Uuid()
    nodes = Integer()
    remarks = texts(metadata=OPTIONAL)

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        for name in ClusterSettings().fields:
            self.fields[name].required = False


class Clusters(Answer):
    """The clusters that the caller may see."""

    clusters = Sequence(Object(ClusterShown))


class NodeReference(Answer):
    """A node and the root of its tree."""

    name = String()
    resource_provider = Uuid()


class Nodes(Answer):
    """The nodes of a cluster."""

    nodes = Sequence(Object(NodeReference))


class NodeImported(Answer):
    """The names of the providers that an import created, changed and deleted."""

    cluster = String()
    name = String()
    created = texts()
    changed = texts()
    deleted = texts()
    warnings = texts()


class NodeOutcome(Answer):
    """The outcome for one of many nodes: what its import changed, or what is wrong."""

    name = String()
    status = Integer(200, 599)
    created = texts(metadata=OPTIONAL)
    changed = texts(metadata=OPTIONAL)
    deleted = texts(metadata=OPTIONAL)
    warnings = texts(metadata=OPTIONAL)
    error = Object(Error, metadata=OPTIONAL)


class NodesImported(Answer):
    """The outcome for each of many nodes, in their order."""

    cluster = String()
    nodes = Sequence(Object(NodeOutcome))


class CapacityRecord(InventoryRecord):
    """An inventory with its capacity and use."""

    capacity = Integer()
    used = Integer()


class ProviderTree(Answer):
    """A provider of a node with the providers below it."""

    uuid = Uuid()
    name = String()
    generation = Integer()
    traits = texts()
    resources = Mapping(fields.NAME, Object(CapacityRecord))
    children = Given({"type": "array", "items": {"$ref": "#/components/schemas/ProviderTree"}})


class Cpu(Answer):
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


class Pool(Answer):
    """CPUs that are shared on a NUMA node."""

    socket = Integer()
    node = Integer()
    cpuset = String()


class ReportedPod(Answer):
    """A pod that is known by report."""

    namespace = String()
    name = String()
    uid = String()
    consumer_uuid = Uuid()
    cpuset = String()


class NodePod(ReportedPod):
    """A pod that is recorded."""

    qos_class = String(nullable=True)
    container_cpus = String(nullable=True)


class Takeover(Answer):
    """The state of taking CPUs over from kubelet, and a warning about it."""

    state = String()
    warning = String(nullable=True)


class Quarantine(Answer):
    """A pod with a resource-status or row that cannot be read, so that no pod is bound on its node."""

    pod = String()
    unreadable = texts()


class KeptOnNode(Answer):
    """A reservation on a node: what it holds, and what of it is left."""

    name = String()
    uid = String()
    consumer_uuid = Uuid()
    held = Object(Holding)
    left = Object(Holding)


class Node(Answer):
    """A node with its tree, its CPUs, its pods and its pools."""

    cluster = String()
    name = String()
    imported_at = String()
    resources = Mapping(fields.NAME, Object(CapacityUsed))
    tree = Object(ProviderTree)
    cpus = Sequence(Object(Cpu))
    ls_pools = Sequence(Object(Pool))
    be_pools = Sequence(Object(Pool))
    reported_ls_pools = Sequence(Object(Pool))
    reported_be_pools = Sequence(Object(Pool))
    kubelet_pods = Sequence(Object(ReportedPod))
    reported_pods = Sequence(Object(ReportedPod))
    remarks = texts()
    takeover = Object(Takeover)
    pods = Sequence(Object(NodePod))
    quarantine = Sequence(Object(Quarantine))
    reservations = Sequence(Object(KeptOnNode), metadata=OPTIONAL)


# Answers about pods, also of the scheduler extender.


_ANNOTATIONS = Mapping("", String(), shown_pattern="^.*$")


class Container(Answer):
    """A container of a pod, and its CPUs if it has a node; null if they are not known."""

    name = String()
    lift_cfs_quota = Boolean()
    cpuset = String(nullable=True, metadata=OPTIONAL)


class Pod(Answer):
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
    containers = Sequence(Object(Container))
    score = Integer(nullable=True)
    warnings = texts()
    remarks = texts()
    unreadable = texts()
    # In lists of claims only.
    changed_at = String(metadata=OPTIONAL)


class PodOutcome(Answer):
    """The outcome for one of many pods, by the name in its manifest: the pod, or what is wrong."""

    status = Integer(200, 599)
    namespace = String(nullable=True)
    name = String(nullable=True)
    pod = Object(Pod, metadata=OPTIONAL)
    error = Object(Error, metadata=OPTIONAL)


class PodsTaken(Answer):
    """The outcome for each of many pods, in their order."""

    cluster = String()
    pods = Sequence(Object(PodOutcome))


class Pods(Answer):
    """Pods in the order in which they were recorded; `next` is the `marker` of the following page."""

    pods = Sequence(Object(Pod))
    next = Integer(nullable=True)


class PossiblePlace(Answer):
    """A node on which a pod would fit."""

    name = String()
    resource_provider = Uuid()
    score = Integer()
    cpuset = String()
    annotations = _ANNOTATIONS
    remarks = texts()


class RefusingNode(Answer):
    """A node that refuses a pod, and why."""

    node = String()
    reasons = texts()
    status = Choice(list(RefusalClass))


class Preview(Answer):
    """A preview of where a pod would go, best first, and why not elsewhere."""

    cluster = String()
    message = String()
    nodes = Sequence(Object(PossiblePlace))
    fitting = Integer()
    rejected = Sequence(Object(RefusingNode))
    explanation = Object(ExplanationShown)
    warnings = texts()


class MeantQuery(Answer):
    """A query, and what it stands for."""

    meaning = String()
    query = String()


class PodTranslation(Answer):
    """A pod as queries, best first, and what they leave out."""

    queries = Sequence(Object(MeantQuery))
    not_expressed = texts()
    warnings = texts()


class PodError(Error):
    """An error; for a pod that no node can take, with the reasons of the nodes."""

    nodes = Sequence(Object(RefusingNode), metadata=OPTIONAL)
    nodes_omitted = Integer(metadata=OPTIONAL)
    explanation = Object(ExplanationShown, metadata=OPTIONAL)
