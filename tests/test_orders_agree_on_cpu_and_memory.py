"""On Kubernetes nodes cpu and memory are what pods consume, whichever strategy or order scores candidates."""

from __future__ import annotations

from typing import Any

import pytest

from placement.allocations.candidates import SearchSettings
from placement.allocations.orders import order_of
from placement.engine.domain.errors import parameter
from tests.client import Client
from tests.conftest import application_at
from tests.kubernetes import CLUSTER, add_nodes, pod_manifest
from tests.naive_scoring import naive_score
from tests.test_candidates_come_best_first import RAMP, search

pytestmark = pytest.mark.one_database

FOO = "CUSTOM_INTEL_COM_FOO"
CPU, MEMORY = "CUSTOM_NODE_CPU_MILLI", "CUSTOM_NODE_MEMORY_MB"
POD = f"{CPU}:2000,{MEMORY}:256,{FOO}:2"
# The two nodes of the example in the documentation of kube-scheduler.
CAPACITY = {"node-1": {CPU: 8000, MEMORY: 1024, FOO: 4}, "node-2": {CPU: 8000, MEMORY: 1024, FOO: 8}}
USED = {"node-1": {CPU: 1000, MEMORY: 256, FOO: 1}, "node-2": {CPU: 6000, MEMORY: 512, FOO: 2}}
RATIO = {"type": "RequestedToCapacityRatio", "shape": RAMP}
ORDERS = {
    "pack": "pack",
    "spread": "spread",
    "least": "LeastAllocated",
    "most": "MostAllocated",
    "balanced": "BalancedAllocation",
    "names": {**RATIO, "resources": [{"name": "CPU", "weight": 3}, {"name": "Memory"}]},
    "classes": {**RATIO, "resources": [{"name": "VCPU", "weight": 3}, {"name": "MEMORY_MB"}]},
    "extended": {**RATIO, "resources": [{"name": FOO, "weight": 5}, {"name": "cpu", "weight": 3}]},
    "policy": {
        "kind": "Policy",
        "priorities": [
            {
                "name": "RequestedToCapacityRatioPriority",
                "argument": {
                    "requestedToCapacityRatioArguments": {
                        "shape": RAMP,
                        "resources": [
                            {"name": "intel.com/foo", "weight": 5},
                            {"name": "CPU", "weight": 3},
                            {"name": "Memory", "weight": 1},
                        ],
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def nodes(api: Client) -> dict[str, str]:
    """The nodes' names by the uuids of their hosts."""
    assert api.put(CLUSTER).status_code == 201
    for name, foo, cpu, memory, used in (
        ("node-1", "4", "1", "256Mi", "1"),
        ("node-2", "8", "6", "512Mi", "2"),
    ):
        offered = {"cpu": "8", "memory": "1Gi"}
        add_nodes(api, name, zones={0: offered}, **offered, **{"intel.com__foo": foo})
        running = pod_manifest(cpu, memory, qos="LS", requests={"intel.com/foo": used}, node=name)
        assert api.put(f"{CLUSTER}/pods/default/on-{name}", running).status_code == 201
    providers = api.get("/resource_providers").json["resource_providers"]
    hosts = {each["name"].removeprefix("edge/"): each["uuid"] for each in providers}
    return {hosts[name]: name for name in CAPACITY}


def found(answer: Any, nodes: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The score of each node with its parts, best first."""
    elements = answer.json["allocation_requests"]
    parts = {nodes.get(next(iter(each["allocations"])), "other"): each["score_parts"] for each in elements}
    return {name: alone for name, (alone,) in parts.items()}


def expected(given: Any, node: str, request: dict[str, int]) -> tuple[int, dict[str, Any]]:
    """The score and its parts, of a strategy written with the classes that pods consume."""
    order = order_of(given, parameter("order_by"))
    assert order is not None
    names = {"VCPU": CPU, "MEMORY_MB": MEMORY, FOO: FOO}
    (strategy,) = order.with_names(names.__getitem__, stored=True).strategies
    score = naive_score(strategy, request, CAPACITY[node], USED[node])
    return score.score, score.resources


def assert_by_nodes(answer: Any, nodes: dict[str, str], given: Any, request: dict[str, int]) -> None:
    scored = found(answer, nodes)
    assert {name: (each["score"], each["resources"]) for name, each in scored.items()} == {
        name: expected(given, name, request) for name in CAPACITY
    }
    assert list(scored) == sorted(scored, key=lambda name: -scored[name]["score"])


@pytest.mark.parametrize("given", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("profile", ["design", "koord-scheduler"])
def test_every_order_scores_nodes_by_what_pods_consume(api, nodes, given, profile):
    request = {CPU: 2000, MEMORY: 256, FOO: 2}
    assert_by_nodes(search(api, POD, cluster="edge", order_by=given), nodes, given, request)
    assert_by_nodes(search(api, POD, order_by=given), nodes, given, request)
    for scoring in (given, {"candidates": given}):
        assert api.put(CLUSTER, {"scoring": scoring, "profile": profile}).status_code == 200
        assert_by_nodes(search(api, POD, cluster="edge"), nodes, given, request)
        # Of what the request does not ask for, the use counts.
        assert_by_nodes(search(api, f"{FOO}:2", cluster="edge"), nodes, given, {FOO: 2})


def test_the_order_of_the_service_scores_nodes_by_what_pods_consume(
    connection_url: str, nodes: dict[str, str]
):
    settings = SearchSettings(order=order_of("pack", parameter("[scoring] order_by")))
    with application_at(connection_url, settings) as application:
        ordered, request = Client(application.test_client()), {CPU: 2000, MEMORY: 256, FOO: 2}
        assert_by_nodes(search(ordered, POD, cluster="edge"), nodes, "pack", request)
        assert_by_nodes(search(ordered, POD), nodes, "pack", request)
        assert_by_nodes(search(ordered, f"{FOO}:2", cluster="edge"), nodes, "pack", {FOO: 2})


@pytest.mark.parametrize(
    "given", ["pack", ORDERS["names"], ORDERS["policy"]], ids=["pack", "names", "policy"]
)
def test_instances_are_scored_by_what_they_consume(api, nodes, given):
    """Flat hosts may be in a cluster beside nodes, and have no use in the classes of nodes."""
    flat = api.provider("flat")
    api.offer(flat, VCPU={"total": 8}, MEMORY_MB={"total": 1000})
    api.join(flat, api.get(CLUSTER).json["aggregate"])
    assert api.claim({flat: {"VCPU": 4, "MEMORY_MB": 250}}).status_code == 204
    scored = found(search(api, "VCPU:2", cluster="edge", order_by=given), {flat: "flat"})
    resources = scored["flat"]["resources"]
    assert {name: resources[name]["utilization"] for name in ("VCPU", "MEMORY_MB")} == {
        "VCPU": 75,
        "MEMORY_MB": 25,
    }
    assert resources.keys().isdisjoint({CPU, MEMORY})


def test_the_scope_allocated_tells_numa_nodes_apart_by_their_memory(api, nodes):
    listed = {**RATIO, "resources": [{"name": "memory"}], "scope": "allocated"}
    asked = {"resources_numa": "MEMORY_MB:256"}
    answer = search(api, f"{CPU}:2000", cluster="edge", order_by=listed, group_policy="none", **asked)
    scores = [each["score_parts"][0]["resources"] for each in answer.json["allocation_requests"]]
    assert scores == [{"MEMORY_MB": {"utilization": 25, "score": 2, "weight": 1}}] * 2


def test_the_weight_of_the_class_that_pods_consume_counts(api, nodes):
    both = [{"name": "VCPU", "weight": 1}, {"name": CPU, "weight": 5}, {"name": "memory", "weight": 2}]
    scored = found(search(api, POD, cluster="edge", order_by={**RATIO, "resources": both}), nodes)
    weights = {name: part["weight"] for name, part in scored["node-1"]["resources"].items()}
    assert weights == {CPU: 5, MEMORY: 2}
