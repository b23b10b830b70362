"""Which CPUs the node agent lets a container run on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placement.common.manifest import ManifestReport
from placement.engine.numa.cpus import SharedPool, format_cpu_list
from placement.pods.koordinator import annotations as keys
from placement.pods.koordinator.annotations import kubernetes_qos, raw_qos, read_resource_status
from placement.pods.manifests.pod import Pod
from placement.pods.state.model import KubernetesQos, QosClass

_CPU_RESOURCES = ("cpu", "kubernetes.io/batch-cpu")


@dataclass(frozen=True, slots=True)
class AgentView:
    """What the node agent knows of its host; `manages_best_effort`: its manager of BE CPUs is on."""

    ls_pools: Sequence[SharedPool]
    be_pools: Sequence[SharedPool] = ()
    kubelet_is_static: bool = False
    system_cpus: str = ""
    manages_best_effort: bool = False


def container_cpu_list(pod: Pod, view: AgentView) -> str | None:
    """The CPU list of every container of a pod: empty to reset it, None to leave it alone.

    Pools are joined as they are, NUMA node by NUMA node. Raises ManifestError for an unreadable
    resource-status. Source: koordinator.md, "Pools".
    """
    findings = ManifestReport()
    status = read_resource_status(pod.manifest.annotation(keys.RESOURCE_STATUS).reported_to(findings))
    findings.raise_findings()
    if status.cpus:
        return format_cpu_list(status.cpus)
    qos = raw_qos(pod)
    aligned = [numa for numa, amounts in status.amounts.items() if any(map(amounts.get, _CPU_RESOURCES))]
    if aligned:
        best_effort = qos.is_best_effort and view.manages_best_effort
        pools = view.be_pools if best_effort else view.ls_pools
        return _joined([pool for pool in pools if pool.numa in aligned])
    return _pool_of(pod, qos, view)


def _pool_of(pod: Pod, qos: QosClass, view: AgentView) -> str | None:
    if qos is QosClass.SYSTEM and view.system_cpus:
        return view.system_cpus
    if qos.uses_ls_pools:
        return _joined(view.ls_pools)
    if kubernetes_qos(pod) is KubernetesQos.BEST_EFFORT:
        return ""
    return None if view.kubelet_is_static else _joined(view.ls_pools)


def _joined(pools: Sequence[SharedPool]) -> str:
    return ",".join(format_cpu_list(pool.cpus) for pool in pools if pool.cpus)
