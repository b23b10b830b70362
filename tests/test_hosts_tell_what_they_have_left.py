"""Hosts, clusters and nodes tell their use and their state; a service tells which one it is."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version

import pytest

from placement import DISTRIBUTION
from tests.client import Client, detail
from tests.kubernetes import node_manifests, pod_manifest
from tests.questions import words

HOSTS = "/ext/v1/hosts"
EDGE = "/ext/v1/clusters/edge"
NODE = f"{EDGE}/nodes/edge-01"


@pytest.fixture
def edge(api: Client) -> Client:
    """A cluster with a host of Kubernetes, and a host and a pool of storage in none."""
    assert api.put(EDGE).status_code == 201
    assert api.put(NODE, node_manifests("edge-01")).status_code == 201
    host = api.provider("compute", VCPU={"total": 8, "allocation_ratio": 2.0}, MEMORY_MB=100)
    pool = api.provider("pool", DISK_GB=1000)
    api.carry(pool, "MISC_SHARES_VIA_AGGREGATE")
    assert api.claim({host: {"VCPU": 3}}).status_code == 204
    return api


def test_a_host_has_the_capacity_and_use_of_its_tree_and_shared_storage_is_none(edge: Client):
    first, second = edge.get(HOSTS).json["hosts"]
    assert (first["cluster"], second["cluster"], second["name"]) == ("edge", None, "compute")
    assert second["resources"] == {
        "VCPU": {"capacity": 16, "used": 3},
        "MEMORY_MB": {"capacity": 100, "used": 0},
    }
    assert edge.get(f"{HOSTS}?cluster=edge").json["hosts"] == [first]
    assert "No cluster egde found" in detail(edge.get(f"{HOSTS}?cluster=egde"))


def test_pages_of_hosts_lose_none(edge: Client):
    whole = edge.get(HOSTS).json
    first = edge.get(f"{HOSTS}?limit=1").json
    rest = edge.get(f"{HOSTS}?limit=1&after={first['next']}").json
    assert (first["hosts"] + rest["hosts"], rest["next"], whole["next"]) == (whole["hosts"], None, None)


def test_a_cluster_has_the_sums_of_its_hosts_if_they_are_asked_for(edge: Client):
    (host,) = edge.get(f"{HOSTS}?cluster=edge").json["hosts"]
    assert edge.put("/ext/v1/clusters/empty").status_code == 201
    of_edge, empty = edge.get("/ext/v1/clusters?include=use").json["clusters"]
    assert (of_edge["hosts"], of_edge["resources"]) == (1, host["resources"])
    assert (empty["hosts"], empty["resources"]) == (0, {})
    assert "resources" not in edge.get("/ext/v1/clusters").json["clusters"][0]
    assert "include: must be use" in detail(edge.get("/ext/v1/clusters?include=state"))


def test_the_overview_counts_what_all_pods_request_as_the_hosts_do(edge: Client):
    assert edge.put(f"{EDGE}/pods/default/web", pod_manifest()).status_code == 201
    node = edge.get(HOSTS).json["hosts"][0]["resources"]
    page = edge.get("/ui/?format=json").json
    cpus, memory = (page["figures"]["use"][name] for name in ("CPU", "Memory"))
    of_node = node["CUSTOM_NODE_CPU_MILLI"]
    assert of_node["used"] > 0
    # The other host has no class that counts all pods.
    assert (cpus["used"], cpus["capacity"]) == (of_node["used"] / 1000, of_node["capacity"] / 1000)
    assert memory["used"] == node["CUSTOM_NODE_MEMORY_MB"]["used"] > node["MEMORY_MB"]["used"] == 0
    (named,) = (
        each for each in edge.get("/ui/hosts?class=NODE_CPU_MILLI&format=json").json["hosts"] if each["whole"]
    )
    assert named["whole"] == of_node["capacity"], "a class may be named as pages call it"
    first = [each["class"] for each in page["groups"][0]["resources"][:2]]
    assert first == ["CUSTOM_NODE_CPU_MILLI", "CUSTOM_NODE_MEMORY_MB"]


def test_a_node_tells_its_pods_and_why_it_is_closed_if_that_is_asked_for(edge: Client):
    (named,) = edge.get(f"{EDGE}/nodes").json["nodes"]
    assert named.keys() == {"name", "resource_provider", "created_at"}
    assert edge.put(f"{EDGE}/pods/default/web", pod_manifest()).status_code == 201
    (node,) = edge.get(f"{EDGE}/nodes?include=state").json["nodes"]
    assert (node["pods"], node["closed"]) == (1, [])
    assert edge.put(NODE, node_manifests("edge-01", spec={"unschedulable": True})).status_code == 200
    (node,) = edge.get(f"{EDGE}/nodes?include=state").json["nodes"]
    assert (node["pods"], node["closed"]) == (1, ["cordoned"])


def test_the_page_of_a_host_says_first_why_its_node_is_closed(edge: Client):
    (node,) = edge.get(f"{EDGE}/nodes").json["nodes"]
    page = f"/ui/hosts/{node['resource_provider']}"
    assert "cordoned" not in edge.get(page).text
    closed = {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    assert edge.put(NODE, node_manifests("edge-01", spec=closed)).status_code == 200
    shown = edge.get(page).text
    assert '<span class="tag warn">cordoned</span> it is cordoned' in shown
    assert '<span class="tag warn">tainted</span> the taint gpu' in shown
    assert 'href="/ui/map" data-key="m" aria-current="page"' in shown
    assert ".tag.warn {" in edge.get("/ui/static/pages.css").text, "the badge has a colour"


def test_figures_count_nodes_by_the_states_of_the_list_of_nodes(edge: Client):
    taint = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    specs = {"edge-02": taint, "edge-03": taint, "edge-04": {"unschedulable": True}}
    for name, spec in specs.items():
        assert edge.put(f"{EDGE}/nodes/{name}", node_manifests(name, spec=spec)).status_code == 201
    listed = edge.get(f"{EDGE}/nodes?include=state").json["nodes"]
    counts = Counter(state for node in listed for state in node["closed"] or ["open"])
    assert counts == {"open": 1, "tainted": 2, "cordoned": 1}
    figures = edge.get("/ui/figures?format=json").json
    assert (figures["nodes"], figures["nodes_not_open"]) == (4, 3)
    assert {**figures["states"], "open": 1} == counts
    shown = words(edge.get("/ui/figures").text)
    assert "Nodes not open 3 of 4: 1 cordoned, 2 tainted" in shown
    assert "Closed" not in shown
    rows = words(edge.get("/ui/refusals").text)
    assert "edge/edge-02 tainted the taint gpu" in rows
    assert "edge/edge-04 cordoned it is cordoned" in rows


def test_consumers_are_listed_with_their_hosts_and_by_host(edge: Client):
    other, compute = (edge.get(HOSTS).json["hosts"][at] for at in (0, 1))
    pool = edge.get("/resource_providers?name=pool").json["resource_providers"][0]["uuid"]
    assert edge.claim({compute["uuid"]: {"VCPU": 1}, pool: {"DISK_GB": 1}}).status_code == 204
    page = edge.get("/ui/consumers").text
    assert page.count(f'<a href="/ui/hosts/{compute["uuid"]}">compute</a>') == 2
    assert f'<a href="/ui/hosts/{pool}">pool</a>' in page
    for name, count in (("pool", 1), ("compute", 2), (other["name"], 0)):
        assert len(edge.get(f"/ui/consumers?host={name}&format=json").json["consumers"]) == count
        assert (
            f'<span class="note">{count}</span>' in edge.get(f"/ui/consumers?host={name}").text or not count
        )


def test_why_not_counts_hosts_first_by_the_cluster_that_is_asked_about(edge: Client):
    for cluster, of in (("edge", "1 of 2"), ("", "0 of 2")):
        page = edge.get(f"/ui/why?kind=query&query=resources%3DVCPU:400&cluster={cluster}").text
        assert of in page
        assert ("in cluster edge" in page) is bool(cluster)


def test_a_service_tells_its_release_its_database_and_the_caller(edge: Client):
    status = edge.get("/ext/v1/status").json
    assert (status["release"], status["user_id"]) == (version(DISTRIBUTION), "admin")
    assert status["clusters"] is None
    assert status["database"] in ("sqlite", "postgresql")
    assert [check["name"] for check in status["checks"]][-1] == "forest-loaded"
