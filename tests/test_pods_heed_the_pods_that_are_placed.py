"""Pods go where affinity, anti-affinity and topology spread let them, by the words of kube-scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client import Client
from tests.conftest import application_on
from tests.kubernetes import node_manifests
from tests.pod_rules import REASONS, ruled_pod

pytestmark = pytest.mark.one_database

GIVEN = json.loads((Path(__file__).parent / "data" / "pod-rules.json").read_text())
CLUSTER = "/ext/v1/clusters/edge"
PREVIEW = f"{CLUSTER}/pods/preview"


def import_nodes(api: Client, nodes: dict[str, dict[str, str]], tainted: tuple[str, ...] = ()) -> None:
    taints = [{"key": "closed", "effect": "NoSchedule"}]
    for name, labels in nodes.items():
        spec = {"taints": taints} if name in tainted else {}
        answer = api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name, labels=labels, spec=spec))
        assert answer.status_code in (200, 201), answer.text


def put(api: Client, pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answer = api.post(f"{CLUSTER}/pods", {"apiVersion": "v1", "kind": "List", "items": pods})
    assert answer.status_code == 200, answer.text
    return list(answer.json["pods"])


@pytest.fixture(scope="module")
def shared() -> Iterator[Client]:
    with application_on("sqlite") as application:
        api = Client(application.test_client())
        assert api.put(CLUSTER).status_code == 201
        import_nodes(api, GIVEN["nodes"])
        yield api


@pytest.fixture
def service(shared: Client) -> Iterator[Client]:
    yield shared
    for pod in shared.get(f"{CLUSTER}/pods").json["pods"]:
        gone = shared.delete(f"{CLUSTER}/pods/{pod['namespace']}/{pod['name']}")
        assert gone.status_code == 204
    import_nodes(shared, GIVEN["nodes"])


@pytest.mark.parametrize("case", GIVEN["cases"], ids=lambda case: str(case["id"]))
def test_a_case(service: Client, case: dict[str, Any]) -> None:
    if "tainted" in case:
        import_nodes(service, GIVEN["nodes"], tuple(case["tainted"]))
    placed = [
        ruled_pod(f"placed-{number}", each, node=each["node"]) for number, each in enumerate(case["placed"])
    ]
    if placed:
        assert [each["status"] for each in put(service, placed)] == [201] * len(placed)
    pod = ruled_pod("incoming", case["pod"])
    preview = service.post(PREVIEW, pod).json
    refused = {each["node"]: each["reasons"] for each in preview["rejected"]}
    assert refused == {node: [REASONS[reason]] for node, reason in case["refused"].items()}
    fitting = [each["name"] for each in preview["nodes"]]
    assert sorted(fitting) == sorted(GIVEN["nodes"].keys() - case["refused"].keys())
    if "first" in case:
        assert sorted(fitting[: len(case["first"])]) == case["first"]


def test_the_extender_says_the_same(service: Client) -> None:
    put(service, [ruled_pod("there", {"labels": {"app": "web"}}, node="a1")])
    pod = ruled_pod("incoming", {"apart": [["zone", {"app": "web"}]], "near": [["zone", {"app": "web"}]]})
    args = {"Pod": pod, "NodeNames": list(GIVEN["nodes"])}
    answer = service.post(f"{CLUSTER}/extender/filter", args).json
    assert answer["FailedNodes"] == dict.fromkeys(["a1", "a2"], REASONS["apart"])
    # No preemption brings a pod near.
    assert answer["FailedAndUnresolvableNodes"] == dict.fromkeys(["b1", "b2", "none"], REASONS["near"])
    liked = ruled_pod("incoming", {"rather_apart": [[5, "zone", {"app": "web"}]]})
    priorities = service.post(f"{CLUSTER}/extender/prioritize", {**args, "Pod": liked}).json
    scores = {each["Host"]: each["Score"] for each in priorities}
    assert max(scores["a1"], scores["a2"]) < min(scores["b1"], scores["b2"], scores["none"])


def test_labels_of_namespaces_are_left_to_the_scheduler(service: Client) -> None:
    put(service, [ruled_pod("there", {"labels": {"app": "web"}}, node="a1")])
    team = {"namespaceSelector": {"matchLabels": {"team": "x"}}}
    pod = ruled_pod("incoming", {"apart": [["zone", {"app": "web"}, team], ["zone", {"app": "db"}]]})
    answer = service.put(f"{CLUSTER}/pods/default/incoming", pod)
    assert answer.status_code == 400
    assert "namespaceSelector: labels of namespaces are not known here" in answer.text
    args = {"Pod": pod, "NodeNames": list(GIVEN["nodes"])}
    answer = service.post(f"{CLUSTER}/extender/filter", args).json
    assert (answer["Error"], sorted(answer["NodeNames"])) == ("", sorted(GIVEN["nodes"]))


def test_pods_of_one_call_see_those_before_them(service: Client) -> None:
    lone = {"labels": {"app": "lone"}, "apart": [["zone", {"app": "lone"}]], "nodeSelector": {}}
    outcomes = put(service, [ruled_pod(f"lone-{number}", lone) for number in range(5)])
    # Two zones, and a node that is in none and so keeps nobody apart.
    placed = [each["pod"]["node"] for each in outcomes if each["status"] == 201]
    assert len({node[0] for node in placed if node != "none"}) == len([n for n in placed if n != "none"]) == 2


def test_capacity_counts_one_after_another(service: Client) -> None:
    lone = {"labels": {"app": "lone"}, "apart": [["kubernetes.io/hostname", {"app": "lone"}]]}
    put(service, [ruled_pod("there", {"labels": {"app": "lone"}}, node="a1")])
    question = {"kinds": {"it": {"pod": ruled_pod("lone", lone)}}, "cluster": "edge"}
    answer = service.post("/ext/v1/capacity", question)
    assert answer.status_code == 200, answer.text
    total = answer.json["kinds"]["it"]["total"]
    assert (total["lower"], total["upper"]) == (4, 4)


def test_an_explanation_names_the_terms(service: Client) -> None:
    hermit = {"labels": {"app": "db"}, "apart": [["zone", {"app": "web"}]]}
    put(service, [ruled_pod("there", hermit, node="a1")])
    said = {"labels": {"app": "web"}, "apart": [["zone", {"app": "db"}]], "near": [["zone", {"app": "web"}]]}
    stages = service.post(PREVIEW, ruled_pod("incoming", said)).json["explanation"]["stages"]
    kinds = {"pod_affinity", "pod_anti_affinity", "anti_affinity_of_placed_pods"}
    found = {stage["kind"]: (stage["condition"], stage["came"], stage["providers"]) for stage in stages}
    pods = "pods with app In {} in namespace default, by zone"
    assert {kind: each for kind, each in found.items() if kind in kinds} == {
        "pod_affinity": (f"pod affinity: {pods.format('web')}", 5, 4),
        "pod_anti_affinity": (f"pod anti-affinity: {pods.format('db')}", 4, 2),
    }


def test_pods_that_are_being_deleted_count_for_no_spread(service: Client) -> None:
    """As in kube-scheduler: else a rolling update with a long grace period leaves no node that suits both."""
    there = {"labels": {"app": "web"}}
    pods = [ruled_pod(f"on-{node}", there, node=node) for node in ("a1", "a2", "b1", "b2", "none")]
    pods.append(ruled_pod("second", there, node="a1"))
    put(service, pods)
    new = ruled_pod("new", {**there, "spread": [["kubernetes.io/hostname", 1, {"app": "web"}]]})
    near = ruled_pod("near", {"near": [["kubernetes.io/hostname", {"app": "web"}]]})
    args = {"Pod": new, "NodeNames": list(GIVEN["nodes"])}

    def fitting(pod: dict[str, Any]) -> list[str]:
        found = service.post(f"{CLUSTER}/extender/filter", {**args, "Pod": pod}).json["NodeNames"]
        return sorted(found)

    assert fitting(new) == ["a2", "b1", "b2", "none"]
    for pod in (pods[0], pods[-1]):
        pod["metadata"]["deletionTimestamp"] = "2026-05-17T09:00:00Z"
    put(service, pods)
    assert fitting(new) == ["a1"]
    assert fitting(near) == sorted(GIVEN["nodes"])


def test_an_empty_selector_counts_no_pods_for_spread(service: Client) -> None:
    """As in kube-scheduler; the incoming pod counts itself. Everywhere else it selects every pod."""
    there = {"labels": {"app": "web"}}
    put(service, [ruled_pod(f"there-{number}", there, node="a1") for number in range(2)])
    new = ruled_pod("new", {**there, "spread": [["kubernetes.io/hostname", 1, {}]]})
    preview = service.post(PREVIEW, new).json
    assert "a1" in {node["name"] for node in preview["nodes"]}
    stayed = ruled_pod("apart", {"apart": [["kubernetes.io/hostname", {}]]})
    preview = service.post(PREVIEW, stayed).json
    assert "a1" not in {node["name"] for node in preview["nodes"]}
