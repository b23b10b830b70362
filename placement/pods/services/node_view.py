"""The view of a node beside its providers: the owner of each CPU, pools, kubelet, quarantine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from placement.engine.numa.cpus import CpuSet, LogicalCpu, SharedPool
from placement.pods.decide.reservation_ends import due_on
from placement.pods.decide.reservations import NodeReservation, reservations_on
from placement.pods.state import host
from placement.pods.state.model import KubeletPod, NodeImport, RecordedPod, Takeover
from placement.pods.state.node_info import NodeInfo, Overdrawn, beyond_offers
from placement.providers.statements.contents import Stored
from placement.providers.statements.providers import TreeMember

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


class NodePod(NamedTuple):
    """A pod with the CPUs of its list that the node has, and the CPUs on which its containers run.

    The latter are None if they are not known.
    """

    pod: RecordedPod
    cpus: CpuSet
    container_cpus: CpuSet | None


class ReportedPod(NamedTuple):
    """A pod that is known by report, and the consumer under which it would hold something."""

    consumer: str
    pod: KubeletPod


@dataclass(frozen=True, slots=True)
class NodeView:
    """The CPUs, pods and pools of a node; `takeover_warning` is set if the policy of kubelet is not known.

    `reported_pods` are known by report only; the node agent names `reported_ls_pools` and
    `reported_be_pools`. `differences` between reports and records are in words. Of `overdrawn` classes
    more is held than the node offers.
    """

    cpus: Sequence[CpuView]
    pods: Sequence[NodePod]
    kubelet_pods: Sequence[ReportedPod]
    ls_pools: Sequence[SharedPool]
    be_pools: Sequence[SharedPool]
    reported_pods: Sequence[ReportedPod]
    reported_ls_pools: Sequence[SharedPool]
    reported_be_pools: Sequence[SharedPool]
    differences: Sequence[str]
    overdrawn: Sequence[Overdrawn]
    takeover: Takeover
    takeover_warning: str | None
    quarantined_by: Sequence[RecordedPod]
    reservations: Sequence[NodeReservation]

    @property
    def remarks(self) -> Sequence[str]:
        """All that is remarkable, in words."""
        return [*self.differences, *map(str, self.overdrawn)]


def view_of(node: NodeInfo) -> NodeView:
    """Return the view of a node. Source: koordinator.md, "Pools", "Taking a host over"."""
    imported = node.template.node_import
    foreign = host.foreign_cpus(node.offers, node.others)
    pools = host.host_pools(imported, host.ledger_of(imported, node.pods), foreign)
    managed = {consumer for consumer, _ in node.kubelet_pods}
    beyond = list(beyond_offers(node.offers, node.holders, {**node.others, **node.beside}))
    return NodeView(
        cpus=tuple(_cpus(node, foreign)),
        pods=[
            NodePod(
                pod, host.known_cpus(imported, pod), host.pod_cpus(imported, node.pods, pod, lambda: pools)
            )
            for pod in node.pods
        ],
        kubelet_pods=[ReportedPod(*entry) for entry in node.kubelet_pods],
        ls_pools=pools.ls_pools,
        be_pools=pools.be_pools,
        reported_pods=[ReportedPod(*entry) for entry in node.reported_pods if entry[0] not in managed],
        reported_ls_pools=imported.ls_pools,
        reported_be_pools=imported.be_pools,
        differences=(
            *host.report_differences(imported, node.pods, pools),
            *(each for each in beyond if not isinstance(each, Overdrawn)),
        ),
        overdrawn=[each for each in beyond if isinstance(each, Overdrawn)],
        takeover=imported.takeover,
        takeover_warning=_BLIND if imported.takeover is Takeover.BLIND else None,
        quarantined_by=[pod for pod in node.pods if pod.unreadable],
        reservations=list(reservations_on(node)),
    )


def _cpus(node: NodeInfo, foreign_cpus: CpuSet) -> Iterator[CpuView]:
    """Yield the logical CPUs of a node, each with its owner."""
    imported, owners = node.template.node_import, node.accounts.cpus
    by_consumer = {pod.consumer: pod for pod in node.pods}
    kubelet = {cpu: entry for entry in node.kubelet_pods for cpu in entry[1].cpus}
    reported = dict(node.reported_pods)
    reserved = {each.consumer: each for each in node.reservations}
    for cpu, row in imported.topology.by_cpu.items():
        consumer = owners[cpu].consumer if cpu in owners else ""
        holders = tuple(pod for pod in node.pods if cpu in pod.holding.cpus)
        first = by_consumer.get(consumer)
        if first is not None and holders:
            sharing = [pod for pod in holders if pod is not first]
            yield CpuView(row, "pod", (first, *sharing), consumer=consumer)
        elif cpu in kubelet:
            kubelet_consumer, pod = kubelet[cpu]
            yield CpuView(row, "kubelet", (), pod, kubelet_consumer)
        elif consumer in reported:
            yield CpuView(row, "reported", (), reported[consumer], consumer)
        elif consumer in reserved and cpu not in imported.withheld_cpus:
            name = reserved[consumer].name
            yield CpuView(row, "reservation", consumer=consumer, reservation=name)
        else:
            yield CpuView(row, _owner_of_no_pod(cpu, imported, foreign_cpus))


def _owner_of_no_pod(cpu: int, node_import: NodeImport, foreign_cpus: CpuSet) -> str:
    """Return the owner of a logical CPU that no pod has."""
    owners = (
        ("system", node_import.system_cpus),
        ("reserved", node_import.withheld_cpus),
        ("kubelet-reserved", node_import.reserved_cpus),
        ("others", foreign_cpus),
    )
    return next((owner for owner, cpus in owners if cpu in cpus), "free")


def without_expired(node: NodeInfo) -> NodeInfo:
    """Return a node as a reader sees it: without its reservations that have expired by now.

    Readers write nothing; the next writer of the cluster releases the reservations.
    """
    expired = frozenset(each.reservation.consumer for each in due_on({node.root_id: node}))
    return node.without(expired) if expired else node


def records_after(
    members: Sequence[TreeMember],
    records: Mapping[int, Mapping[int, Stored]],
    node: NodeInfo,
    current_node: NodeInfo,
) -> Mapping[int, Mapping[int, Stored]]:
    """Return the inventories of a tree, by provider id and class id, less amounts that have expired.

    `current_node` is the node without the reservations that have expired.
    """
    if current_node is node:
        return records
    freed = Counter[host.Place]()
    for shares in node.accounts.shares.values():
        freed.update(shares)
    for shares in current_node.accounts.shares.values():
        freed.subtract(shares)
    paths = {member.id: node.identity.path(member.name) for member in members}
    return {
        id_: {
            class_id: record._replace(
                used=max(0, record.used - freed[host.Place(paths[id_], record.class_name)])
            )
            for class_id, record in of_provider.items()
        }
        for id_, of_provider in records.items()
    }
