"""The scheduling loop as a process beside a real Kubernetes, and what must hold of what it does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from placement.common.manifest import parse_quantity
from placement.engine.numa.cpus import parse_cpu_list
from tests.client import unique
from tests.faults.around_kubernetes import CLUSTER, TOKEN, Lab
from tests.kubernetes import STATUS
from tests.patience import eventually
from tests.synchronizing import ENVIRONMENT, Synchronizing, pod_manifest

LOOP = "placement"
GANG = "gang.scheduling.koordinator.sh"
# What waits for time alone waits longer than any test, so that something else has to wake it.
WITHOUT_TIMER = "import placement.scheduling.queue as queue; queue.PARKED_SECONDS = 1e6"


@contextmanager
def running_loop(
    around: Lab,
    *arguments: str,
    kubernetes_url: str | None = None,
    service_url: str | None = None,
    patch: str = "",
    said: str = "nodes ",
) -> Iterator[Synchronizing]:
    """The loop during the block, which begins when it has said that; `patch` is run in it before."""
    kubeconfig = around.kubernetes.schedule_kubeconfig(CLUSTER, kubernetes_url)
    output = around.folder / f"loop-{unique()}.txt"
    program = f"import sys\n{patch}\nfrom placement.client.cli import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "--url", service_url or around.url, "schedule", "kubernetes"]
    command += ["--cluster", CLUSTER, "--kubeconfig", str(kubeconfig), *arguments]
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command, stdout=stream, stderr=subprocess.STDOUT, env={**ENVIRONMENT, "PLACEMENT_TOKEN": TOKEN}
        )
    loop = Synchronizing(process, output)
    try:
        eventually(True, lambda: said in loop.said)
        yield loop
        if process.poll() is None:
            loop.end()
    finally:
        process.kill()
        process.wait()


def ask(
    around: Lab,
    name: str,
    cpus: int = 2,
    *,
    gang: tuple[str, int] | None = None,
    labels: dict[str, str] | None = None,
    scheduler: str = LOOP,
    **spec: Any,
) -> dict[str, Any]:
    """A pod that wants whole CPUs asks for a place; a gang has a name and its least members."""
    manifest = pod_manifest(name, cpus=cpus, **(labels or {}))
    del manifest["metadata"]["uid"], manifest["status"]
    if gang is not None:
        manifest["metadata"]["annotations"] = {f"{GANG}/name": gang[0], f"{GANG}/min-available": str(gang[1])}
    manifest["spec"] |= {"schedulerName": scheduler, **spec}
    created: dict[str, Any] = around.kubernetes.create(manifest)
    return created


def none_twice(around: Lab) -> list[dict[str, Any]]:
    """No CPU has two owners, and no node has more than it offers; all pods as Kubernetes has them."""
    pods = all_pods(around)
    owners: dict[tuple[str, int], str] = {}
    for pod in filter(runs, pods):
        node = pod["spec"]["nodeName"]
        for cpu in cpus_of(pod):
            owner = owners.setdefault((node, cpu), pod["metadata"]["name"])
            assert owner == pod["metadata"]["name"], (node, cpu, owner, pod["metadata"]["name"])
    found = exceeded(around, pods)
    assert not found, found
    return pods


def all_pods(around: Lab) -> list[dict[str, Any]]:
    """The pods of all namespaces."""
    found: list[dict[str, Any]] = around.kubernetes.call("GET", "/api/v1/pods")["items"]
    return found


def exceeded(around: Lab, pods: list[dict[str, Any]]) -> dict[tuple[str, str], Fraction]:
    """By how much the pods on a node ask for more of a resource than it offers, where they do."""
    asked: defaultdict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for pod in filter(runs, pods):
        node = pod["spec"]["nodeName"]
        asked[node, "pods"] += 1
        for container in pod["spec"]["containers"]:
            for resource, text in (container["resources"].get("requests") or {}).items():
                asked[node, resource] += parse_quantity(text)
    offered = {
        node["metadata"]["name"]: node["status"]["allocatable"]
        for node in around.kubernetes.call("GET", "/api/v1/nodes")["items"]
    }
    return {
        (node, resource): amount - parse_quantity(offered[node].get(resource, 0))
        for (node, resource), amount in asked.items()
        if node in offered and amount > parse_quantity(offered[node].get(resource, 0))
    }


def runs(pod: dict[str, Any]) -> bool:
    """Whether a pod is on a node and not over."""
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ("Succeeded", "Failed")


def cpus_of(pod: dict[str, Any]) -> set[int]:
    """The CPUs that a pod was told with its Binding, none if it was told of none."""
    status = pod["metadata"].get("annotations", {}).get(STATUS)
    return set(parse_cpu_list(json.loads(status)["cpuset"])) if status else set()


def bound(around: Lab) -> dict[str, str]:
    """The node of each pod that runs, by name."""
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in around.kubernetes.pods() if runs(pod)}


def is_scheduled(pod: dict[str, Any]) -> bool:
    """Whether the condition of a pod says that it has a node."""
    return any(
        (each["type"], each["status"]) == ("PodScheduled", "True")
        for each in pod["status"].get("conditions") or ()
    )
