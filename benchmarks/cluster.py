"""A Kubernetes cluster as platform teams have them: 200 nodes of five kinds and 3,000 pods.

python -m benchmarks.cluster http://127.0.0.1:8778            fill an empty service
python -m benchmarks.cluster http://127.0.0.1:8778 --nodes 40

The nodes: virtual machines with a socket for each core, hosts of two NUMA nodes, hosts of sixteen, hosts with
eight GPUs that take no other pods, and hosts with an offline thread. They stand in three zones; some are
cordoned. The pods: shared CPUs, CPUs of their own, batch work, one or more GPUs, as deployments have them.
Each run makes the same.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import uuid
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from tqdm import tqdm

from benchmarks.cloud import Send
from benchmarks.wire import Wire
from tests.kubernetes import node_manifests, pod_manifest

CLUSTER = "prod-eu"
GPU_RESOURCE = "nvidia.com/gpu"
_GPU_TAINT = {"key": GPU_RESOURCE, "value": "present", "effect": "NoSchedule"}
_NODES, _PODS_PER_NODE = 200, 15
_NODES_AT_ONCE, _PODS_AT_ONCE = 50, 250
_CORDONED = (3, 44, 131)
# Of ten nodes in a row: which kind each is.
_KINDS = ("vm", "two", "vm", "two", "sixteen", "vm", "two", "gpu", "vm", "offline")
_GIB_PER_CPU = 4
# A CPU that was switched off.
_OFFLINE_CPU = 127

Cpus = tuple[tuple[int, int, int, int], ...]
"""Logical CPUs, each with its core, NUMA node and socket."""


def cpus_of(kind: str) -> Cpus:
    """Return the CPUs of a node of a kind; second threads follow all first ones."""
    if kind == "vm":
        return tuple((cpu, cpu, 0, cpu) for cpu in range(8))
    numa_nodes, cores = (16, 128) if kind == "sixteen" else (2, 64)
    sockets = 2
    found = [
        (thread * cores + core, core, core * numa_nodes // cores, core * sockets // cores)
        for thread in range(2)
        for core in range(cores)
    ]
    return tuple(cpu for cpu in found if kind != "offline" or cpu[0] != _OFFLINE_CPU)


def node(number: int) -> dict[str, Any]:
    """Return the manifests of a node: Node and NodeResourceTopology."""
    kind = _KINDS[number % len(_KINDS)]
    cpus = cpus_of(kind)
    of_numa_nodes: dict[int, int] = {}
    for _, _, numa_node, _ in cpus:
        of_numa_nodes[numa_node] = of_numa_nodes.get(numa_node, 0) + 1
    memory = {numa_node: f"{_GIB_PER_CPU * count}Gi" for numa_node, count in of_numa_nodes.items()}
    zones = {
        numa_node: {"cpu": str(count), "memory": memory[numa_node]}
        for numa_node, count in of_numa_nodes.items()
    }
    devices: dict[str, Any] = {"nvidia.com__gpu": "8"} if kind == "gpu" else {}
    spec: dict[str, Any] = {"taints": [_GPU_TAINT]} if kind == "gpu" else {}
    if number in _CORDONED:
        spec["unschedulable"] = True
    return node_manifests(
        f"{kind}-{number:03}.prod-eu.example.org",
        labels={
            "topology.kubernetes.io/zone": f"eu-west-1{'abc'[number % 3]}",
            "topology.kubernetes.io/region": "eu-west-1",
            "node.kubernetes.io/instance-type": f"{kind}.{len(cpus)}",
            "example.org/pool": "gpu" if kind == "gpu" else "general",
        },
        rows=cpus,
        zones=zones,
        spec=spec,
        memory=f"{_GIB_PER_CPU * len(cpus)}Gi",
        **devices,
    )


class Workload(NamedTuple):
    """The pods of one deployment: their class, what they request, and how many of 100 pods are such."""

    name: str
    namespace: str
    qos: str
    cpu: str
    memory: str
    share: int
    gpus: int = 0


WORKLOADS = (
    Workload("checkout", "shop", "LS", "500m", "1Gi", 22),
    Workload("search", "shop", "LS", "2", "4Gi", 20),
    Workload("cache", "shop", "LSR", "4", "8Gi", 12),
    Workload("ledger", "payments", "LSE", "2", "4Gi", 5),
    Workload("api", "payments", "LS", "1", "2Gi", 19),
    Workload("encoder", "media", "LSR", "8", "16Gi", 6),
    Workload("proxy", "edge", "LS", "250m", "512Mi", 12),
    Workload("training", "ml", "LS", "8", "64Gi", 2, gpus=4),
    Workload("inference", "ml", "LS", "4", "16Gi", 2, gpus=1),
)
_TOLERATION = {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}


def pods(count: int) -> Iterator[dict[str, Any]]:
    """Yield the manifests of pods, with names as a ReplicaSet gives them."""
    chance = random.Random(count)
    shares = [workload.share for workload in WORKLOADS]
    for workload in chance.choices(WORKLOADS, shares, k=count):
        tolerations: dict[str, Any] = {"tolerations": [_TOLERATION]} if workload.gpus else {}
        manifest = pod_manifest(
            workload.cpu,
            workload.memory,
            qos=workload.qos,
            uid=str(uuid.UUID(int=chance.getrandbits(128), version=4)),
            requests={GPU_RESOURCE: str(workload.gpus)} if workload.gpus else {},
            labels={"app": workload.name},
            **tolerations,
        )
        suffix = f"{chance.getrandbits(40):010x}-{chance.getrandbits(20):05x}"
        manifest["metadata"] |= {"name": f"{workload.name}-{suffix}", "namespace": workload.namespace}
        yield manifest


class Filled(NamedTuple):
    """The outcomes of nodes and pods, as the service lists them."""

    nodes: list[dict[str, Any]]
    pods: list[dict[str, Any]]


def fill(send: Send, count: int = _NODES, *, shows: bool = False) -> Filled:
    """Make the cluster with its nodes, and place its pods, some that fit nowhere included."""
    path = f"/ext/v1/clusters/{CLUSTER}"
    send("PUT", path, {})
    found = Filled([], [])
    numbers = range(count)
    for start in tqdm(range(0, count, _NODES_AT_ONCE), desc="nodes", unit="batch", disable=not shows):
        items = [part for each in numbers[start : start + _NODES_AT_ONCE] for part in node(each).values()]
        found.nodes.extend(_read(send("POST", f"{path}/nodes", {"kind": "List", "items": items}))["nodes"])
    source = pods(count * _PODS_PER_NODE)
    batches = iter(lambda: list(islice(source, _PODS_AT_ONCE)), [])
    for items in tqdm(batches, desc="pods", unit="batch", disable=not shows):
        found.pods.extend(_read(send("POST", f"{path}/pods", {"kind": "List", "items": items}))["pods"])
    return found


def _read(answer: Any) -> Any:
    return json.loads(answer) if isinstance(answer, bytes | str) else answer


def main() -> None:
    """Fill the service at the URL that is given, and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("url", help="of a service")
    parser.add_argument("--token", default="admin")
    parser.add_argument("--nodes", type=int, default=_NODES)
    given = parser.parse_args()
    filled = fill(Wire(given.url, token=given.token).must, given.nodes, shows=sys.stderr.isatty())
    refused_nodes = [each for each in filled.nodes if each["status"] >= 300]
    placed = [each for each in filled.pods if each["status"] < 300]
    print(f"{len(filled.nodes) - len(refused_nodes)} of {len(filled.nodes)} nodes,", end=" ")
    print(f"{len(placed)} of {len(filled.pods)} pods placed")
    if refused_nodes:
        print(f"a node that was refused: {refused_nodes[0]}")


if __name__ == "__main__":
    main()
