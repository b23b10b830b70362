"""Pods get a node, NUMA nodes and single logical CPUs, and everything they hold is an allocation."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.client import Client, code, detail
from tests.kubernetes import CLUSTER, add_nodes, cluster_of, node_manifests, pod_manifest

pytestmark = pytest.mark.one_database

PODS = f"{CLUSTER}/pods"
UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d11"
HOSTNAME = "kubernetes.io/hostname"


@pytest.fixture
def cluster(api: Client) -> Client:
    return cluster_of(api)


def put(api: Client, name: str, manifest: dict, status: int = 201, namespace: str = "default") -> dict:
    answer = api.put(f"{PODS}/{namespace}/{name}", manifest)
    assert answer.status_code == status, answer.text
    return answer.json


def refused(api: Client, manifest: dict) -> str:
    answer = api.put(f"{PODS}/default/refused", manifest)
    assert answer.status_code == 409, answer.text
    assert code(answer) == "unschedulable"
    return detail(answer)


def test_a_pod_or_its_node_that_is_sent_again_changes_nothing(cluster):
    add_nodes(cluster, "n1", "n2")
    first = put(cluster, "web", pod_manifest(uid=UID))
    before = cluster.get(f"{CLUSTER}/nodes/n1").json
    again = put(cluster, "web", pod_manifest(uid=UID, labels={"app": "other"}), 200)
    assert again == first
    sent = cluster.put(f"{CLUSTER}/nodes/n1", node_manifests("n1")).json
    assert sent["created"] == sent["changed"] == sent["deleted"] == []
    assert cluster.get(f"{CLUSTER}/nodes/n1").json == before
    assert cluster.get(f"{PODS}/default/web").json == first


def test_a_preview_of_a_pod_that_is_placed_is_as_if_it_were_not(cluster):
    add_nodes(cluster, "n1")
    largest = pod_manifest(cpu="10", uid=UID)
    other = UID.replace("6", "7")
    same = [(None, "web"), (UID, "renamed"), (other, "web")]
    for is_placed in (False, True):
        for uid, name in [*same, (other, "another"), (None, None)]:
            manifest = pod_manifest(cpu="10", uid=uid)
            manifest["metadata"]["name"] = name
            found = cluster.post(f"{PODS}/preview", {"pod": manifest}).json["nodes"]
            fits = [each["name"] for each in found] == ["n1"]
            assert fits == ((uid, name) in same or not is_placed), (uid, name)
        put(cluster, "web", largest, status=200 if is_placed else 201)


@pytest.mark.both_databases
def test_pods_are_listed_by_namespace_node_and_class_in_pages(cluster):
    add_nodes(cluster, "n1", "n2")
    put(cluster, "a", pod_manifest(nodeSelector={HOSTNAME: "n1"}))
    put(cluster, "b", pod_manifest(qos="LSE", nodeSelector={HOSTNAME: "n2"}))
    put(cluster, "c", pod_manifest(qos="LS", priority=None), namespace="other")

    def names(query: str) -> list[str]:
        return [pod["name"] for pod in cluster.get(f"{PODS}?{query}").json["pods"]]

    assert names("") == ["a", "b", "c"]
    assert names("namespace=other") == ["c"]
    assert names("qos=LSE") == names("qos=lse") == ["b"]
    assert "a" in names("node=n1")
    assert "b" not in names("node=n1")
    first = cluster.get(f"{PODS}?limit=2").json
    assert [pod["name"] for pod in first["pods"]] == ["a", "b"]
    assert names(f"limit=2&marker={first['next']}") == ["c"]
    for query in ("limit=0", "limit=x", "marker=x", "colour=red", "qos=XX"):
        assert cluster.get(f"{PODS}?{query}").status_code == 400
    asked = cluster.post(f"{PODS}/preview", {"pod": pod_manifest(), "nodeNames": ["n3"]})
    assert (asked.status_code, detail(asked)) == (404, "No node n3 found in cluster edge")


def test_yaml_is_taken_too(cluster):
    add_nodes(cluster, "n1")
    text = yaml.safe_dump(pod_manifest()).encode()
    answer = cluster.put(f"{PODS}/default/web", text, Content_Type="application/yaml")
    assert answer.status_code == 201, answer.text


def test_unknown_clusters_and_pods_are_404(api):
    assert api.put(f"{PODS}/default/web", pod_manifest()).status_code == 404
    assert api.get(PODS).status_code == 404
    assert api.post(f"{PODS}/preview", pod_manifest()).status_code == 404
    api.put(CLUSTER)
    assert api.get(f"{PODS}/default/web").status_code == 404
    assert api.delete(f"{PODS}/default/web").status_code == 404
    assert refused(api, pod_manifest()) == "0/0 nodes are available."


@pytest.mark.both_databases
def test_a_kubernetes_under_a_second_name_is_suspected(cluster):
    add_nodes(cluster, "n1")
    uid = put(cluster, "web", pod_manifest())["uid"]
    second = CLUSTER.replace("edge", "second")
    assert cluster.put(second).status_code == 201
    assert cluster.put(f"{second}/nodes/n1", node_manifests("n1")).status_code == 201
    refused = cluster.put(f"{second}/pods/default/web", pod_manifest(uid=uid))
    assert refused.status_code == 409
    assert detail(refused).endswith(
        "is not a pod of this cluster; is this Kubernetes recorded under two names?"
    )


def test_what_a_pod_holds_changes_with_the_pod_only(cluster):
    add_nodes(cluster, "n1")
    pod = put(cluster, "web", pod_manifest())
    uuid = pod["consumer_uuid"]
    before = cluster.get(f"/allocations/{uuid}").json
    assert cluster.delete(f"/allocations/{uuid}").status_code == 409
    assert cluster.claim({pod["resource_provider"]: {"CUSTOM_PODS": 2}}, uuid).status_code == 409
    assert cluster.get(f"/allocations/{uuid}").json == before


def test_cores_that_others_use_are_left_alone(cluster):
    add_nodes(cluster, "n1")
    tree = cluster.get(f"{CLUSTER}/nodes/n1").json["tree"]
    first, second, *_ = (core["uuid"] for core in tree["children"][0]["children"])
    assert cluster.claim({first: {"PCPU": 1}, second: {"PCPU": 2}}).status_code == 204
    shown = [cpu["owner"] for cpu in cluster.get(f"{CLUSTER}/nodes/n1").json["cpus"]]
    assert shown == ["others"] * 4 + ["free"] * 12
    for number, cpus in enumerate(("8-11", "4-7", "12-15")):
        assert put(cluster, f"web{number}", pod_manifest(cpu="4"))["cpuset"] == cpus
    assert "not enough cpus" in refused(cluster, pod_manifest(cpu="1"))


def test_what_no_database_keeps_is_refused(cluster):
    add_nodes(cluster, "n1")
    for odd, message in (("a\0b", "NUL"), (json.loads("[" * 200 + "]" * 200), "nested")):
        for method, path in (("PUT", "default/web"), ("POST", "preview"), ("POST", "translation")):
            answer = cluster.call(method, f"{PODS}/{path}", pod_manifest(volumes=odd))
            assert answer.status_code == 400
            assert message in detail(answer)


def test_a_node_whose_inventories_were_edited_is_passed_over(cluster):
    add_nodes(cluster, "n1", "n2")
    tree = cluster.get(f"{CLUSTER}/nodes/n1").json["tree"]
    for numa in tree["children"]:
        path = f"/resource_providers/{numa['uuid']}/inventories"
        shown = cluster.get(path).json
        shown["inventories"]["CUSTOM_CPU_MILLI"]["total"] = 1
        assert cluster.put(path, shown).status_code == 200
    assert put(cluster, "web", pod_manifest(cpu="4"))["node"] == "n2"
    put(cluster, "rest", pod_manifest(cpu="12"))
    differ = "node(s) have inventories that differ from the imported node"
    assert differ in refused(cluster, pod_manifest(cpu="4"))
