"""Pods as queries for allocation candidates: the real endpoint takes each and finds what it says."""

from __future__ import annotations

import pytest

from tests.client import Client, detail
from tests.kubernetes import BIND, CLUSTER, NUMA_POLICY, RATIO, add_nodes, pod_manifest

pytestmark = pytest.mark.one_database

SINGLE = tuple((cpu, cpu, cpu // 4, cpu // 4) for cpu in range(8))


@pytest.fixture
def cluster(api: Client) -> Client:
    assert api.put(CLUSTER, {"nodeLabels": ["disk"]}).status_code == 201
    return api


def translated(api: Client, manifest: dict) -> dict:
    answer = api.post(f"{CLUSTER}/pods/translation", manifest)
    assert answer.status_code == 200, answer.text
    return answer.json


def queries_of(api: Client, manifest: dict) -> list[str]:
    return [entry["query"] for entry in translated(api, manifest)["queries"]]


def found(api: Client, query: str) -> list[dict]:
    answer = api.get(f"/allocation_candidates?{query}&limit=3")
    assert answer.status_code == 200, (query, answer.text)
    return answer.json["allocation_requests"]


def amounts(request: dict) -> dict[str, int]:
    total: dict[str, int] = {}
    for entry in request["allocations"].values():
        for name, amount in entry["resources"].items():
            total[name] = total.get(name, 0) + amount
    return total


PODS = [
    pod_manifest(cpu="4"),
    pod_manifest(cpu="3"),
    pod_manifest(cpu="4", spec={"requiredCPUBindPolicy": "FullPCPUs"}),
    pod_manifest(cpu="4", spec={"requiredCPUBindPolicy": "SpreadByPCPUs"}),
    pod_manifest(cpu="4", spec={"preferredCPUBindPolicy": "SpreadByPCPUs"}),
    pod_manifest(cpu="4", numa={"numaTopologyPolicy": "SingleNUMANode"}),
    pod_manifest(cpu="12", numa={"numaTopologyPolicy": "Restricted"}),
    pod_manifest(cpu="4", numa={"numaTopologyPolicy": "BestEffort"}),
    pod_manifest(cpu="2500m", qos="LS", priority=None),
    pod_manifest(cpu="2500m", qos="LS", priority=None, numa={"numaTopologyPolicy": "SingleNUMANode"}),
    pod_manifest(cpu="2", requests={"hugepages-2Mi": "4Mi"}),
    pod_manifest(cpu=None, memory=None, qos=None, priority=None),
]


@pytest.mark.parametrize("manifest", PODS)
def test_every_query_is_accepted_and_some_query_finds_where_the_pod_goes(cluster, manifest):
    zones = {numa: {"cpu": "8", "memory": "16Gi", "hugepages-2Mi": "8Mi"} for numa in (0, 1)}
    add_nodes(cluster, "n1", zones=zones, **{"hugepages-2Mi": "16Mi"})
    queries = queries_of(cluster, manifest)
    assert len(queries) == len(set(queries)) > 0
    answers = [found(cluster, query) for query in queries]
    first = next(answer for answer in answers if answer)
    placed = cluster.put(f"{CLUSTER}/pods/default/web", manifest).json
    held = cluster.get(f"/allocations/{placed['consumer_uuid']}").json["allocations"]
    wanted = amounts({"allocations": held})
    asked = amounts(first[0])
    if wanted.get("PCPU"):
        # A query asks NUMA nodes for amounts only if the pod is aligned.
        wanted.pop("CUSTOM_CPU_MILLI", None)
        asked.pop("CUSTOM_CPU_MILLI", None)
    assert asked == wanted


def test_the_best_query_comes_first(cluster):
    add_nodes(cluster, "n1")
    queries = queries_of(cluster, pod_manifest(cpu="4"))
    assert [query.count("PCPU:2") for query in queries] == [2, 0]
    assert "group_policy=isolate" in queries[0]
    assert "group_policy=none" in queries[1]
    # One thread of every core is taken: no whole core is left, and only the last query says that it fits.
    spread = pod_manifest(cpu="8", node="n1", status={"cpuset": "0,2,4,6,8,10,12,14"})
    assert cluster.put(f"{CLUSTER}/pods/default/spread", spread).status_code == 201
    assert [bool(found(cluster, query)) for query in queries] == [False, True]


def test_restricted_asks_for_one_numa_node_then_for_two(cluster):
    add_nodes(cluster, "n1")
    manifest = pod_manifest(cpu="12", numa={"numaTopologyPolicy": "Restricted"})
    queries = translated(cluster, manifest)["queries"]
    fits = [bool(found(cluster, entry["query"])) for entry in queries]
    assert fits == [False, False, True, True]
    assert "one NUMA node" in queries[0]["meaning"]
    assert "2 NUMA nodes" in queries[2]["meaning"]


def test_hosts_with_other_threads_per_core_get_a_query_of_their_own_if_the_pod_fits_there(cluster):
    add_nodes(cluster, "smt")
    add_nodes(cluster, "plain", rows=SINGLE)
    queries = queries_of(cluster, pod_manifest(cpu="9"))
    assert queries
    assert all("CUSTOM_SMT_2" in query for query in queries)
    queries = queries_of(cluster, pod_manifest(cpu="8"))
    assert any("CUSTOM_SMT_1" in query for query in queries)
    assert any("PCPU" in query for query in queries)
    queries = queries_of(cluster, pod_manifest(cpu="2"))
    assert any("CUSTOM_SMT_1" in query and "PCPU:1" in query for query in queries)
    assert any("CUSTOM_SMT_2" in query and "PCPU:2" in query for query in queries)
    for query in queries:
        assert found(cluster, query)


def test_policies_and_labels_of_hosts_are_traits(cluster):
    add_nodes(cluster, "spread", labels={BIND: "SpreadByPCPUs", "disk": "ssd"})
    add_nodes(cluster, "aligned", labels={NUMA_POLICY: "SingleNUMANode", "disk": "hdd"})
    strict = pod_manifest(cpu="4", spec={"requiredCPUBindPolicy": "FullPCPUs"}, nodeSelector={"disk": "hdd"})
    queries = queries_of(cluster, strict)
    assert all("CUSTOM_LABEL_DISK_HDD" in query for query in queries)
    assert all("!CUSTOM_KOORD_BIND_SPREAD_BY_PCPUS" in query for query in queries)
    assert [bool(found(cluster, query)) for query in queries] == [False, True]
    assert "CUSTOM_KOORD_NUMA_POLICY_SINGLE_NUMA_NODE" in queries[1]


@pytest.mark.parametrize("numa", [None, {"numaTopologyPolicy": "SingleNUMANode"}])
def test_hosts_that_get_their_policy_from_the_cluster_have_no_trait_to_require(api, numa):
    settings = {"profile": "design", "defaultNUMATopologyPolicy": "SingleNUMANode", "nodeLabels": ["disk"]}
    assert api.put(CLUSTER, settings).status_code == 201
    zones = {numa: {"cpu": "8", "memory": "16Gi"} for numa in (0, 1)}
    add_nodes(api, "restricted", zones=zones, labels={NUMA_POLICY: "Restricted"})
    add_nodes(api, "default", zones=zones)
    manifest = pod_manifest(cpu="4", numa=numa)
    queries = queries_of(api, manifest)
    placed = api.put(f"{CLUSTER}/pods/default/web", manifest).json
    assert placed["node"] == "default" or numa is None
    root = api.get("/resource_providers?name=edge/default").json["resource_providers"][0]["uuid"]
    roots = [
        {api.get(f"/resource_providers/{uuid}").json["root_provider_uuid"] for uuid in each["allocations"]}
        for query in queries
        for each in found(api, query)
    ]
    assert {root} in roots


def test_what_queries_cannot_say_is_said_in_words(cluster):
    add_nodes(cluster, "n1", annotations={RATIO: {"cpu": 1.5}}, cpu="24")
    manifest = pod_manifest(
        spec={"preferredCPUExclusivePolicy": "PCPULevel"},
        numa={"numaTopologyPolicy": "Restricted"},
        nodeSelector={"zone": "a"},
    )
    text = " ".join(translated(cluster, manifest)["not_expressed"])
    for part in ("nodeSelector: zone", "threads", "amplification", "PCPULevel", "split", "NUMA exclusivity"):
        assert part in text


def test_a_pod_that_nothing_could_take_gets_no_query_but_a_reason(cluster):
    add_nodes(cluster, "n1")
    add_nodes(cluster, "small", rows=SINGLE)
    large = [
        pod_manifest(cpu=cpus, spec={"preferredCPUBindPolicy": policy}, numa=numa)
        for cpus in ("17", "100000", "1e30")
        for policy in ("FullPCPUs", "SpreadByPCPUs")
        for numa in (None, {"numaTopologyPolicy": "BestEffort"})
    ]
    lacking = pod_manifest(requests={"example.com/dongle": "1"})
    why = [(lacking, "CUSTOM_EXAMPLE_COM_DONGLE")]
    for pod, words in [*why, *((each, "are more than the 16 of the largest host") for each in large)]:
        body = translated(cluster, pod)
        assert body["queries"] == []
        assert words in body["not_expressed"][0]
    refused = cluster.post(f"{CLUSTER}/pods/translation", pod_manifest(cpu="1500m"))
    assert refused.status_code == 400
    assert "must be integer" in detail(refused)
