"""Small clusters of all sorts of nodes with pods on them, and pods that look for a place there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count

from hypothesis import strategies as st

from placement.engine.numa.host import HostTotals
from placement.engine.scoring.order import Order, Strategy
from placement.engine.scoring.parameters import LARGE_SCALE, Shape, Weighted
from placement.pods.decide.reading import import_pod
from placement.pods.decide.rules.rule import PodShape
from placement.pods.koordinator.node import import_node
from placement.pods.manifests.affinity import NO_AFFINITY, Bearer
from placement.pods.manifests.ports import UsedPorts, used_ports
from placement.pods.manifests.selection import NodeAttributes, read_attributes
from placement.pods.state.host import (
    HOST,
    Host,
    NodeOffers,
    Place,
    host_of,
    occupied_host,
    offers_of,
    without_taken,
)
from placement.pods.state.model import NodeImport, RecordedPod, SchedulerSettings
from placement.pods.state.node_info import Accountant, host_units
from tests.kubernetes import BIND, NUMA_POLICY, RATIO, ROWS
from tests.unit.pods.koordinator import pods
from tests.unit.pods.koordinator.conftest import build_node, build_nrt, build_zone

GIB = 2**30
_serials = count()


@dataclass(frozen=True, eq=False)
class TestNode:
    """A node of a cluster that no database knows."""

    __test__ = False

    name: str
    node_import: NodeImport
    attributes: NodeAttributes
    offers: NodeOffers
    host: Host
    totals: HostTotals
    pods: tuple[RecordedPod, ...]
    others: Mapping[Place, int]
    times_made: int = 1
    reservations: tuple[RecordedPod, ...] = ()
    serial: int = field(default_factory=_serials.__next__, init=False)

    @property
    def holders(self) -> tuple[RecordedPod, ...]:
        return self.pods

    @property
    def reservations_left(self) -> tuple[RecordedPod, ...]:
        return self.reservations

    @property
    def bearers(self) -> Mapping[Bearer, int]:
        return Counter((pod.namespace, pod.labels) for pod in self.pods)

    @property
    def staying_bearers(self) -> Mapping[Bearer, int]:
        return self.bearers

    @property
    def used_ports(self) -> UsedPorts:
        return used_ports(each.host_ports for each in (*self.pods, *self.reservations))

    @property
    def with_affinity(self) -> tuple[RecordedPod, ...]:
        return tuple(pod for pod in self.pods if pod.affinity is not NO_AFFINITY)

    @property
    def root_id(self) -> int:
        return int.from_bytes(self.name.encode()) * 1000 + self.times_made

    @property
    def root_uuid(self) -> str:
        return f"root_uuid-of-{self.name}"

    @property
    def provider_name(self) -> str:
        return f"c1/{self.name}"

    @cached_property
    def template(self) -> object:
        """Nothing that another node has: each is counted by itself."""
        return object()

    @property
    def unused(self) -> Mapping[str, int]:
        return self.free

    @cached_property
    def free(self) -> Mapping[str, int]:
        taken = Counter(self.others)
        for pod in self.pods:
            taken.update(host_units(self.offers, pod))
        capacities = self.offers.capacities.items()
        return {
            place.resource_class: max(0, units - taken[place])
            for place, units in capacities
            if place.path == HOST
        }

    def left(self, place: Place) -> int:
        accountant = Accountant(self.offers, Counter(self.others))
        for pod in self.pods:
            accountant.record(pod)
        return accountant.left(place)


ZONES = st.sampled_from(
    [
        None,
        [build_zone(0, cpu="8", memory="4Gi"), build_zone(1, cpu="6", memory="16Gi")],
        [build_zone(0, cpu="8", memory="8Gi"), build_zone(1, cpu="8")],
        [build_zone(0, cpu="16", memory="8Gi")],
        [build_zone(0, cpu="8", **{"example.com/nic": "2"}), build_zone(1, cpu="8", memory="1Gi")],
        [build_zone(n, cpu="4", memory="4Gi") for n in range(4)],
        [],
    ]
)
TOPOLOGIES = st.sampled_from(
    [
        ROWS,
        (),
        tuple((cpu, cpu, cpu // 8, 0) for cpu in range(16)),
        tuple((cpu, cpu // 2, cpu // 4, cpu // 8) for cpu in range(16)),
    ]
)
HOLDINGS = st.lists(
    st.builds(
        lambda first, count, milli, memory, level: pods.held(
            f"{first}-{min(15, first + count)}" if count else "",
            level,
            numa0={"cpu": milli, "memory": memory * GIB},
            numa1={"cpu": 1000 * count},
        ),
        st.integers(0, 15),
        st.integers(0, 5),
        st.integers(0, 4000),
        st.integers(0, 6),
        st.sampled_from(["None", "PCPULevel", "NUMANodeLevel"]),
    ),
    max_size=3,
)
NODE_POLICIES = st.sampled_from([None, None, "SingleNUMANode", "SingleNUMANode", "Restricted", "BestEffort"])
POLICIES = st.sampled_from([None, None, None, "SingleNUMANode", "SingleNUMANode", "Restricted", "BestEffort"])
LABELS = st.fixed_dictionaries(
    {}, optional={"zone": st.sampled_from(["a", "b"]), "rank": st.sampled_from(["1", "7", "x"])}
)
_EFFECTS = st.sampled_from(["NoSchedule", "PreferNoSchedule"])
_TAINT = {"key": st.sampled_from(["gpu", "old"]), "effect": _EFFECTS}
TAINTS = st.lists(st.fixed_dictionaries(_TAINT, optional={"value": st.sampled_from(["", "yes"])}), max_size=1)
RARELY = st.sampled_from([False] * 5 + [True])
CPU, MEMORY_TOO = Weighted("cpu", 1), Weighted("memory", 1)
OTHERS = (Weighted("cpu", 2), Weighted("example.com/nic", 1), Weighted("ephemeral-storage", 1))
BY_WEIGHT = st.sampled_from([(CPU, MEMORY_TOO), (Weighted("cpu", 3), MEMORY_TOO), (MEMORY_TOO,), OTHERS])
SHAPES = st.sampled_from([((0, 0), (100, 100)), ((0, 100), (40, 0), (100, 60))]).map(
    lambda points: Shape(points, LARGE_SCALE)
)
STRATEGIES = st.one_of(
    st.builds(Strategy, st.sampled_from(["LeastAllocated", "MostAllocated"]), BY_WEIGHT),
    st.builds(Strategy, st.just("RequestedToCapacityRatio"), BY_WEIGHT, SHAPES),
    st.just(Strategy("BalancedAllocation", (CPU, MEMORY_TOO))),
)
WEIGHED = st.builds(replace, STRATEGIES, weight=st.sampled_from([1, 2, 400]))
SCORINGS = st.builds(Order, st.lists(WEIGHED, min_size=1, max_size=3).map(tuple))
MEMORY = st.sampled_from(["1Gi", "2Gi", "7Gi"])
NEED = st.sampled_from([1, 2, 2, 4, 4, 6, 8, 10])


@st.composite
def settings_of_clusters(draw):
    profile = draw(st.sampled_from([pods.DESIGN, pods.KOORD]))
    return replace(profile, host_scoring=draw(SCORINGS), share_limit=draw(st.sampled_from([1, 1, 2])))


@st.composite
def nodes(draw, name: str, settings: SchedulerSettings):
    """A node of that name."""
    policy = draw(NODE_POLICIES)
    labels = draw(LABELS) | ({NUMA_POLICY: policy} if policy else {})
    bind = draw(st.sampled_from([None, None, None, "FullPCPUsOnly", "SpreadByPCPUs"]))
    labels |= {BIND: bind} if bind else {}
    strategy = draw(st.sampled_from([None, None, "MostAllocated", "LeastAllocated", "DistributeEvenly"]))
    labels |= {pods.STRATEGY: strategy} if strategy else {}
    allocatable = {
        "cpu": "16",
        "memory": draw(st.sampled_from(["8Gi", "32Gi", "32Gi", "32Gi"])),
        "pods": draw(st.sampled_from(["2", "110", "110", "110"])),
    }
    allocatable |= draw(st.sampled_from([{}, {"example.com/gpu": "1"}, {"ephemeral-storage": "100Gi"}]))
    allocatable |= draw(st.sampled_from([{}] * 5 + [{"ephemeral-storage": "2000000000Gi"}]))
    ratio = draw(st.sampled_from([1.0, 1.0, 1.5]))
    rows = draw(TOPOLOGIES) if draw(RARELY) else ROWS
    zones = draw(ZONES) if draw(RARELY) else None
    spec = {"taints": draw(TAINTS) if draw(RARELY) else [], "unschedulable": draw(RARELY)}
    recorded = tuple(
        recorded_pod(number, holding, draw(st.integers(1, 6000)))
        for number, holding in enumerate(draw(HOLDINGS))
    )
    node = built_node(
        name,
        settings,
        labels=labels,
        annotations={RATIO: {"cpu": ratio}},
        allocatable=allocatable,
        spec=spec,
        rows=rows,
        zones=zones,
        recorded=recorded,
    )
    others = {place: 1 for place in node.offers.inventories if draw(st.integers(0, 9)) == 0}
    host = occupied(node.node_import, node.offers, recorded, others, settings)
    return replace(node, others=others, host=host)


def built_node(
    name, settings=pods.DESIGN, *, allocatable=None, spec=None, rows=ROWS, zones=None, recorded=(), **given
):
    """A node on which nobody but these pods is; without anything said it has 16 CPUs and 32 GiB."""
    room = allocatable or {"cpu": "16", "memory": "32Gi", "pods": "110"}
    manifest = build_node(allocatable=room, name=name, **given)
    manifest["spec"] = spec or {}
    if zones is None:
        zones = [build_zone(numa, cpu="8", memory="16Gi") for numa in sorted({row[2] for row in rows})]
    topology = build_nrt(rows=rows, zones=zones)
    topology["metadata"]["name"] = name
    imported = import_node("c1", manifest, topology, settings.profile)
    offers = offers_of(imported, f"c1/{name}")
    host = occupied(imported, offers, recorded, {}, settings)
    totals = pods.host_totals(imported, [pod.requests for pod in recorded])
    return TestNode(name, imported, read_attributes(manifest), offers, host, totals, recorded, {})


def occupied(imported, offers, recorded, others, settings):
    bare = without_taken(host_of(imported, settings), {})
    return occupied_host(bare, imported, offers, recorded, others)


def recorded_pod(number, holding, milli):
    requests = {"cpu": max(milli, 1000 * len(holding.cpus)), "memory": GIB}
    return RecordedPod("default", f"p{number}", f"u{number}", f"consumer-{number}", "LSR", requests, holding)


_SPREAD, _ALONE = {"preferredCPUBindPolicy": "SpreadByPCPUs"}, {"preferredCPUExclusivePolicy": "PCPULevel"}
_REQUIRED = [{"requiredCPUBindPolicy": policy} for policy in ("FullPCPUs", "SpreadByPCPUs")]
_ON_A_NODE = {"preferredCPUExclusivePolicy": "NUMANodeLevel"}
SPECS = [None, *_REQUIRED, _SPREAD, {**_SPREAD, **_ALONE}, _ALONE, _ON_A_NODE]


@st.composite
def shapes(draw, settings: SchedulerSettings):
    """A pod that looks for a place."""
    numa = {
        "numaTopologyPolicy": draw(POLICIES),
        "singleNUMANodeExclusive": draw(st.sampled_from([None, None, "Preferred", "Required"])),
    }
    spec = draw(st.sampled_from(SPECS))
    asked = {"cpu": str(draw(NEED)), "memory": draw(MEMORY)}
    asked |= draw(st.sampled_from([{}] * 9 + [{"example.com/gpu": "1"}, {"example.com/nic": "2"}]))
    asked |= draw(st.sampled_from([{}] * 6 + [{"ephemeral-storage": "1Gi"}]))
    build = draw(st.sampled_from([pods.lsr, pods.build_pod]))
    document = build(
        pods.container(**asked),
        numa={key: text for key, text in numa.items() if text},
        spec=spec,
        nodeSelector={"zone": "a"} if draw(RARELY) else {},
        affinity=draw(AFFINITIES) if draw(RARELY) else {},
        tolerations=draw(st.sampled_from([[], [{"operator": "Exists"}], [{"key": "gpu", "value": "yes"}]])),
    )
    return shape_of(document, settings)


def shape_of(document, settings=pods.DESIGN):
    """What a pod asks for in a cluster."""
    incoming = import_pod(document, settings)
    return PodShape(incoming.request, incoming.selection, settings)


def _required(*terms):
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"nodeAffinity": affinity}


def _expression(key, operator, *values):
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


_EXPRESSIONS = st.sampled_from(
    [
        *(_expression("zone", *rest) for rest in (("In", "b", "c"), ("NotIn", "a"), ("Exists",))),
        *(_expression("rank", *rest) for rest in (("DoesNotExist",), ("Gt", "3"), ("Lt", "3"))),
    ]
)
_TERM = st.fixed_dictionaries({"matchExpressions": st.lists(_EXPRESSIONS, max_size=2)})
AFFINITIES = st.one_of(
    st.lists(_TERM, min_size=1, max_size=2).map(lambda terms: _required(*terms)),
    st.just(_required({"matchFields": [_expression("metadata.name", "NotIn", "node-1")]})),
)


@st.composite
def clusters(draw, most: int = 6):
    """The settings of a cluster, its nodes, and a pod."""
    settings = draw(settings_of_clusters())
    found = [draw(nodes(f"node-{number}", settings)) for number in range(draw(st.integers(1, most)))]
    return settings, found, draw(shapes(settings))
