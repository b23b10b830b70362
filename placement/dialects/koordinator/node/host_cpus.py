"""The CPUs of a host, and which of them no pod may be given."""

from __future__ import annotations

from dataclasses import dataclass

from placement.dialects.koordinator import keys
from placement.dialects.koordinator.node.cpu_topology import read_cpu_topology, read_known_cpus
from placement.dialects.koordinator.node.kubelet import (
    KubeletPolicy,
    Takeover,
    read_kubelet_policy,
    takeover_state,
)
from placement.dialects.koordinator.node.kubelet_pods import KubeletPod, read_kubelet_pods
from placement.dialects.koordinator.node.reservation import read_system_cpus
from placement.dialects.koordinator.profile import Profile
from placement.kubernetes.field import Field
from placement.kubernetes.manifest import Manifest
from placement.numa.cpus import CpuTopology
from placement.numa.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class HostCpus:
    """The CPUs of a host: where they sit, what kubelet does with them, which cannot be allocated.

    `withheld` are those of the unallocatable ones that unbound pods cannot run on either, though no pod
    holds them: the node reservation and an exclusive SYSTEM list. Kubelet's reserved CPUs stay in the pools.
    `reserved` are the unallocatable ones without those of pods that kubelet manages; `system` has those of
    the exclusive SYSTEM list.
    """

    topology: CpuTopology
    kubelet: KubeletPolicy
    kubelet_pods: tuple[KubeletPod, ...]
    unallocatable: CpuSet
    withheld: CpuSet
    reserved: CpuSet
    system: CpuSet

    @property
    def takeover(self) -> Takeover:
        """How far the host is taken over from kubelet."""
        return takeover_state(self.kubelet, bool(self.kubelet_pods))


def read_host_cpus(node: Manifest, nrt: Manifest, profile: Profile) -> HostCpus:
    """The CPUs of a host, from its manifests.

    Unallocatable are the CPUs of kubelet-managed pods, kubelet's reserved list, the node reservation's list
    and an exclusive SYSTEM list. Each of them fails soft, with a warning.
    Source: koordinator.md, "Unallocatable CPUs".
    """
    topology = read_cpu_topology(nrt.annotation(keys.CPU_TOPOLOGY))
    manager = nrt.annotation(keys.CPU_MANAGER_POLICY).softly().json()
    allocs = nrt.annotation(keys.POD_CPU_ALLOCS).softly()
    pods = read_kubelet_pods(allocs.json(), topology, profile)
    kubelet_reserved = read_known_cpus(manager.member("reservedCPUs"), topology)
    system = read_system_cpus(_reported(nrt, node, keys.SYSTEM_QOS_RESOURCE), topology)
    reservation = _reported(nrt, node, keys.RESERVATION).member("reservedCPUs")
    withheld = read_known_cpus(reservation, topology) | system
    cpus = HostCpus(
        topology,
        read_kubelet_policy(manager),
        pods,
        unallocatable=withheld.union(kubelet_reserved, *(pod.cpus for pod in pods)),
        withheld=withheld,
        reserved=withheld | kubelet_reserved,
        system=system,
    )
    _warn_of_gaps(cpus, nrt, manager, allocs)
    return cpus


def _reported(nrt: Manifest, node: Manifest, key: str) -> Field:
    """The node agent's version of an annotation; the operator's own on the node as long as there is none."""
    annotation = nrt.annotation(key)
    return (node.annotation(key) if annotation.value is None else annotation).softly().json()


def _warn_of_gaps(cpus: HostCpus, nrt: Manifest, manager: Field, allocs: Field) -> None:
    if not cpus.topology.rows:
        nrt.annotation(keys.CPU_TOPOLOGY).warn("no CPUs are reported; the host cannot take bound pods")
    if len({len(threads) for threads in cpus.topology.cores.values()}) > 1:
        threads = cpus.topology.threads_per_core
        nrt.annotation(keys.CPU_TOPOLOGY).warn(
            f"cores differ in their threads; a whole core counts {threads}"
        )
    if cpus.takeover is Takeover.BLIND:
        manager.member("policy").warn(
            "not reported; CPUs that kubelet pins could be handed out a second time"
        )
    if cpus.kubelet.is_static and allocs.value is None:
        allocs.warn("is missing though kubelet is static; CPUs it pinned could be handed out a second time")
