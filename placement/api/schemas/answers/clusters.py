"""Answers about clusters and their nodes."""

from placement.api.schemas import patterns
from placement.api.schemas.answers.base import OPTIONAL, Answer, Error, texts
from placement.api.schemas.answers.candidates import CapacityUsed
from placement.api.schemas.answers.providers import InventoryRecord
from placement.api.schemas.answers.reservations import Holding
from placement.api.schemas.clusters import ClusterSettings
from placement.api.schemas.fields import Given, Integer, Mapping, Object, Sequence, String, Uuid


class ClusterShown(Answer, ClusterSettings):
    """A cluster with those of its settings that were given."""

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
    """What became of one of many nodes: what its import changed, or what is wrong."""

    name = String()
    status = Integer(200, 599)
    created = texts(metadata=OPTIONAL)
    changed = texts(metadata=OPTIONAL)
    deleted = texts(metadata=OPTIONAL)
    warnings = texts(metadata=OPTIONAL)
    error = Object(Error, metadata=OPTIONAL)


class NodesImported(Answer):
    """What became of each of many nodes, in their order."""

    cluster = String()
    nodes = Sequence(Object(NodeOutcome))


class CapacityRecord(InventoryRecord):
    """An inventory with its capacity and use."""

    capacity = Integer()
    used = Integer()


class ProviderTree(Answer):
    """A provider of a node with those below it."""

    uuid = Uuid()
    name = String()
    generation = Integer()
    traits = texts()
    resources = Mapping(patterns.NAME, Object(CapacityRecord))
    children = Given({"type": "array", "items": {"$ref": "#/components/schemas/ProviderTree"}})


class Cpu(Answer):
    """A logical CPU and whose it is."""

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
    """How far the CPUs of kubelet are known."""

    state = String()
    warning = String(nullable=True)


class Quarantine(Answer):
    """A pod whose row cannot be read."""

    pod = String()
    unreadable = texts()


class KeptOnNode(Answer):
    """What a reservation holds of a node, and what of it is left."""

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
    resources = Mapping(patterns.NAME, Object(CapacityUsed))
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
