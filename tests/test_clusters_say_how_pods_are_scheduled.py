"""Settings and profiles of clusters decide where pods leave it open."""

from __future__ import annotations

import json

import pytest

from tests.client import Client, detail
from tests.kubernetes import NUMA_POLICY, STATUS, node_manifests, pod_manifest

CLUSTER = "/ext/v1/clusters/edge"
PODS = f"{CLUSTER}/pods/default"


def cluster(api: Client, **settings) -> None:
    answer = api.put(CLUSTER, settings)
    assert answer.status_code in (200, 201), answer.text


def node(api: Client, name: str = "n1", **given) -> None:
    answer = api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name, **given))
    assert answer.status_code in (200, 201), answer.text


def put(api: Client, name: str, manifest: dict) -> dict:
    answer = api.put(f"{PODS}/{name}", manifest)
    assert answer.status_code == 201, answer.text
    return answer.json


def status_of(pod: dict) -> dict:
    return json.loads(pod["annotations"].get(STATUS, "{}"))


ALL = {
    "profile": "koord-scheduler",
    "description": "all of them",
    "defaultCPUBindPolicy": "SpreadByPCPUs",
    "defaultCPUExclusivePolicy": "PCPULevel",
    "defaultNUMATopologyPolicy": "SingleNUMANode",
    "numaAllocateStrategy": "MostAllocated",
    "hostScoring": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 2}]},
    "numaScoring": {"type": "LeastAllocated"},
    "guaranteedQoS": "LS",
    "subPriorityImmutable": False,
    "nodeLabels": ["disk"],
}


def test_settings_are_stored_and_shown(api):
    cluster(api, **ALL)
    shown = api.get(CLUSTER).json
    assert {key: shown[key] for key in ALL} == ALL


@pytest.mark.parametrize(
    ("setting", "value", "field"),
    [
        ("defaultCPUBindPolicy", "Some", "defaultCPUBindPolicy"),
        ("defaultCPUExclusivePolicy", "Node", "defaultCPUExclusivePolicy"),
        ("defaultNUMATopologyPolicy", 5, "defaultNUMATopologyPolicy"),
        ("numaAllocateStrategy", "Fullest", "numaAllocateStrategy"),
        ("hostScoring", "MostAllocated", "hostScoring"),
        ("hostScoring", {"type": "Balanced"}, "hostScoring.type"),
        ("hostScoring", {"type": "MostAllocated", "resources": []}, "hostScoring.resources"),
        (
            "hostScoring",
            {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 0}]},
            "hostScoring.resources[0].weight",
        ),
        ("numaScoring", {"type": "MostAllocated", "shape": []}, "numaScoring.shape"),
        ("guaranteedQoS", "Best", "guaranteedQoS"),
        ("subPriorityImmutable", "yes", "subPriorityImmutable"),
        ("nodeLabels", "disk", "nodeLabels"),
        ("nodeLabels", [1], "nodeLabels[0]"),
    ],
)
def test_bad_settings_name_the_field(api, setting, value, field):
    answer = api.put(CLUSTER, {setting: value})
    assert answer.status_code == 400
    assert field in detail(answer)
    assert api.get(CLUSTER).status_code == 404


def test_the_default_bind_policy_counts(api):
    cluster(api, defaultCPUBindPolicy="SpreadByPCPUs")
    node(api)
    assert put(api, "web", pod_manifest(cpu="4"))["cpuset"] == "0,2,4,6"
    cluster(api, defaultCPUBindPolicy="")
    assert put(api, "unbound", pod_manifest(cpu="4"))["cpuset"] == ""


@pytest.mark.parametrize(("profile", "cpus"), [("design", "12,14"), ("koord-scheduler", "9,11")])
def test_the_default_exclusive_policy_counts_under_design(api, profile, cpus):
    spread = {"preferredCPUBindPolicy": "SpreadByPCPUs"}
    cluster(api, profile=profile, defaultCPUExclusivePolicy="PCPULevel")
    node(api)
    exclusive = {**spread, "preferredCPUExclusivePolicy": "PCPULevel"}
    assert put(api, "a", pod_manifest(cpu="4", spec=exclusive))["cpuset"] == "0,2,4,6"
    assert put(api, "b", pod_manifest(cpu="2", spec=exclusive))["cpuset"] == "8,10"
    assert put(api, "c", pod_manifest(cpu="2", spec=spread))["cpuset"] == cpus


@pytest.mark.parametrize(("profile", "aligned"), [("design", True), ("koord-scheduler", False)])
def test_the_default_numa_policy_counts_under_design(api, profile, aligned):
    cluster(api, profile=profile, defaultNUMATopologyPolicy="SingleNUMANode")
    node(api)
    pod = put(api, "web", pod_manifest(cpu="4"))
    assert ("numaNodeResources" in status_of(pod)) is aligned


def test_the_strategy_decides_which_numa_node_is_filled(api):
    cluster(api, numaAllocateStrategy="MostAllocated")
    node(api)
    assert [put(api, name, pod_manifest(cpu="2"))["cpuset"] for name in "ab"] == ["0-1", "2-3"]
    cluster(api, numaAllocateStrategy="LeastAllocated")
    assert put(api, "c", pod_manifest(cpu="2"))["cpuset"] == "8-9"


def test_sub_priorities_may_change_if_the_cluster_says_so(api):
    cluster(api)
    node(api)
    put(api, "web", pod_manifest(uid="u", labels={"koordinator.sh/priority": "1"}))
    changed = pod_manifest(uid="u", labels={"koordinator.sh/priority": "2"})
    assert api.put(f"{PODS}/web", changed).status_code == 400
    cluster(api, subPriorityImmutable=False)
    assert api.put(f"{PODS}/web", changed).status_code == 200


def test_chosen_labels_become_traits_with_the_next_import(api):
    cluster(api)
    labels = {"disk.example.com/type": "ssd-2", "rack": "r1"}
    node(api, labels=labels)
    assert not any("LABEL" in trait for trait in api.get(f"{CLUSTER}/nodes/n1").json["tree"]["traits"])
    cluster(api, nodeLabels=["disk.example.com/type", "missing"])
    node(api, labels=labels)
    traits = api.get(f"{CLUSTER}/nodes/n1").json["tree"]["traits"]
    assert [trait for trait in traits if "LABEL" in trait] == ["CUSTOM_LABEL_DISK_EXAMPLE_COM_TYPE_SSD_2"]


@pytest.mark.parametrize(
    ("profile", "pools"), [("design", [{"socket": 0, "node": 0}]), ("koord-scheduler", None)]
)
def test_ls_pods_on_aligned_hosts_are_told_their_pool_under_design(api, profile, pools):
    cluster(api, profile=profile)
    node(api, labels={NUMA_POLICY: "SingleNUMANode"})
    status = status_of(put(api, "ls", pod_manifest(cpu="2", qos="LS", priority=None)))
    assert status.get("cpuSharedPools") == pools
    assert [entry["node"] for entry in status["numaNodeResources"]] == [0]


@pytest.mark.parametrize(("profile", "status"), [("design", 409), ("koord-scheduler", 201)])
def test_constrained_burst_needs_a_pool_that_covers_the_limit_under_design(api, profile, status):
    cluster(api, profile=profile)
    node(api)
    burst = pod_manifest(
        cpu="2", qos="LS", priority=None, spec={"preferredCPUBindPolicy": "ConstrainedBurst"}
    )
    burst["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "8"
    placed = put(api, "fits", burst)
    assert status_of(placed).get("cpuSharedPools") == ([{"socket": 0, "node": 0}] if status == 409 else None)
    burst["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "9"
    answer = api.put(f"{PODS}/large", burst)
    assert answer.status_code == status
    if status == 409:
        assert "CPU shared pools do not cover the pod's CPU limit" in detail(answer)


@pytest.mark.parametrize(("profile", "status"), [("design", 400), ("koord-scheduler", 201)])
def test_requests_must_equal_limits_under_design(api, profile, status):
    cluster(api, profile=profile)
    node(api)
    manifest = pod_manifest(cpu="4")
    manifest["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "6"
    answer = api.put(f"{PODS}/web", manifest)
    assert answer.status_code == status
    text = detail(answer) if status == 400 else " ".join(answer.json["warnings"])
    assert "must equal the requested CPUs 4" in text
