"""Koordinator cases about manifests, admission and the node agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from placement.common.manifest import Field, ManifestReport, Profile
from placement.engine.numa.cpus import (
    CpuSet,
    CpuTopology,
    SharedPool,
    format_cpu_list,
    parse_cpu_list,
    shared_pools,
    trimmed,
)
from placement.pods.koordinator.annotations import (
    priority_with_default,
    raw_qos,
)
from placement.pods.koordinator.host_cpus import read_system_cpus
from placement.pods.koordinator.node import import_node
from placement.pods.koordinator.pod import admission_violations, read_holding
from placement.pods.state.host import numa_capacity
from placement.pods.state.model import NO_HOLDING, SchedulerSettings
from tests.cases import koordinator_inputs as read
from tests.cases.koordinator_inputs import Json
from tests.oracles.agent_reservation import agent_reserved_cpus, reserved_count
from tests.oracles.container_cpus import AgentView, container_cpu_list
from tests.oracles.kubelet_state import kubelet_allocs
from tests.oracles.topology_policies import reported_topology_policy

Outcome = Mapping[str, Any]


def cpu_list(given: Json, profile: Profile) -> Outcome:
    """CPU lists, read and written."""
    if given["op"] == "parse":
        return {"cpus": sorted(parse_cpu_list(given["text"] or ""))}
    return {"text": format_cpu_list(given["cpus"] or ())}


def qos(given: Json, profile: Profile) -> Outcome:
    """The QoS class of the label."""
    return {"qos": str(raw_qos(read.pod(given)))}


def priority(given: Json, profile: Profile) -> Outcome:
    """The priority class with default."""
    pod = read.pod(given)
    return {"priority_class": priority_with_default(pod)}


def admission(given: Json, profile: Profile) -> Outcome:
    """Whether a pod is admitted; several violations are written as Kubernetes aggregates errors."""
    old = read.pod(given["old"] or {}) if given["operation"] == "UPDATE" else None
    violations = admission_violations(
        read.pod(given["new"] or {}), profile, old, not given.get("skip_priority_check", False)
    )
    reason = violations[0] if len(violations) == 1 else f"[{', '.join(violations)}]"
    return {"allowed": not violations, "reason": reason if violations else None}


def ingest(given: Json, profile: Profile) -> Outcome:
    """A host from its NodeResourceTopology."""
    nrt = given["nrt"]
    document = {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {"name": nrt["name"], "annotations": nrt["annotations"]},
        "zones": nrt["zones"],
        "topologyPolicies": nrt.get("topologyPolicies"),
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": nrt["name"]}}
    imported = import_node("cases", node, document, profile)
    topology = imported.topology
    return {
        "reserved_cpus": format_cpu_list(imported.unallocatable_cpus),
        "max_ref_count": SchedulerSettings(profile).share_limit,
        "num_cpus": len(topology.logical_cpus),
        "num_cores": len(topology.cores),
        "num_numa_nodes": len(topology.numa_nodes),
        "num_sockets": len(topology.sockets),
        "numa_resources": numa_capacity(imported),
    }


def kubelet_topology_policy(given: Json, profile: Profile) -> Outcome:
    """What the agent writes for kubelet's topology manager."""
    return {"topology_policy": reported_topology_policy(given["policy"] or "", given["scope"] or "")}


def node_reservation(given: Json, profile: Profile) -> Outcome:
    """What a reservation annotation asks for."""
    annotation = _annotation(given["annotation"])
    reserved_cpus = annotation.member("reservedCPUs").text() or ""
    return {"reserved_cpus": reserved_cpus, "reserved_count": reserved_count(annotation)}


def agent_node_reservation(given: Json, profile: Profile) -> Outcome:
    """The CPUs an agent publishes as reserved."""
    topology = read.topology(given["topology"])
    reserved = agent_reserved_cpus(_annotation(given["annotation"]), topology)
    return {"reserved_cpus": format_cpu_list(reserved)}


def _annotation(text: str | None) -> Field:
    return Field("reservation", text, ManifestReport()).softly().json()


def _system_cpus(given: Json | None, topology: CpuTopology) -> CpuSet:
    return read_system_cpus(Field("system-qos-resource", given, ManifestReport()).softly(), topology)


def shared_pool(given: Json, profile: Profile) -> Outcome:
    """The LS pools, and the pods whose CPUs kubelet manages."""
    topology, pods = read.topology(given["topology"]), [read.pod(pod) for pod in given["pods"] or ()]
    state = given.get("kubelet_state")
    allocs = kubelet_allocs(state, pods) if state is not None else ()
    read_pods = [read.pod({**pod, "node": "host"}) for pod in given["pods"] or ()]
    bound = [read_holding(pod, SchedulerSettings(profile))[0].cpus for pod in read_pods]
    exclusive = frozenset[int]().union(*(pod.cpus for pod in allocs), *bound)
    reserved = parse_cpu_list(given.get("reserved_cpus") or "")
    withheld = reserved | _system_cpus(given.get("system_qos"), topology)
    return {
        "ls_pools": _shown(shared_pools(topology, exclusive, withheld)),
        "pod_cpu_allocs": _allocs(given, pods),
    }


def _allocs(given: Json, pods: Iterable[Any]) -> list[dict[str, Any]]:
    state = given.get("kubelet_state")
    return [
        {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "cpuset": format_cpu_list(pod.cpus),
            "managedByKubelet": True,
        }
        for pod in (kubelet_allocs(state, pods) if state is not None else ())
    ]


def kubelet_state(given: Json, profile: Profile) -> Outcome:
    """The pods whose CPUs kubelet manages."""
    pods = [read.pod(pod) for pod in given["pods"] or ()]
    return {"allocs": _allocs({"kubelet_state": given["kubelet_state"] or ""}, pods)}


def pool_trim(given: Json, profile: Profile) -> Outcome:
    """Pools without exclusive SYSTEM CPUs."""
    pools = _pools(given["pools"])
    everything = CpuTopology(
        tuple(
            read.LogicalCpu(cpu, cpu, 0, 0) for cpu in frozenset[int]().union(*(pool.cpus for pool in pools))
        )
    )
    return {"pools": _shown(trimmed(pools, _system_cpus(given["system_qos"], everything)))}


def _pools(given: Iterable[Json] | None) -> list[SharedPool]:
    return [
        SharedPool(pool["socket"], pool["node"], parse_cpu_list(pool["cpuset"] or "")) for pool in given or ()
    ]


def _shown(pools: Iterable[SharedPool]) -> list[dict[str, Any]]:
    return [
        {"socket": pool.socket, "node": pool.numa, "cpuset": format_cpu_list(pool.cpus)} for pool in pools
    ]


def container_cpuset(given: Json, profile: Profile) -> Outcome:
    """The CPU list the agent gives to containers."""
    view = AgentView(
        ls_pools=_pools(given["ls_pools"]),
        be_pools=_pools(given["be_pools"]),
        kubelet_is_static=given["kubelet_policy"] == "static",
        system_cpus=given["system_qos_cpuset"] or "",
        manages_best_effort=bool(given["be_cpu_manager"]),
    )
    pod = read.pod({**(given["pod"] or {}), "k8s_qos": given["k8s_qos"] or ""})
    return {"cpuset": container_cpu_list(pod, view)}


def pod_event(given: Json, profile: Profile) -> Outcome:
    """What is recorded of a pod."""
    holding, _ = read_holding(read.pod(given["pod"] or {}), SchedulerSettings(profile))
    known = read.topology(given["topology"]).cpus
    return {"recorded": holding != NO_HOLDING, "cpuset": format_cpu_list(holding.cpus & known)}


KINDS = {
    "cpulist": cpu_list,
    "qos": qos,
    "priority": priority,
    "admission": admission,
    "ingest": ingest,
    "kubelet-topology-policy": kubelet_topology_policy,
    "node-reservation": node_reservation,
    "agent-node-reservation": agent_node_reservation,
    "shared-pool": shared_pool,
    "pool-trim": pool_trim,
    "kubelet-allocs": kubelet_state,
    "container-cpuset": container_cpuset,
    "pod-event": pod_event,
}
