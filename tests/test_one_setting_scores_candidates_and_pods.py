"""A cluster says in one setting and one vocabulary how candidates, pods and NUMA nodes are scored."""

from __future__ import annotations

from typing import Any

import pytest

from placement.allocations.orders import pod_scoring
from placement.engine.scoring.order import Strategy
from placement.providers.statements import clusters
from placement.storage.database import Database
from tests.client import Client
from tests.kubernetes import CLUSTER, NUMA_POLICY, pod_manifest
from tests.kubernetes import add_nodes as nodes
from tests.naive_scoring import naive_score, naive_sum
from tests.test_candidates_come_best_first import search

pytestmark = pytest.mark.one_database

PODS = f"{CLUSTER}/pods"
RISING = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
PACKING = {"type": "RequestedToCapacityRatio", "shape": RISING}
GPU = "example.com/gpu"
CPU = {"name": "VCPU"}


def cluster(api: Client, **settings: Any) -> dict[str, Any]:
    answer = api.put(CLUSTER, settings)
    assert answer.status_code in (200, 201), answer.text
    return api.get(CLUSTER).json


def run(api: Client, name: str, manifest: dict[str, Any]) -> str:
    answer = api.put(f"{PODS}/default/{name}", manifest)
    assert answer.status_code == 201, answer.text
    node: str = answer.json["node"]
    return node


def preview(api: Client, manifest: dict[str, Any]) -> list[tuple[str, int]]:
    answer = api.post(f"{PODS}/preview", {"pod": manifest})
    assert answer.status_code == 200, answer.text
    return [(node["name"], node["score"]) for node in answer.json["nodes"]]


def with_gpus(manifest: dict[str, Any], count: int) -> dict[str, Any]:
    resources = manifest["spec"]["containers"][0]["resources"]
    for side in resources.values():
        side[GPU] = str(count)
    return manifest


def shared_pod(cpu: str, memory: str = "1Gi", **given: Any) -> dict[str, Any]:
    manifest = pod_manifest(cpu=cpu, qos="LS", priority=None, **given)
    for side in manifest["spec"]["containers"][0]["resources"].values():
        side["memory"] = memory
    return manifest


def test_a_pod_goes_where_a_packing_shape_sends_it(api):
    cluster(api, scoring={"pods": PACKING})
    nodes(api, "n1", "n2", "n3")
    run(api, "first", pod_manifest(cpu="2", node="n2"))
    assert [run(api, f"p{number}", pod_manifest(cpu="4")) for number in range(4)] == ["n2", "n2", "n2", "n1"]


def test_a_shape_may_fill_nodes_to_a_mark_and_then_take_the_next(api):
    shape = [*RISING[:1], {"utilization": 50, "score": 10}, {"utilization": 51, "score": 0}]
    cluster(api, scoring={"pods": {**PACKING, "shape": shape, "resources": [{"name": "cpu"}]}})
    nodes(api, "n1", "n2")
    assert [run(api, f"p{number}", pod_manifest(cpu="4")) for number in range(4)] == ["n1", "n1", "n2", "n2"]


def test_weights_decide_between_resources(api):
    resources = [{"name": GPU, "weight": 5}, {"name": "cpu", "weight": 1}]
    cluster(api, scoring={"pods": {**PACKING, "resources": resources}})
    nodes(api, "cpus", "gpus", **{"example.com__gpu": "8"})
    run(api, "a", pod_manifest(cpu="8", node="cpus"))
    run(api, "b", with_gpus(pod_manifest(cpu="2", node="gpus"), 4))
    wanted = with_gpus(pod_manifest(cpu="2"), 2)
    # Of the GPUs 75 and 25 of 100 with the weight 5, of the CPUs 25 and 62.
    assert preview(api, wanted) == [("gpus", 67), ("cpus", 31)]
    # Without GPUs in the request only the CPUs count.
    assert preview(api, pod_manifest(cpu="2")) == [("cpus", 62), ("gpus", 25)]
    swapped = [{"name": GPU, "weight": 1}, {"name": "cpu", "weight": 5}]
    cluster(api, scoring={"pods": {**PACKING, "resources": swapped}})
    assert run(api, "web", wanted) == "cpus"


def test_preview_and_prioritize_agree_with_the_rules(api):
    nodes_used = {"n1": ("2", "6Gi"), "n2": ("6", "4Gi"), "n3": ("9", "1Gi")}
    cluster(api)
    nodes(api, *nodes_used)
    for node, (cpu, memory) in nodes_used.items():
        run(api, f"on-{node}", shared_pod(cpu, memory, node=node))
    for kind in (PACKING, {"type": "BalancedAllocation"}, {"type": "MostAllocated"}, "spread"):
        cluster(api, scoring={"pods": kind})
        expected = {}
        for node, (cpu, memory) in nodes_used.items():
            expected[node] = naive_score(
                strategy_of(kind),
                {"cpu": 3, "memory": 2},
                {"cpu": 16, "memory": 32},
                {"cpu": int(cpu), "memory": int(memory.removesuffix("Gi"))},
            ).score
        manifest = shared_pod("3", "2Gi")
        shown = preview(api, manifest)
        assert dict(shown) == expected
        assert shown == sorted(shown, key=lambda ranked: (-ranked[1], ranked[0]))
        answer = api.post(
            f"{CLUSTER}/extender/prioritize", {"Pod": manifest, "NodeNames": sorted(nodes_used)}
        )
        assert {entry["Host"]: entry["Score"] for entry in answer.json} == {
            node: score // 10 for node, score in expected.items()
        }


def strategy_of(given: Any) -> Strategy:
    """A strategy for pods: over cpu and memory, on the scale 0 to 100."""
    (strategy,) = pod_scoring({"scoring": {"pods": given}}).strategies
    assert strategy.max_score == 100
    assert strategy.resources == (("cpu", 1), ("memory", 1))
    return strategy


POLICY = {
    "kind": "Policy",
    "apiVersion": "v1",
    "priorities": [
        {"name": "LeastRequestedPriority", "weight": 1},
        {"name": "BalancedResourceAllocation", "weight": 2},
        {
            "name": "RequestedToCapacityRatioPriority",
            "weight": 4,
            "argument": {
                "requestedToCapacityRatioArguments": {
                    "shape": RISING,
                    "resources": [{"name": GPU, "weight": 3}, {"name": "memory"}],
                }
            },
        },
    ],
}


@pytest.mark.parametrize("setting", [POLICY, {"pods": POLICY}], ids=["for all", "for pods"])
def test_pods_are_scored_by_the_weighted_sum_of_all_priorities_of_a_policy(api, setting):
    nodes_used = {"n1": ("2", "6Gi", 4), "n2": ("6", "4Gi", 0), "n3": ("9", "1Gi", 6)}
    shown = cluster(api, scoring=setting)
    assert "remarks" not in shown
    nodes(api, *nodes_used, **{"example.com__gpu": "8"})
    for node, (cpu, memory, gpus) in nodes_used.items():
        run(api, f"on-{node}", with_gpus(shared_pod(cpu, memory, node=node), gpus))
    order, request = pod_scoring({"scoring": {"pods": POLICY}}), {"cpu": 3, "memory": 2, GPU: 1}
    assert order.max_score == 700
    expected = {
        node: naive_sum(
            order,
            request,
            {"cpu": 16, "memory": 32, GPU: 8},
            {"cpu": int(cpu), "memory": int(memory.removesuffix("Gi")), GPU: gpus},
        )
        for node, (cpu, memory, gpus) in nodes_used.items()
    }
    manifest = with_gpus(shared_pod("3", "2Gi"), 1)
    ranked = sorted(expected.items(), key=lambda each: (-each[1], each[0]))
    assert preview(api, manifest) == ranked
    answer = api.post(f"{CLUSTER}/extender/prioritize", {"Pod": manifest, "NodeNames": sorted(nodes_used)})
    assert {entry["Host"]: entry["Score"] for entry in answer.json} == {
        node: score * 100 // 700 // 10 for node, score in expected.items()
    }
    assert run(api, "web", manifest) == ranked[0][0]


@pytest.mark.parametrize(("numa", "cpus"), [("pack", "4-5"), ("spread", "8-9"), (None, "8-9")])
def test_numa_nodes_are_scored_by_their_own_part(api, numa, cpus):
    cluster(api, scoring={"pods": "pack", "numa": numa})
    nodes(api, "n1", labels={NUMA_POLICY: "SingleNUMANode"})
    run(api, "wide", pod_manifest(cpu="4", name="wide"))
    run(api, "other", pod_manifest(cpu="2", name="other"))
    chosen = api.get(f"{PODS}/default/other").json["cpuset"]
    assert chosen == cpus


@pytest.mark.parametrize(
    "pods",
    [
        PACKING,
        {**PACKING, "resources": [{"name": "cpu", "weight": 1}, {"name": "memory"}], "max_score": 10},
        {**PACKING, "resources": [{"name": "VCPU"}, {"name": "MEMORY_MB"}]},
        [PACKING],
        {"strategies": [PACKING]},
        "pack",
    ],
    ids=["strategy", "kubernetes names", "classes", "list", "object", "name"],
)
def test_the_same_is_said_in_many_ways(pods):
    assert strategy_of(pods) == strategy_of(PACKING)


def test_what_a_policy_says_in_vain_is_remarked_where_it_orders_candidates(api):
    api.offer(api.provider("host"), VCPU={"total": 8})
    policy = {**POLICY, "priorities": [{"name": "SelectorSpreadPriority"}, *POLICY["priorities"][:2]]}
    policy["predicates"] = [{"name": "PodFitsPorts"}]
    answer = search(api, order_by=policy)
    assert answer.json["remarks"] == [
        "order_by.priorities[0]: 'SelectorSpreadPriority' does not score amounts of resources; "
        "it has no effect",
        "order_by.predicates[0]: 'PodFitsPorts' has no effect: no Policy filters nodes here",
    ]
    assert "remarks" not in search(api, order_by="pack").json


def test_candidates_and_pods_are_scored_apart(api):
    hosts = {api.provider(name): name for name in ("full", "empty")}
    for uuid, name in hosts.items():
        api.offer(uuid, VCPU={"total": 8}, MEMORY_MB={"total": 1000})
        assert api.claim({uuid: {"VCPU": 6 if name == "full" else 2}}).status_code == 204
    least = {"type": "LeastAllocated", "resources": [{"name": "cpu"}]}
    shown = cluster(api, scoring={"candidates": least, "pods": PACKING})
    assert shown["scoring"] == {"candidates": least, "pods": PACKING}
    for uuid in hosts:
        api.join(uuid, shown["aggregate"])

    def order(**parameters: Any) -> list[str]:
        found = search(api, cluster="edge", **parameters).json["allocation_requests"]
        return [hosts[next(iter(element["allocations"]))] for element in found]

    assert order() == ["empty", "full"]
    assert order(order_by={**least, "type": "MostAllocated"}) == ["full", "empty"]
    cluster(api, scoring={"candidates": "pack"})
    assert order() == ["full", "empty"]
    cluster(api, scoring="spread")
    assert order() == ["empty", "full"]
    nodes(api, "n1", "n2")
    # The setting alone is about candidates: pods spread as they do by default.
    assert {run(api, f"p{number}", pod_manifest(cpu="4")) for number in range(2)} == {"n1", "n2"}


def store(database: Database, **settings: Any) -> None:
    """Settings as another release may have left them, whatever this one would say of them."""
    with database.write() as transaction:
        id_ = clusters.lock(transaction, "edge")
        clusters.update_settings(transaction, id_, {"profile": "design", "description": "", **settings})


def test_a_class_under_two_names_counts_once(api, database: Database):
    """The host with most free is "cores" if both resources weigh the same, "memory" if CPUs weigh more."""
    hosts = {api.provider(name): name for name in ("cores", "memory")}
    for uuid, name in hosts.items():
        api.offer(uuid, VCPU={"total": 8}, MEMORY_MB={"total": 1000})
        use = {"VCPU": 6} if name == "cores" else {"VCPU": 4, "MEMORY_MB": 500}
        assert api.claim({uuid: use}).status_code == 204
        api.join(uuid, cluster(api)["aggregate"])

    def first() -> str:
        found = search(api, cluster="edge").json["allocation_requests"]
        return hosts[next(iter(found[0]["allocations"]))]

    def least(*resources: tuple[str, int]) -> dict[str, Any]:
        listed = [{"name": name, "weight": weight} for name, weight in (*resources, ("memory", 1))]
        return {"candidates": {"type": "LeastAllocated", "resources": listed}}

    cluster(api, scoring=least(("cpu", 1), ("VCPU", 1)))
    assert first() == "cores"
    cluster(api, scoring=least(("VCPU", 9), ("cpu", 9)))
    assert first() == "memory"
    # Before both names were understood, only the class's own counted.
    store(database, scoring=least(("cpu", 9), ("VCPU", 1)))
    assert first() == "cores"
    store(database, scoring=least(("cpu", 1), ("VCPU", 9)))
    assert first() == "memory"
    assert api.put(CLUSTER, {"scoring": least(("cpu", 1), ("VCPU", 9))}).status_code == 400


FORMER = [
    ({"hostScoring": {"type": "MostAllocated"}}, [("n2", 53), ("n1", 31)]),
    ({"hostScoring": {"type": "MostAllocated", "resources": None}}, [("n2", 53), ("n1", 31)]),
    (
        {"hostScoring": {"type": "MostAllocated", "resources": [{"name": "memory", "weight": None, "x": 1}]}},
        [("n1", 12), ("n2", 6)],
    ),
    (
        {"hostScoring": {"type": "LeastAllocated", "resources": [{"name": "cpu"}, {"name": "VCPU"}]}},
        [("n1", 50), ("n2", 0)],
    ),
    ({"scoring": "pack"}, [("n1", 68), ("n2", 46)]),
    ({"scoring": [{"type": "LeastAllocated", "scope": "allocated"}]}, [("n1", 68), ("n2", 46)]),
]


@pytest.mark.parametrize(("settings", "ranked"), FORMER)
def test_settings_that_are_stored_in_former_words_are_read(api, database: Database, settings, ranked):
    cluster(api)
    nodes(api, "n1", "n2")
    run(api, "a", shared_pod("4", "2Gi", node="n1"))
    run(api, "b", shared_pod("12", "0", node="n2"))
    store(database, **settings)
    assert preview(api, shared_pod("4", "2Gi")) == ranked
    shown = api.get(CLUSTER).json
    assert {name: shown[name] for name in settings} == settings
