"""Pods that run somewhere already are facts: recorded, never refused, and never lost."""

from __future__ import annotations

import pytest

from tests.client import Client
from tests.kubernetes import CLUSTER, cluster_of, pod_manifest

pytestmark = pytest.mark.one_database

PODS = f"{CLUSTER}/pods"
UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d11"


@pytest.fixture
def cluster(api: Client) -> Client:
    return cluster_of(api, "n1")


def put(api: Client, name: str, manifest: dict, status: int = 201) -> dict:
    answer = api.put(f"{PODS}/default/{name}", manifest)
    assert answer.status_code == status, answer.text
    return answer.json


def test_reporting_again_changes_nothing(cluster):
    manifest = pod_manifest(node="n1", status={"cpuset": "0-3"})
    first = put(cluster, "web", manifest)
    before = cluster.get(f"{CLUSTER}/nodes/n1").json
    assert put(cluster, "web", manifest, 200) == first
    assert cluster.get(f"{CLUSTER}/nodes/n1").json == before


def resized(cpu: str, in_effect: str, *, infeasible: bool) -> dict:
    """A pod on n1 whose container requests so much, and has so much in effect and admitted still."""
    manifest = pod_manifest(cpu, node="n1", uid=UID, phase="Running", qos="LS", priority=None)
    (container,) = manifest["spec"]["containers"]
    before = {**container["resources"]["requests"], "cpu": in_effect}
    told = {"name": container["name"], "allocatedResources": before, "resources": {"requests": before}}
    manifest["status"]["containerStatuses"] = [told]
    if infeasible:
        manifest["status"]["conditions"] = [
            {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
        ]
    return manifest


@pytest.mark.parametrize(
    ("requested", "in_effect", "infeasible"),
    [("1", "4", False), ("4", "1", False), ("16", "4", True), ("4", "4", False)],
)
def test_during_a_resize_the_larger_amount_counts(cluster, requested, in_effect, infeasible):
    manifest = resized(requested, in_effect, infeasible=infeasible)
    pod = put(cluster, "web", manifest)
    held = cluster.used_by(pod["consumer_uuid"])[pod["resource_provider"]]
    assert held["CUSTOM_NODE_CPU_MILLI"] == 4000
    assert put(cluster, "web", manifest, 200) == pod
