"""Candidates, flavors and pods are explained over HTTP in one shape, with amounts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.explanations import check_shape
from tests.kubernetes import CLUSTER, node_manifests, pod_manifest

pytestmark = pytest.mark.one_database

CANDIDATES = "/ext/v1/allocation_candidates"
FLAVOR = {"vcpus": 2, "memory_mb": 512, "extra_specs": {"hw:cpu_policy": "dedicated"}}


@pytest.fixture
def edge(api: Client) -> Client:
    """A cluster of two nodes with 16 CPUs and one with 2, and a host for flavors outside of it."""
    assert api.put(CLUSTER).status_code == 201
    for name, shape in (("n1", {}), ("n2", {}), ("n3", {"cpu": "2"})):
        answer = api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name, **shape))
        assert answer.status_code == 201, answer.text
    api.provider("host", PCPU=1, MEMORY_MB=1024, VCPU=4)
    return api


def of_candidates(api: Client, query: str) -> dict[str, Any]:
    answer = api.get(f"{CANDIDATES}?explain=1&{query}")
    assert answer.status_code == 200, answer.text
    return answer.json["explanation"]


def of_flavor(api: Client, flavor: dict[str, Any], **parts: Any) -> dict[str, Any]:
    answer = api.post("/ext/v1/flavors/candidates", {"flavor": flavor, "explain": True, **parts})
    assert answer.status_code == 200, answer.text
    return answer.json["explanation"]


def of_preview(api: Client, pod: dict[str, Any], **parts: Any) -> dict[str, Any]:
    answer = api.post(f"{CLUSTER}/pods/preview", {"pod": pod, **parts})
    assert answer.status_code == 200, answer.text
    return answer.json["explanation"]


def of_refusal(api: Client, pod: dict[str, Any]) -> dict[str, Any]:
    answer = api.put(f"{CLUSTER}/pods/default/web", pod)
    assert answer.status_code == 409, answer.text
    return answer.json["errors"][0]["explanation"]


def test_all_that_is_refused_is_explained_in_one_shape(edge):
    found = {
        "candidates": of_candidates(edge, "resources=PCPU:99"),
        "flavor": of_flavor(edge, {**FLAVOR, "memory_mb": 99_999}),
        "preview": of_preview(edge, pod_manifest(cpu="99")),
        "refusal": of_refusal(edge, pod_manifest(cpu="99")),
    }
    for explanation in found.values():
        check_shape(explanation)
        stage = explanation["stages"][explanation["first_empty"]]
        assert stage["kind"] == "amount"
        for miss in explanation["nearest"]:
            assert miss["missing"] == miss["wanted"] - miss["free"] > 0
            assert miss["resource_class"] == stage["resource_class"]
            assert miss["resource_provider"]["name"]
        missing = [miss["missing"] for miss in explanation["nearest"]]
        assert missing
        assert missing == sorted(missing)
    assert found["refusal"] == found["preview"]


def test_a_flavor_that_cores_cannot_serve_is_told_what_each_numa_node_lacks(edge):
    explanation = of_flavor(edge, {**FLAVOR, "vcpus": 99})
    check_shape(explanation)
    assert explanation["stages"][explanation["first_empty"]]["kind"] == "combination"
    shortages = [shortage for miss in explanation["nearest"] for shortage in miss["shortages"]]
    assert {shortage["resource_provider"]["name"] for shortage in shortages} >= {
        f"edge/{node}/numa-{numa}" for node in ("n1", "n2") for numa in (0, 1)
    }
    for shortage in shortages:
        assert (shortage["resource_class"], shortage["wanted"]) == ("PCPU", 99)
        assert shortage["missing"] == 99 - shortage["free"] > 0


def test_all_that_fits_is_explained_in_one_shape(edge):
    for explanation in (
        of_candidates(edge, "resources=PCPU:1"),
        of_flavor(edge, {**FLAVOR, "vcpus": 1}),
        of_preview(edge, pod_manifest(cpu="4")),
    ):
        check_shape(explanation)
        assert explanation["first_empty"] is None
        assert explanation["nearest"] == []


def test_traits_labels_and_taints_that_are_in_the_way_are_named(edge):
    traits = of_candidates(edge, "resources1=VCPU:1&required1=HW_CPU_X86_AVX2")
    labels = of_preview(edge, pod_manifest(nodeSelector={"disk": "ssd"}))
    pinned = {"nodeSelector": {"kubernetes.io/hostname": "n9"}}
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    tainted = node_manifests("n9", spec={"taints": [taint]})
    assert edge.put(f"{CLUSTER}/nodes/n9", tainted).status_code == 201
    taints = of_preview(edge, pod_manifest(**pinned), nodeNames=["n9"])
    for explanation, kind, member, names in (
        (traits, "traits", "lacking", ["HW_CPU_X86_AVX2"]),
        (labels, "labels", "lacking", ["disk=ssd"]),
        (taints, "taints", "unwanted", ["gpu=yes:NoSchedule"]),
    ):
        check_shape(explanation)
        assert explanation["stages"][explanation["first_empty"]]["kind"] == kind
        assert [miss[member] for miss in explanation["nearest"]] == [names] * len(explanation["nearest"])
        assert explanation["nearest"]


def test_the_stages_of_a_pod_count_nodes(edge):
    explanation = of_refusal(edge, pod_manifest(cpu="20"))
    counted = [(stage["kind"], stage["came"], stage["providers"]) for stage in explanation["stages"]]
    assert counted[:4] == [("cordon", 3, 3), ("taints", 3, 3), ("amount", 3, 3), ("amount", 3, 0)]
    assert explanation["sentences"][3:5] == [
        "20 CPUs free: 0 of 3 nodes",
        "edge/n1 lacks 4 CPUs: it has 16 free",
    ]
    assert explanation["nearest"][0]["reasons"] == ["Insufficient cpu"]


def test_a_flavor_is_explained_only_if_that_is_asked_for_with_its_cluster(edge):
    answer = edge.post("/ext/v1/flavors/candidates", {"flavor": FLAVOR})
    assert "explanation" not in answer.json
    explanation = of_flavor(edge, {"vcpus": 1, "memory_mb": 1}, cluster="edge")
    check_shape(explanation)
    assert "hosts in cluster edge: 3 of 4 hosts" in explanation["sentences"]
