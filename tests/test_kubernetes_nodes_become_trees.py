"""Clusters and nodes over HTTP: manifests in, provider trees with capacity and use out."""

from __future__ import annotations

import copy
import json

import pytest
import yaml

from placement.server.demonstration import examples
from tests.client import Client, detail
from tests.kubernetes import CLUSTER, cluster_of

pytestmark = pytest.mark.one_database

NODE = f"{CLUSTER}/nodes/edge-01"


@pytest.fixture
def manifests() -> list[dict]:
    return list(yaml.safe_load_all((examples() / "edge" / "nodes" / "edge-01.yaml").read_text()))


@pytest.fixture
def cluster(api: Client) -> Client:
    return cluster_of(api)


def send(api: Client, manifests: list[dict], path: str = NODE):
    node, topology = manifests
    return api.put(path, {"node": node, "nodeResourceTopology": topology})


def flattened(provider: dict) -> list[dict]:
    return [provider, *(member for child in provider["children"] for member in flattened(child))]


@pytest.mark.both_databases
def test_a_cluster_is_created_shown_changed_and_deleted(api):
    assert api.get(CLUSTER).status_code == 404
    assert api.put(CLUSTER, {"description": "north"}).status_code == 201
    shown = api.get(CLUSTER).json
    assert (shown["name"], shown["profile"], shown["description"]) == ("edge", "design", "north")
    changed = api.put(CLUSTER, {"profile": "koord-scheduler"})
    assert (changed.status_code, changed.json["profile"]) == (200, "koord-scheduler")
    assert [entry["name"] for entry in api.get("/ext/v1/clusters").json["clusters"]] == ["edge"]
    assert api.delete(CLUSTER).status_code == 204
    assert api.get("/ext/v1/clusters").json == {"clusters": []}


def test_a_node_becomes_host_numa_nodes_and_cores(cluster, manifests):
    answer = send(cluster, manifests)
    assert answer.status_code == 201, answer.text
    assert answer.json["warnings"] == []
    shown = cluster.get(NODE).json
    members = flattened(shown["tree"])
    assert len(members) == len(answer.json["created"]) == 1 + 2 + 32
    core = next(member for member in members if member["name"] == "edge/edge-01/core-0-1")
    assert core["resources"]["PCPU"]["total"] == 2
    assert core["resources"]["PCPU"]["step_size"] == 2
    assert shown["resources"]["PCPU"] == {"capacity": 60, "used": 0}
    numa = shown["tree"]["children"][0]
    assert "HW_NUMA_ROOT" in numa["traits"]
    host = cluster.get(f"/resource_providers/{shown['tree']['uuid']}").json
    assert host["parent_provider_uuid"] is None
    aggregates = cluster.get(f"/resource_providers/{shown['tree']['uuid']}/aggregates").json["aggregates"]
    assert aggregates == [cluster.get(CLUSTER).json["aggregate"]]


def test_yaml_documents_and_lists_are_taken_too(cluster, manifests):
    text = yaml.safe_dump_all(manifests).encode()
    first = cluster.put(NODE, text, Content_Type="application/yaml")
    assert first.status_code == 201, first.text
    again = cluster.put(NODE, {"kind": "List", "apiVersion": "v1", "items": manifests})
    assert again.status_code == 200
    assert again.json["created"] == again.json["changed"] == again.json["deleted"] == []


@pytest.mark.both_databases
def test_only_what_changed_is_changed(cluster, manifests):
    send(cluster, manifests)
    before = {member["name"]: member["generation"] for member in flattened(cluster.get(NODE).json["tree"])}
    changed = copy.deepcopy(manifests)
    changed[0]["status"]["allocatable"]["pods"] = "99"
    assert send(cluster, changed).json["changed"] == ["edge/edge-01"]
    after = {member["name"]: member["generation"] for member in flattened(cluster.get(NODE).json["tree"])}
    assert {name for name in after if after[name] != before[name]} == {"edge/edge-01"}
    annotations = changed[1]["metadata"]["annotations"]
    rows = yaml.safe_load(annotations["node.koordinator.sh/cpu-topology"])["detail"]
    kept = [row for row in rows if (row["socket"], row["core"]) != (0, 1)]
    annotations["node.koordinator.sh/cpu-topology"] = json.dumps({"detail": kept})
    answer = send(cluster, changed)
    assert answer.status_code == 200, answer.text
    assert answer.json["deleted"] == ["edge/edge-01/core-0-1"]


def test_use_of_single_cores_is_shown(cluster, manifests):
    send(cluster, manifests)
    members = {member["name"]: member for member in flattened(cluster.get(NODE).json["tree"])}
    core = members["edge/edge-01/core-0-1"]["uuid"]
    assert cluster.claim({core: {"PCPU": 2}}).status_code == 204
    shown = cluster.get(NODE).json
    members = {member["name"]: member for member in flattened(shown["tree"])}
    assert members["edge/edge-01/core-0-1"]["resources"]["PCPU"]["used"] == 2
    assert shown["resources"]["PCPU"]["used"] == 2
    half = cluster.claim({members["edge/edge-01/core-0-2"]["uuid"]: {"PCPU": 1}})
    assert half.status_code == 409
    assert "constraints" in detail(half)


def test_a_malformed_manifest_names_every_field_and_changes_nothing(cluster, manifests):
    send(cluster, manifests)
    before = cluster.get(NODE).json
    broken = copy.deepcopy(manifests)
    broken[0]["status"]["allocatable"]["cpu"] = "many"
    broken[1]["metadata"]["annotations"]["node.koordinator.sh/cpu-topology"] = "{"
    answer = send(cluster, broken)
    assert answer.status_code == 400
    assert "allocatable.cpu" in detail(answer)
    assert "node.koordinator.sh/cpu-topology" in detail(answer)
    assert cluster.get(NODE).json == before


@pytest.mark.parametrize(
    ("body", "content_type", "status", "message"),
    [
        (b"{", "application/json", 400, "Malformed JSON"),
        (b"a: [", "application/yaml", 400, "Malformed YAML"),
        (b"a: &x 1\nb: *x", "application/yaml", 400, "aliases"),
        (b"[]", "application/json", 400, "manifest"),
        (b'{"kind": "Pod"}', "application/json", 400, "kind"),
        (b'{"kind": "NodeResourceTopology"}', "application/json", 400, "Node is missing"),
        (b"x", "text/plain", 415, "media type"),
        (b"\xff\xfe", "application/yaml", 400, "Malformed YAML"),
        (b"[" * 5000, "application/yaml", 400, "Malformed YAML"),
    ],
)
def test_bad_bodies_are_refused(cluster, body, content_type, status, message):
    answer = cluster.put(NODE, body, Content_Type=content_type)
    assert answer.status_code == status, answer.text
    assert message in detail(answer)


def test_unknown_clusters_and_nodes_are_404_and_a_node_of_another_name_is_refused(api, manifests):
    assert send(api, manifests).status_code == 404
    api.put(CLUSTER)
    for call in (api.get, api.delete):
        assert call(NODE).status_code == 404
    answer = send(api, manifests, f"{CLUSTER}/nodes/other")
    assert (answer.status_code, "metadata.name" in detail(answer)) == (400, True)


@pytest.mark.both_databases
def test_a_node_is_deleted_with_its_tree_unless_somebody_uses_it(cluster, manifests):
    send(cluster, manifests)
    root = cluster.get(NODE).json["tree"]["uuid"]
    consumer = "1a2b3c4d-0000-4000-8000-000000000002"
    assert cluster.claim({root: {"CUSTOM_PODS": 1}}, consumer).status_code == 204
    refused = cluster.delete(NODE)
    assert refused.status_code == 409
    assert f"consumer {consumer} on edge/edge-01" in detail(refused)
    assert cluster.delete(CLUSTER).status_code == 409
    assert cluster.delete(f"/allocations/{consumer}").status_code == 204
    assert cluster.delete(NODE).status_code == 204
    assert cluster.get(f"/resource_providers/{root}").status_code == 404
    assert cluster.get("/resource_providers").json == {"resource_providers": []}
    assert cluster.delete(CLUSTER).status_code == 204


def test_the_host_of_a_node_goes_with_the_node_only(cluster):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare", "uid": "bare"}}
    node["status"] = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    path = f"{CLUSTER}/nodes/bare"
    assert cluster.put(path, {"node": node}).status_code == 201
    root = cluster.get(path).json["tree"]["uuid"]
    refused = cluster.delete(f"/resource_providers/{root}")
    assert refused.status_code == 409
    assert "edge/bare" in detail(refused)
    assert cluster.delete(path).status_code == 204


def test_searching_a_cluster_for_whole_cores_beside_a_vf(cluster, manifests):
    send(cluster, manifests)
    aggregate = cluster.get(CLUSTER).json["aggregate"]
    query = (
        f"resources=CUSTOM_PODS:1&member_of={aggregate}"
        "&resources_numa=MEMORY_MB:16384,CUSTOM_INTEL_COM_SRIOV_PHYSNET1:1"
        "&resources_a=PCPU:2&resources_b=PCPU:2&same_subtree=_numa,_a,_b&group_policy=isolate&limit=5"
    )
    found = cluster.get(f"/allocation_candidates?{query}").json["allocation_requests"]
    assert len(found) == 5
    body = {**found[0], **Client.allocations({})}
    body["allocations"] = found[0]["allocations"]
    assert cluster.put("/allocations/1a2b3c4d-0000-4000-8000-000000000003", body).status_code == 204
    assert cluster.get(NODE).json["resources"]["PCPU"]["used"] == 4
