"""The scheduler extender protocol: filter and prioritize, in both cache modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from placement.pods.extender_bodies import host_priorities
from tests.client import Client
from tests.kubernetes import CLUSTER, add_nodes, cluster_of, pod_manifest

pytestmark = pytest.mark.one_database

EXTENDER = f"{CLUSTER}/extender"
ETC = Path(__file__).resolve().parents[1] / "etc"
NAMES = ["big", "small", "closed", "stranger"]
BINDING = {"PodName": "web-0", "PodNamespace": "default", "PodUID": "uid-web-0", "Node": "big"}


@pytest.fixture
def cluster(api: Client) -> Client:
    """A big and a small machine, and one that takes no pods."""
    cluster_of(api, "big")
    add_nodes(api, "small", rows=tuple((cpu, cpu // 2, 0, 0) for cpu in range(4)))
    add_nodes(api, "closed", spec={"unschedulable": True})
    return api


def pod(cpu: str = "8", name: str = "web-0") -> dict[str, Any]:
    """As kube-scheduler sends it: without kind and apiVersion."""
    manifest = pod_manifest(cpu, uid=f"uid-{name}")
    del manifest["kind"], manifest["apiVersion"]
    manifest["metadata"].update(name=name, namespace="default")
    return manifest


def objects(names: list[str]) -> list[dict[str, Any]]:
    """Node objects with things in them that nobody here knows."""
    return [{"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"x-new": [name]}} for name in names]


def test_filter_with_names(cluster):
    answer = cluster.post(f"{EXTENDER}/filter", {"Pod": pod(), "Nodes": None, "NodeNames": NAMES})
    assert answer.status_code == 200
    left = {"Nodes": None, "NodeNames": ["big"], "FailedNodes": {"small": "Insufficient cpu"}, "Error": ""}
    closed, unknown = "node(s) were unschedulable", "placement does not know this node"
    assert answer.json == {**left, "FailedAndUnresolvableNodes": {"closed": closed, "stranger": unknown}}


def test_filter_with_whole_nodes_gives_back_those_that_are_left(cluster):
    sent = objects(NAMES)
    nodes = {"metadata": {"resourceVersion": "7"}, "items": sent}
    body = {"Pod": pod("2"), "Nodes": nodes, "NodeNames": None}
    answer = cluster.post(f"{EXTENDER}/filter", body).json
    assert answer["Nodes"] == {"metadata": {}, "items": sent[:2]}
    assert answer["NodeNames"] is None
    assert answer["FailedNodes"] == {}
    assert set(answer["FailedAndUnresolvableNodes"]) == {"closed", "stranger"}
    # Members are known in any case.
    body = {"POD": pod("2"), "nodes": {"ITEMS": objects(["small"])}}
    assert cluster.post(f"{EXTENDER}/filter", body).json["Nodes"]["items"] == objects(["small"])
    body = {"pod": pod("2"), "nodenames": ["small"]}
    assert cluster.post(f"{EXTENDER}/filter", body).json["NodeNames"] == ["small"]


def test_filter_asks_about_the_nodes_that_were_named_only_and_sees_what_others_hold(cluster):
    for named in (["small"], []):
        answer = cluster.post(f"{EXTENDER}/filter", {"Pod": pod("2"), "NodeNames": named}).json
        assert (answer["NodeNames"], answer["FailedNodes"], answer["Error"]) == (named, {}, "")
    held = {**pod_manifest("12", node="big", uid="uid-held"), "metadata": {"uid": "uid-held"}}
    assert cluster.put(f"{CLUSTER}/pods/default/held", held).status_code == 201
    answer = cluster.post(f"{EXTENDER}/filter", {"Pod": pod(), "NodeNames": ["big"]}).json
    assert answer["FailedNodes"] == {"big": "Insufficient cpu"}


@pytest.mark.parametrize("whole", [False, True])
def test_prioritize_gives_every_node_a_score_from_0_to_10(cluster, monkeypatch, whole):
    """It works out no place for that."""
    preview = cluster.post(
        f"{CLUSTER}/pods/preview", {"pod": {**pod("2"), "kind": "Pod", "apiVersion": "v1"}}
    )
    exact = {node["name"]: node["score"] for node in preview.json["nodes"]}
    assert exact["big"] > exact["small"] > 0
    monkeypatch.setattr("placement.pods.services.pods.placed_on_each", None)
    nodes = {"Nodes": {"items": objects(NAMES)}} if whole else {"NodeNames": NAMES}
    answer = cluster.post(f"{EXTENDER}/prioritize", {"Pod": pod("2"), **nodes})
    assert [priority["Host"] for priority in answer.json] == NAMES
    scores = {priority["Host"]: priority["Score"] for priority in answer.json}
    assert scores == {"big": exact["big"] // 10, "small": exact["small"] // 10, "closed": 0, "stranger": 0}
    extremes = host_priorities("abcde", {"a": 100, "b": 99, "c": 9, "d": 0})
    assert [priority["Score"] for priority in extremes] == [10, 9, 0, 0, 0]


def test_what_is_wrong_with_the_pod_is_told_in_the_answer(cluster):
    answer = cluster.post(f"{EXTENDER}/filter", {"Pod": pod("many"), "NodeNames": NAMES})
    assert answer.status_code == 200
    told = answer.json
    assert "requests" in told.pop("Error")
    assert set(told.values()) == {None}
    refused = cluster.post(f"{EXTENDER}/prioritize", {"Pod": pod("many"), "NodeNames": NAMES})
    assert (refused.status_code, refused.json) == (200, [{"Host": name, "Score": 0} for name in NAMES])


def test_an_unknown_cluster_is_told_in_the_answer(api):
    body = {"Pod": pod(), "NodeNames": NAMES}
    assert api.post(f"{EXTENDER}/filter", body).json["Error"] == "No cluster edge found"
    nothing = api.post(f"{EXTENDER}/prioritize", body).json
    assert {priority["Score"] for priority in nothing} == {0}
    assert api.post(f"{EXTENDER}/bind", BINDING).json["Error"]


def test_the_sample_leads_kube_scheduler_to_routes_that_exist(cluster):
    sample = yaml.safe_load((ETC / "kube-scheduler-extender.yaml").read_text())
    assert sample["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    (extender,) = sample["extenders"]
    prefix = urlsplit(extender["urlPrefix"])
    for verb in ("filterVerb", "prioritizeVerb", "bindVerb"):
        # An empty body is malformed, but not unknown.
        refused = cluster.post(f"{prefix.path}/{extender[verb]}", {}).json
        assert refused == [] or "There is no such path" not in refused["Error"]
    body = {"Pod": pod("2"), "NodeNames": ["big"]}
    assert cluster.post(f"{prefix.path}/{extender['filterVerb']}", body).json["NodeNames"] == ["big"]


def test_bodies_that_are_no_json_are_refused(api):
    for verb in ("filter", "bind"):
        answer = api.post(f"{EXTENDER}/{verb}", b"{", Content_Type="application/json")
        assert (answer.status_code, "Malformed JSON" in answer.json["Error"]) == (200, True), verb


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "the body: must be an object"),
        ({}, "Pod: must be an object"),
        ({"Pod": 5, "NodeNames": []}, "Pod: must be an object"),
        ({"Pod": {}}, "NodeNames: is missing, and so is Nodes"),
        ({"Pod": {}, "NodeNames": "big"}, "NodeNames: must be a list of names"),
        ({"Pod": {}, "NodeNames": [5]}, "NodeNames: must be a list of names"),
        ({"Pod": {}, "Nodes": []}, "Nodes: must be an object"),
        ({"Pod": {}, "Nodes": {}}, "Nodes.items: must be a list of nodes"),
        ({"Pod": {}, "Nodes": {"items": [{}]}}, "Nodes.items[0].metadata: must be an object"),
        (
            {"Pod": {}, "Nodes": {"items": [{"metadata": {"name": ""}}]}},
            "Nodes.items[0].metadata.name: must be text that is not empty",
        ),
    ],
    ids=str,
)
def test_what_is_malformed_is_named(embedded: Client, caplog, body, message):
    assert embedded.post(f"{EXTENDER}/filter", body).json["Error"] == message
    # The answer to prioritize has no place for it, but the log has.
    with caplog.at_level("INFO", "placement.pods"):
        assert embedded.post(f"{EXTENDER}/prioritize", body).json == []
    assert f"prioritize of the extender failed: {message}" in caplog.text


def test_bindings_that_are_malformed_or_without_an_api_server_claim_nothing(cluster):
    for missing in BINDING:
        for value in (None, "", 5):
            answer = cluster.post(f"{EXTENDER}/bind", {**BINDING, missing: value})
            assert answer.status_code == 200
            assert missing in answer.json["Error"]
    answer = cluster.post(f"{EXTENDER}/bind", BINDING)
    assert answer.status_code == 200
    assert "[kubernetes] kubeconfig" in answer.json["Error"]
    assert cluster.get(f"{CLUSTER}/pods").json["pods"] == []
