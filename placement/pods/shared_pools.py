"""The shared pools of a node, computed from what is recorded there, and the CPUs on which each pod runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from placement.common.pod_identity import canonical_uid
from placement.engine.numa.cpus import CpuSet, SharedPool, format_cpu_list, shared_pools
from placement.engine.numa.host import HostLedger
from placement.pods.model import NodeImport, QosClass, RecordedPod

_CPU_RESOURCES = {"cpu", "kubernetes.io/batch-cpu"}


class HostPools(NamedTuple):
    """A pair of pool lists, where LS pods and where BE pods run, by socket and NUMA node."""

    ls: tuple[SharedPool, ...]
    be: tuple[SharedPool, ...]


def known_cpus(node: NodeImport, pod: RecordedPod) -> CpuSet:
    """Return the CPUs of a pod's list that the node has; a node without cpu-topology may have any CPU."""
    return pod.holding.cpus & node.topology.cpus if node.topology.rows else pod.holding.cpus


def own_cpus(node: NodeImport, pods: Iterable[RecordedPod], pod: RecordedPod) -> CpuSet:
    """Return the CPUs of a pod's list that the node has and that no pod recorded before it holds.

    A pod that is not among `pods` comes last.
    Source: koordinator.md, "Recovery from pods".
    """
    cpus = known_cpus(node, pod)
    for other in pods:
        if other.consumer == pod.consumer:
            break
        cpus -= other.holding.cpus
    return cpus


def pod_cpus(
    node: NodeImport, pods: Iterable[RecordedPod], pod: RecordedPod, pools: Callable[[], HostPools]
) -> CpuSet | None:
    """Return the CPUs on which the containers of a recorded pod run; None if its own are not known.

    `pools` is called only for a pod without CPUs of its own.
    Source: koordinator.md, "CPU lists of containers".
    """
    if pod.unreadable:
        return None
    if pod.holding.cpus:
        return own_cpus(node, pods, pod) or None
    pinned = (entry.cpus for entry in node.kubelet_pods if canonical_uid(entry.uid) == pod.uid)
    own = next(pinned, frozenset[int]())
    if own:
        return own
    qos = QosClass(pod.treated_as or pod.qos)
    if is_pinned_unseen(node, pod):
        return None
    if qos.uses_system_cpus and node.system:
        return node.system
    aligned = [numa for numa, given in pod.holding.amounts.items() if given.keys() & _CPU_RESOURCES]
    stays_in = pod.pools or aligned
    usable = pools().be if qos.is_best_effort else pools().ls
    chosen = (pool.cpus for pool in usable if not stays_in or pool.numa in stays_in)
    return frozenset[int]().union(*chosen)


def is_pinned_unseen(node: NodeImport, pod: RecordedPod) -> bool:
    """Return whether kubelet pinned a pod to CPUs that the node does not report.

    Such a pod has no class by label, and kubelet's static policy treats it as LSR. The node agent leaves its
    containers alone. Source: koordinator.md, "CPU lists of containers".
    """
    if pod.holding.cpus or pod.qos or not node.kubelet.is_static or not QosClass(pod.treated_as).owns_cpus:
        return False
    return not any(canonical_uid(entry.uid) == pod.uid for entry in node.kubelet_pods)


def report_differences(node: NodeImport, pods: Iterable[RecordedPod], computed: HostPools) -> Iterator[str]:
    """Yield where the node agent reports CPUs of pods other than recorded, or pools other than computed.

    Source: koordinator.md, "Reported pods", "Reported pools".
    """
    recorded = {pod.uid: pod for pod in pods}
    for report in node.reported_pods:
        known = recorded.get(canonical_uid(report.uid))
        holder, reported = f"{report.namespace}/{report.name}", format_cpu_list(report.cpus)
        if known is None:
            yield f"CPUs {reported} are reported for pod {holder}, which is not recorded here"
        elif known.holding.cpus != report.cpus:
            held = format_cpu_list(known.holding.cpus) or "none"
            yield f"CPUs {reported} are reported for pod {holder}, recorded are {held}"
    for kind, shown, pools in (("LS", node.ls_pools, computed.ls), ("BE", node.be_pools, computed.be)):
        by_numa = {pool.numa: pool.cpus for pool in pools}
        for pool in shown:
            cpus = by_numa.get(pool.numa, frozenset())
            if cpus != pool.cpus:
                which = f"the {kind} pool of NUMA node {pool.numa}"
                reported, found = format_cpu_list(pool.cpus) or "none", format_cpu_list(cpus) or "none"
                yield f"{which} is reported with CPUs {reported}, computed are {found}"


def host_pools(node: NodeImport, ledger: HostLedger, foreign: CpuSet) -> HostPools:
    """Return the pools of a node. CPUs of LSR pods are shared with BE pods, CPUs of LSE pods with no pod.

    `foreign` are the CPUs of cores that consumers beside pods hold, which are shared with no pod.
    Source: koordinator.md, "Pools".
    """
    pinned: CpuSet = frozenset[int]().union(*(pod.cpus for pod in node.kubelet_pods))
    bound: CpuSet = frozenset[int]().union(*(holding.cpus for holding in ledger.holdings.values()))
    return HostPools(
        ls=shared_pools(node.topology, pinned | foreign | bound, node.withheld),
        be=shared_pools(node.topology, pinned | foreign | ledger.unlendable_cpus(), node.withheld),
    )
