"""On a real Kubernetes: what the service rejects is an Event of the object, counted up and not repeated."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.around_kubernetes import CLUSTER, TOKEN, Lab, lab
from tests.kubernetes import QOS, node_manifests, pod_manifest
from tests.patience import PATIENCE_SECONDS, eventually
from tests.real_kubernetes import ControlPlane
from tests.server import database_url
from tests.synchronizing import ENVIRONMENT

_MERGE = "application/merge-patch+json"
_EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture
def around(kubernetes: ControlPlane, tmp_path: Path) -> Iterator[Lab]:
    with database_url("sqlite") as connection, lab(kubernetes, connection, tmp_path) as found:
        found.add_node("host-0")
        yield found


def told(around: Lab, name: str) -> list[Any]:
    """The Events of ours about the object of that name."""
    listed = around.kubernetes.call("GET", f"{_EVENTS}?fieldSelector=involvedObject.name={name}")["items"]
    return [event for event in listed if event["reason"] == "PlacementRejected"]


def once(around: Lab) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "placement.client", "--url", around.url, "sync", "kubernetes"]
    command += [
        "--cluster",
        CLUSTER,
        "--kubeconfig",
        str(around.kubernetes.sync_kubeconfig(CLUSTER)),
        "--once",
    ]
    environment = {**ENVIRONMENT, "PLACEMENT_TOKEN": TOKEN}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS, env=environment
    )


def broken(around: Lab, name: str) -> None:
    """A machine whose topology tells of a NUMA node twice, which is of no use."""
    topology = node_manifests(name)["nodeResourceTopology"]
    for zone in topology["zones"]:
        zone["name"] = "node-0"
        for entry in zone["resources"]:
            entry |= {"available": entry["allocatable"], "capacity": entry["allocatable"]}
    around.kubernetes.create(topology)
    node = node_manifests(name)["node"]
    del node["metadata"]["uid"]
    around.kubernetes.create(node)


def running(around: Lab, name: str) -> None:
    """A pod that the scheduler of Kubernetes has put on the node."""
    manifest = pod_manifest("2")
    manifest["metadata"] |= {"name": name, "namespace": "default"}
    del manifest["metadata"]["uid"], manifest["status"], manifest["spec"]["priority"]
    manifest["spec"]["containers"][0]["image"] = "none"
    manifest["spec"]["nodeName"] = "host-0"
    around.kubernetes.create(manifest)


def test_rejected_nodes_and_pods_have_events_until_they_are_well(around: Lab):
    broken(around, "host-1")
    running(around, "web")
    with around.synchronized(1) as sync:
        eventually(1, lambda: len(told(around, "host-1")))
        (event,) = told(around, "host-1")
        assert event["type"] == "Warning"
        assert "listed twice" in event["message"]
        assert event["count"] == 1
        assert event["involvedObject"] == {**event["involvedObject"], "kind": "Node", "uid": "host-1"}
        assert told(around, "host-0") == told(around, "web") == []
        # What must not change while a pod runs.
        path = "/api/v1/namespaces/default/pods/web"
        eventually({"web": "host-0"}, around.claims)
        around.kubernetes.call("PATCH", path, {"metadata": {"labels": {QOS: "BE"}}}, _MERGE)
        eventually(1, lambda: len(told(around, "web")))
        (event,) = told(around, "web")
        assert event["involvedObject"]["uid"] == around.kubernetes.pod("web")["metadata"]["uid"]
        assert event["involvedObject"]["namespace"] == "default"
        sync.end()
        assert "events: " not in sync.said
    # Another process says the same of the same objects: the Events that are there count up.
    assert once(around).returncode == 1
    assert [each["count"] for each in told(around, "host-1")] == [2]


def test_who_may_write_no_events_goes_on_and_says_so(around: Lab):
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/placement-sync"
    rules = around.kubernetes.call("GET", role)["rules"]
    fewer = [rule for rule in rules if "events" not in rule["resources"]]
    around.kubernetes.call("PATCH", role, {"rules": fewer}, _MERGE)
    try:
        broken(around, "host-1")
        done = once(around)
    finally:
        around.kubernetes.call("PATCH", role, {"rules": rules}, _MERGE)
    assert "nodes 1, pods 0, rejected 1" in done.stdout
    assert "events: " in done.stderr
    assert "forbidden" in done.stderr
