"""Settings and profiles of clusters decide where pods leave it open."""

from __future__ import annotations

import json

import pytest

from tests.client import Client
from tests.kubernetes import CLUSTER, STATUS, node_manifests, pod_manifest

pytestmark = pytest.mark.one_database

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
