"""The view of a node beside its providers: the owner of each CPU, pools, kubelet, quarantine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from placement.engine.numa.cpus import LogicalCpu, SharedPool
from placement.engine.numa.cpuset import CpuSet
from placement.pods.accounts import beyond_offers
from placement.pods.cache import ClusterCache
from placement.pods.cycle import Kept, kept_on
from placement.pods.host import foreign_cpus, ledger_of
from placement.pods.host_pools import host_pools, known_cpus, pod_cpus, report_differences
from placement.pods.koordinator.host_cpus import KubeletPod
from placement.pods.koordinator.keys import Takeover
from placement.pods.koordinator.node import NodeImport
from placement.pods.koordinator.records import RecordedPod
from placement.pods.node_info import NodeInfo

_BLIND = (
    "kubelet's CPU manager policy is not reported; CPUs that kubelet pins could be handed out a second time"
)


@dataclass(frozen=True, slots=True)
class CpuView:
    """One logical CPU and its owner.

    `owner`: pod, kubelet (a pod that kubelet manages), reported (a pod that is known by report only), system,
    reserved, kubelet-reserved, others (consumers that are no pods hold threads of its core), reservation, or
    free. Only kubelet-reserved, reservation and free ones are in the LS pool. `pods` are its holders, the
    owner first; there are several if they were reported so.
    """

    cpu: LogicalCpu
    owner: str
    pods: tuple[RecordedPod, ...] = ()
    kubelet_pod: KubeletPod | None = None
    consumer: str | None = None
    reservation: str | None = None


@dataclass(frozen=True, slots=True)
class NodeView:
    """The CPUs, pods and pools of a node; `takeover_warning` is set if the policy of kubelet is not known.

    `reported_pods` are known by report only; the node agent names `reported_ls_pools` and
    `reported_be_pools`. Each pod comes with the CPUs of its list that the node has, and the CPUs on which its
    containers run, None if not known. `remarks` say where a report differs from what is recorded or computed.
    """

    cpus: Sequence[CpuView]
    pods: Sequence[tuple[RecordedPod, CpuSet, CpuSet | None]]
    kubelet_pods: Sequence[tuple[str, KubeletPod]]
    ls_pools: Sequence[SharedPool]
    be_pools: Sequence[SharedPool]
    reported_pods: Sequence[tuple[str, KubeletPod]]
    reported_ls_pools: Sequence[SharedPool]
    reported_be_pools: Sequence[SharedPool]
    remarks: Sequence[str]
    takeover: Takeover
    takeover_warning: str | None
    quarantined_by: Sequence[RecordedPod]
    reservations: Sequence[Kept]


def view_of(state: NodeInfo) -> NodeView:
    """Return the view of a node. Source: koordinator.md, "Pools", "Taking a host over"."""
    imported = state.template.imported
    foreign = foreign_cpus(state.offers, state.others)
    pools = host_pools(imported, ledger_of(imported, state.pods), foreign)
    managed = {consumer for consumer, _ in state.kubelet_pods}
    return NodeView(
        cpus=tuple(_cpus(state, foreign)),
        pods=[
            (pod, known_cpus(imported, pod), pod_cpus(imported, state.pods, pod, lambda: pools))
            for pod in state.pods
        ],
        kubelet_pods=state.kubelet_pods,
        ls_pools=pools.ls,
        be_pools=pools.be,
        reported_pods=[entry for entry in state.reported_pods if entry[0] not in managed],
        reported_ls_pools=imported.ls_pools,
        reported_be_pools=imported.be_pools,
        remarks=(
            *report_differences(imported, state.pods, pools),
            *beyond_offers(state.offers, state.holders, state.others),
        ),
        takeover=imported.takeover,
        takeover_warning=_BLIND if imported.takeover is Takeover.BLIND else None,
        quarantined_by=[pod for pod in state.pods if pod.unreadable],
        reservations=list(kept_on(state)),
    )


def _cpus(state: NodeInfo, foreign: CpuSet) -> Iterator[CpuView]:
    imported, owners = state.template.imported, state.accounts.cpus
    by_consumer = {pod.consumer: pod for pod in state.pods}
    kubelet = {cpu: entry for entry in state.kubelet_pods for cpu in entry[1].cpus}
    reported = dict(state.reported_pods)
    reserved = {each.consumer: each for each in state.reservations}
    for cpu, row in imported.topology.by_cpu.items():
        owner = owners.get(cpu)
        holders = tuple(pod for pod in state.pods if cpu in pod.holding.cpus)
        if owner is not None and owner.consumer in by_consumer and holders:
            first = by_consumer[owner.consumer]
            others = tuple(pod for pod in holders if pod is not first)
            yield CpuView(row, "pod", (first, *others), consumer=owner.consumer)
        elif cpu in kubelet:
            consumer, pod = kubelet[cpu]
            yield CpuView(row, "kubelet", (), pod, consumer)
        elif owner is not None and owner.consumer in reported:
            yield CpuView(row, "reported", (), reported[owner.consumer], owner.consumer)
        elif owner is not None and owner.consumer in reserved and cpu not in imported.withheld:
            name = reserved[owner.consumer].name
            yield CpuView(row, "reservation", consumer=owner.consumer, reservation=name)
        else:
            yield CpuView(row, _nobody(imported, foreign, cpu))


def _nobody(imported: NodeImport, foreign: CpuSet, cpu: int) -> str:
    if cpu in imported.system:
        return "system"
    if cpu in imported.withheld:
        return "reserved"
    if cpu in imported.reserved:
        return "kubelet-reserved"
    return "others" if cpu in foreign else "free"


# Nodes that refuse pods whatever is free there, and why.


class ClosedNode(NamedTuple):
    """A node that refuses some pods, or all, for another reason than room; `provider` is its host's uuid."""

    cluster: str
    node: str
    provider: str
    why: str


class ClosedNodes:
    """A search for closed nodes in clusters."""

    def __init__(self, cluster_cache: ClusterCache) -> None:
        self._cluster_cache = cluster_cache

    def of(self, cluster: str) -> list[ClosedNode]:
        """Return the nodes of a cluster that refuse pods, by name. Raises NotFound, Unavailable."""
        view = self._cluster_cache.view(cluster)
        nodes = sorted(view.nodes.values(), key=lambda node: node.name)
        return [
            ClosedNode(cluster, node.name, node.root_uuid, why) for node in nodes for why in _reasons(node)
        ]


def _reasons(node: NodeInfo) -> Iterator[str]:
    if node.attributes.unschedulable:
        yield "it is cordoned (spec.unschedulable)"
    for taint in node.attributes.taints:
        if taint.effect != "PreferNoSchedule":
            yield f"the taint {taint} keeps pods off that do not tolerate it"
    for pod in node.pods:
        if pod.unreadable:
            yield f"no pod is bound there while the resource-status of pod {pod.full_name} cannot be read"
