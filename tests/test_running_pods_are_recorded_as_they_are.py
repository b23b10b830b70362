"""Pods that run somewhere already are facts: recorded, never refused, and never lost."""

from __future__ import annotations

import pytest

from tests.client import Client
from tests.kubernetes import node_manifests, pod_manifest

pytestmark = pytest.mark.one_database

CLUSTER = "/ext/v1/clusters/edge"
PODS = f"{CLUSTER}/pods"
UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d11"


@pytest.fixture
def cluster(api: Client) -> Client:
    assert api.put(CLUSTER).status_code == 201
    node(api, "n1")
    return api


def node(api: Client, name: str, status: int = 201, **given) -> None:
    answer = api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name, **given))
    assert answer.status_code == status, answer.text


def put(api: Client, name: str, manifest: dict, status: int = 201) -> dict:
    answer = api.put(f"{PODS}/default/{name}", manifest)
    assert answer.status_code == status, answer.text
    return answer.json


def held(api: Client, consumer: str) -> dict[str, dict[str, int]]:
    body = api.get(f"/allocations/{consumer}").json
    return {
        api.get(f"/resource_providers/{uuid}").json["name"].removeprefix("edge/"): entry["resources"]
        for uuid, entry in body["allocations"].items()
    }


def test_reporting_again_changes_nothing(cluster):
    manifest = pod_manifest(node="n1", status={"cpuset": "0-3"})
    first = put(cluster, "web", manifest)
    before = cluster.get(f"{CLUSTER}/nodes/n1").json
    assert put(cluster, "web", manifest, 200) == first
    assert cluster.get(f"{CLUSTER}/nodes/n1").json == before


def resized(cpu: str, in_effect: str, *, infeasible: bool = False, **given) -> dict:
    """A pod on n1 whose container requests so much, and has so much in effect and admitted still."""
    manifest = pod_manifest(cpu, node="n1", uid=UID, phase="Running", **given)
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
    ("requested", "in_effect", "infeasible", "counted"),
    [("1", "4", False, 4000), ("4", "1", False, 4000), ("16", "4", True, 4000), ("4", "4", False, 4000)],
)
def test_during_a_resize_the_larger_amount_counts(cluster, requested, in_effect, infeasible, counted):
    manifest = resized(requested, in_effect, infeasible=infeasible, qos="LS", priority=None)
    pod = put(cluster, "web", manifest)
    assert held(cluster, pod["consumer_uuid"])["n1"]["CUSTOM_NODE_CPU_MILLI"] == counted
    stored = put(cluster, "web", manifest, 200)
    assert stored == pod
