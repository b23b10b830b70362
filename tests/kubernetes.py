"""Pods and nodes for tests over HTTP, built from the few things a test is about."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.client import Client

CLUSTER = "/ext/v1/clusters/edge"
QOS = "koordinator.sh/qosClass"
SPEC = "scheduling.koordinator.sh/resource-spec"
STATUS = "scheduling.koordinator.sh/resource-status"
NUMA_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
KUBELET = "kubelet.koordinator.sh/cpu-manager-policy"
RATIO = "node.koordinator.sh/resource-amplification-ratio"
RESERVATION = "node.koordinator.sh/reservation"
BIND = "node.koordinator.sh/cpu-bind-policy"
NUMA_POLICY = "node.koordinator.sh/numa-topology-policy"

# What a topology reports where kubelet pins the CPUs of one pod, and others are reserved.
PINNED = {"namespace": "kube", "name": "k", "uid": "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d11", "cpuset": "2-3"}
MIXED = {
    KUBELET: {"policy": "static", "reservedCPUs": "0"},
    ALLOCS: [{**PINNED, "managedByKubelet": True}],
    RESERVATION: {"reservedCPUs": "4"},
    "node.koordinator.sh/system-qos-resource": {"cpuset": "5"},
}

# Two sockets with one NUMA node each, four cores per node, adjacent siblings: (cpu, core, numa, socket).
ROWS = tuple((cpu, cpu // 2, cpu // 8, cpu // 8) for cpu in range(16))


def node_manifests(
    name: str,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, Any] | None = None,
    nrt: dict[str, Any] | None = None,
    rows: tuple[tuple[int, int, int, int], ...] = ROWS,
    zones: dict[int, dict[str, str]] | None = None,
    spec: dict[str, Any] | None = None,
    policies: list[str] | None = None,
    architecture: str = "amd64",
    **allocatable: Any,
) -> dict[str, Any]:
    """A Node and its NodeResourceTopology, as the body of a PUT; 16 CPUs unless `rows` says otherwise."""
    numa_nodes = sorted({row[2] for row in rows})
    if zones is None:
        share = str(len(rows) // max(1, len(numa_nodes)))
        zones = {numa: {"cpu": share, "memory": "16Gi"} for numa in numa_nodes}
    detail = [{"id": cpu, "core": core, "socket": socket, "node": numa} for cpu, core, numa, socket in rows]
    given = {"cpu": str(len(rows)), "memory": "32Gi", "pods": "110", **allocatable}
    return {
        "node": {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
                "annotations": _texts(annotations or {}),
            },
            "spec": spec or {},
            "status": {
                "allocatable": {key.replace("__", "/"): text for key, text in given.items()},
                "nodeInfo": {"architecture": architecture},
            },
        },
        "nodeResourceTopology": {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {
                "name": name,
                "annotations": _texts(
                    {
                        "node.koordinator.sh/cpu-topology": {"detail": detail},
                        KUBELET: {"policy": "none"},
                        **(nrt or {}),
                    }
                ),
            },
            "topologyPolicies": policies or ["None"],
            "zones": [
                {
                    "name": f"node-{numa}",
                    "type": "Node",
                    "resources": [
                        {"name": key, "capacity": text, "allocatable": text, "available": text}
                        for key, text in amounts.items()
                    ],
                }
                for numa, amounts in zones.items()
            ],
        },
    }


def cluster_of(api: Client, *names: str, **given: Any) -> Client:
    """The cluster edge, with these nodes in it."""
    assert api.put(CLUSTER).status_code == 201
    add_nodes(api, *names, **given)
    return api


def add_nodes(api: Client, *names: str, **given: Any) -> None:
    """Nodes of the cluster edge, or what is new about them."""
    for name in names:
        answer = api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name, **given))
        assert answer.status_code in (200, 201), answer.text


def pod_manifest(
    cpu: str | None = "4",
    memory: str | None = "1Gi",
    *,
    qos: str | None = "LSR",
    uid: str | None = None,
    spec: dict[str, Any] | None = None,
    numa: dict[str, Any] | None = None,
    status: Any = None,
    node: str | None = None,
    phase: str | None = None,
    priority: int | None = 9500,
    labels: dict[str, str] | None = None,
    requests: dict[str, str] | None = None,
    **members: Any,
) -> dict[str, Any]:
    """A Pod of one container whose limits are its requests; `members` belong to its spec."""
    asked = {"cpu": cpu, "memory": memory, **(requests or {})}
    asked = {key: text for key, text in asked.items() if text is not None}
    annotations = {SPEC: spec, NUMA_SPEC: numa, STATUS: status}
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "uid": uid,
            "labels": {**({QOS: qos} if qos else {}), **(labels or {})},
            "annotations": _texts({key: value for key, value in annotations.items() if value is not None}),
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": asked, "limits": copy.copy(asked)}}],
            "priority": priority,
            **({"nodeName": node} if node else {}),
            **members,
        },
        "status": {"phase": phase} if phase else {},
    }
    # Names come from the path, except where a manifest has to be complete by itself.
    manifest["metadata"]["name"] = None
    return manifest


def _texts(values: dict[str, Any]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
