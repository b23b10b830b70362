"""Capacity over HTTP: it is what claims then place, by cluster, aggregate and host, and in other worlds."""

from __future__ import annotations

import itertools
import json
import random
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from placement.allocations import group_rules
from placement.allocations.candidates import SearchSettings
from placement.app import create_application
from placement.engine.search.budget import Budget
from placement.http.errors import Misconfigured
from placement.http.registry import registry_of
from tests.client import Client, detail
from tests.conftest import application_on, compatible, with_options
from tests.kubernetes import CLUSTER, cluster_of, node_manifests, pod_manifest
from tests.patience import eventually
from tests.probes import parsed

pytestmark = pytest.mark.one_database

CAPACITY = "/ext/v1/capacity"
POOL = str(uuid.UUID(int=0xABC))
QUERY = "resources=VCPU:2,MEMORY_MB:1024"
SMALL = {"query": {"groups": {"": {"resources": {"VCPU": 2, "MEMORY_MB": 1024}}}}}
TWO_CELLS = {
    "vcpus": 4,
    "memory_mb": 2048,
    "extra_specs": {"hw:numa_nodes": "2", "hw:cpu_policy": "dedicated"},
}
GRANULAR = {"flavor": TWO_CELLS, "options": {"numa": "granular"}}


@pytest.fixture
def hosts(api: Client) -> dict[str, str]:
    """Three flat hosts, two of which are in an aggregate; their uuids."""
    uuids = {
        name: api.provider(name, VCPU=vcpu, MEMORY_MB=memory)
        for name, vcpu, memory in (("a", 8, 16384), ("b", 8, 2048), ("c", 3, 8192))
    }
    for name in ("a", "b"):
        api.join(uuids[name], POOL)
    return uuids


def asked(api: Client, kind: dict[str, Any], **parts: Any) -> Any:
    answer = api.post(CAPACITY, {"kinds": {"it": kind}, **parts})
    assert answer.status_code == 200, answer.text
    return answer.json["kinds"]["it"]


def total(api: Client, kind: dict[str, Any], **parts: Any) -> int:
    """What there is room for, which has to be exact."""
    found = asked(api, kind, **parts)["total"]
    assert found["exact"] == (found["lower"] == found["upper"]) is True
    return int(found["lower"])


def claims(api: Client, **wanted: Any) -> int:
    """How many claims succeed one after another."""
    owner = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    count = 0
    while (
        answer := api.post("/ext/v1/claims", {"consumer_uuid": str(uuid.uuid4()), **owner, **wanted})
    ).json:
        if answer.status_code != 201:
            assert answer.status_code == 409, answer.text
            break
        count += 1
    return count


def test_a_query_is_counted_by_aggregate_and_host(api, hosts):
    answer = api.get(f"{CAPACITY}?{QUERY}&by=aggregate,host").json["kinds"]["query"]
    assert answer["total"] == {
        "lower": 7,
        "upper": 7,
        "exact": True,
        "runs_out_first": "VCPU",
        "hosts": 3,
        "taking": 3,
        "ideal": 9,
        "fragmentation": round(1 - 7 / 9, 4),
        "classes": {
            "VCPU": {"free": 19, "wanted": 2, "stranded": 0},
            "MEMORY_MB": {"free": 26624, "wanted": 1024, "stranded": 0},
        },
    }
    assert "clusters" not in answer
    (pool,) = answer["aggregates"]
    assert (pool["aggregate"], pool["lower"], pool["hosts"]) == (POOL, 6, 2)
    by_name = {host["name"]: (host["lower"], host["runs_out_first"]) for host in answer["hosts"]}
    assert by_name == {"a": (4, "VCPU"), "b": (2, "MEMORY_MB"), "c": (1, "VCPU")}
    assert claims(api, query=QUERY) == 7
    full = api.get(f"{CAPACITY}?{QUERY}").json["kinds"]["query"]["total"]
    assert (full["lower"], full["taking"], full["ideal"], full["fragmentation"]) == (0, 0, 2, 1.0)
    assert {name: each["stranded"] for name, each in full["classes"].items()} == {
        "VCPU": 5,
        "MEMORY_MB": 19456,
    }


def test_worlds_that_differ_are_counted_and_nothing_is_written(api, hosts):
    assert total(api, SMALL, world={"without": ["a", hosts["c"]]}) == 2
    assert total(api, SMALL, world={"more": [{"like": "b", "count": 3}]}) == 13
    ratio = {"resource_class": "VCPU", "allocation_ratio": 2.0}
    assert total(api, SMALL, world={"inventories": [ratio]}) == 8 + 2 + 3
    assert total(api, SMALL, world={"inventories": [{**ratio, "hosts": ["c"]}]}) == 9
    on_a, like_a = [{**ratio, "hosts": ["a"]}], [{"like": "a", "count": 2}]
    # Hosts like one are offered on the terms that it has in this world, in either order.
    assert total(api, SMALL, world={"inventories": on_a}) == 8 + 2 + 1
    assert total(api, SMALL, world={"inventories": on_a, "more": like_a}) == 27
    assert total(api, SMALL, world={"more": like_a, "inventories": on_a}) == 27
    assert total(api, SMALL, world={"more": [{"like": "c", "count": 2}], "inventories": on_a}) == 8 + 2 + 3
    reserved = {"resource_class": "VCPU", "reserved": 7, "hosts": ["a", "b"]}
    assert total(api, SMALL, world={"inventories": [reserved]}) == 1
    found = asked(api, SMALL, world={"more": [{"like": "c", "count": 2}], "without": ["a"]}, by=["host"])
    assert sorted((host["name"], host.get("like")) for host in found["hosts"] if host["name"]) == [
        ("b", None),
        ("c", None),
    ]
    assert [host["like"] for host in found["hosts"] if not host["name"]] == [hosts["c"]] * 2
    assert total(api, SMALL) == total(api, {"querystring": QUERY}) == 7


@pytest.fixture
def patient() -> Iterator[Client]:
    """Requests to a service that ends no request and no search by time."""
    with application_on("sqlite", SearchSettings(seconds=3600), compatible(request_timeout=3600)) as made:
        yield Client(made.test_client())


@pytest.mark.parametrize("seed", [12, 16])
def test_one_claim_for_many_members_places_no_more_than_is_certain(
    patient: Client, monkeypatch: pytest.MonkeyPatch, seed: int
):
    """Unequal groups on unequal devices: one claim tries choices that claims one by one do not."""
    api = patient
    # Both are ended by their steps, on any machine.
    monkeypatch.setattr(group_rules, "_SECONDS", 600)
    monkeypatch.setattr(Budget, "half", lambda budget: Budget(None))
    chance = random.Random(seed)
    sizes = [(7, 3), (3, 11), (13, 5), (5, 17)][: chance.choice([2, 3, 4])]
    for number in range(chance.choice([2, 3])):
        host = api.provider(f"host-{number}", DISK_GB=1000)
        for at in range(chance.choice([5, 7])):
            offered = {"VCPU": chance.randint(10, 45), "MEMORY_MB": chance.randint(10, 45)}
            api.provider(f"device-{number}-{at}", host, **offered)
    groups = {
        f"_{number}": {"resources": {"VCPU": cpus, "MEMORY_MB": memory}}
        for number, (cpus, memory) in enumerate(sizes)
    }
    query = {"groups": groups, "group_policy": "isolate"}
    room = asked(api, {"query": query})["total"]
    assert room["lower"] < room["upper"]
    owner = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    many = {"members": [{"count": room["upper"]}], "rules": [{"kind": "at_most", "count": 1000}]}
    answer = api.post("/ext/v1/claims", {**owner, **many, "query": query})
    assert answer.status_code == 200, answer.text
    assert sum(each["status"] == 201 for each in answer.json["members"]) <= room["lower"]


def test_imagined_hosts_are_empty_and_have_all_that_the_one_has_they_are_like(api):
    host = api.provider("numa", DISK_GB=100)
    for number in range(2):
        node = api.provider(f"numa-{number}", host, PCPU=4, MEMORY_MB=4096)
        api.carry(node, "HW_NUMA_ROOT")
    api.join(host, POOL)
    assert total(api, GRANULAR) == 2
    assert claims(api, **GRANULAR) == 2
    assert total(api, GRANULAR) == 0
    found = asked(api, GRANULAR, world={"more": [{"like": "numa", "count": 5}]}, by=["aggregate"])
    assert found["total"]["lower"] == found["aggregates"][0]["lower"] == 10


def test_flavors_of_core_trees_are_counted_with_those_of_others(api):
    flat = api.provider("flat", DISK_GB=100, VCPU=16, PCPU=9, MEMORY_MB=65536)
    host = api.provider("cores", DISK_GB=100)
    memory = api.provider("cores-0", host, MEMORY_MB=65536)
    api.carry(memory, "HW_NUMA_ROOT")
    for number in range(5):
        api.provider(f"core-{number}", memory, PCPU=2)
    pinned = {"flavor": {"vcpus": 4, "memory_mb": 512, "extra_specs": {"hw:cpu_policy": "dedicated"}}}
    found = asked(api, pinned, by=["host"])
    assert {each["uuid"]: each["lower"] for each in found["hosts"]} == {flat: 2, host: 2}
    assert found["total"]["lower"] == found["total"]["upper"] == 4
    assert claims(api, **pinned) == 4


def test_sharing_providers_give_what_they_have_once(api):
    for number in range(3):
        host = api.provider(f"host-{number}", VCPU=8)
        api.join(host, POOL)
    disk = api.provider("disk", DISK_GB=50)
    api.carry(disk, "MISC_SHARES_VIA_AGGREGATE")
    api.join(disk, POOL)
    wanted = {"query": {"groups": {"": {"resources": {"VCPU": 2, "DISK_GB": 10}}}}}
    found = asked(api, wanted, by=["host", "aggregate"])
    assert [host["lower"] for host in found["hosts"]] == [4, 4, 4]
    assert found["total"]["lower"] == found["total"]["upper"] == 5
    assert found["total"]["runs_out_first"] == "DISK_GB"
    assert found["aggregates"][0]["lower"] == 5
    wanted = {"query": {"groups": {"": {"resources": {"VCPU": 99, "DISK_GB": 10}}}}}
    found = asked(api, wanted, by=["aggregate"])
    assert found["total"]["classes"] == found["aggregates"][0]["classes"]
    assert found["total"]["classes"]["DISK_GB"] == {"free": 50, "wanted": 10, "stranded": 50}


def placed(api: Client, pod: dict[str, Any]) -> int:
    """How many pods like this one are placed one after another."""
    numbers = itertools.count()
    return next(n for n in numbers if api.put(f"{CLUSTER}/pods/default/p-{n}", pod).status_code != 201)


def test_pods_are_counted_as_they_are_placed(api):
    cluster_of(api, "n1", "n2")
    plain = {"pod": pod_manifest("3", "1Gi", qos="LS")}
    found = asked(api, plain, cluster="edge", by=["cluster", "host"])
    assert (found["total"]["lower"], found["total"]["exact"]) == (10, True)
    assert found["clusters"][0]["cluster"] == "edge"
    first = [each["runs_out_first"] for each in (found["total"], *found["hosts"])]
    assert first == ["CUSTOM_NODE_CPU_MILLI"] * 3
    assert found["resources"]["CUSTOM_NODE_CPU_MILLI"] == "cpu"
    assert total(api, plain, cluster="edge", world={"without": ["n2"]}) == 5
    bound = {"pod": pod_manifest("6", "1Gi", qos="LSR")}
    assert total(api, bound, cluster="edge") == placed(api, bound["pod"]) == 4
    assert total(api, bound, cluster="edge") == 0
    plain["pod"]["spec"]["nodeSelector"] = {"disk": "none"}
    nobody = asked(api, plain, cluster="edge", by=["host"])
    assert (nobody["total"]["lower"], nobody["total"]["runs_out_first"], nobody["hosts"]) == (0, None, [])
    del plain["pod"]["spec"]["nodeSelector"]
    # No node has any of it, so that nothing is free in vain.
    plain["pod"]["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}
    nowhere = asked(api, plain, cluster="edge", by=["host"])
    assert nowhere["resources"]["CUSTOM_EXAMPLE_COM_GPU"] == "example.com/gpu"
    assert not any(of["stranded"] for of in nowhere["total"]["classes"].values())


def test_hosts_of_other_clusters_are_not_told_of(api, hosts):
    assert api.put(CLUSTER).status_code == 201
    for world in ({"without": ["a"]}, {"more": [{"like": "a", "count": 1}]}):
        body = {"kinds": {"it": SMALL}, "cluster": "edge", "world": world}
        assert "there is no host 'a' here" in detail(api.post(CAPACITY, body))


def test_watched_kinds_are_figures_beside_requests(hosts, application):
    registry = registry_of(application)
    watched = [f"small {QUERY}", 'web {"flavor": {"vcpus": 4, "memory_mb": 1024}}']
    settings = with_options(compatible(), "capacity", watch=watched)
    api = Client(create_application(registry, settings).test_client())

    def told() -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        return parsed(api.get("/metrics").text)

    eventually(True, lambda: any(name == "placement_capacity_room" for name, _ in told()))
    figures = told()
    small, web = ({"kind": kind, "cluster": ""}.items() for kind in ("small", "web"))
    assert figures["placement_capacity_room", frozenset(small)] == 7
    assert figures["placement_capacity_room_most", frozenset(small)] == 7
    assert figures["placement_capacity_room", frozenset(web)] == 4
    fragmentation = figures["placement_capacity_fragmentation_ratio", frozenset(small)]
    assert fragmentation == pytest.approx(2 / 9, abs=1e-4)
    stranded = frozenset((*web, ("resourcetype", "MEMORY_MB")))
    assert figures["placement_capacity_stranded", stranded] == 8192


@pytest.mark.parametrize(
    ("policy", "cpus"), [("SpreadByPCPUs", "2"), ("SpreadByPCPUs", "3"), ("FullPCPUsOnly", "2")]
)
def test_cpus_beside_given_ones_count_for_the_pods_that_follow(api, policy, cpus):
    assert api.put(CLUSTER).status_code == 201
    labels = {"node.koordinator.sh/cpu-bind-policy": policy}
    assert api.put(f"{CLUSTER}/nodes/n1", node_manifests("n1", labels=labels)).status_code == 201
    pod = pod_manifest(cpus, "1Gi", qos="LSR")
    room = asked(api, {"pod": pod}, cluster="edge")["total"]
    assert room["exact"] == (room["lower"] == room["upper"])
    assert max(1, room["lower"]) <= placed(api, pod) <= room["upper"]


@pytest.mark.parametrize("line", ["small", "small resource=VCPU:1", "small {", 'x {"pod": {"kind": "Pod"}}x'])
def test_bad_kinds_to_watch_keep_the_service_from_starting(application, line):
    settings = with_options(compatible(), "capacity", watch=[line])
    with pytest.raises(Misconfigured, match=r"\[capacity\] watch: "):
        create_application(registry_of(application), settings)


def test_candidates_are_found_in_other_worlds(api, hosts):
    path = "/ext/v1/allocation_candidates"

    def found(**world: Any) -> list[set[str]]:
        answer = api.get(f"{path}?{QUERY}&world={quote(json.dumps(world))}")
        assert answer.status_code == 200, answer.text
        body = {"groups": {"": {"resources": {"VCPU": 2, "MEMORY_MB": 1024}}}, "world": world}
        by_json = api.post(path, body).json
        assert len(by_json["allocation_requests"]) == len(answer.json["allocation_requests"])
        return [set(each["allocations"]) for each in answer.json["allocation_requests"]]

    before = api.get(f"{path}?{QUERY}").data
    everywhere = [{hosts[name]} for name in "abc"]
    assert found() == everywhere
    assert found(without=["a"]) == everywhere[1:]
    assert len(found(more=[{"like": "a", "count": 2}])) == 5
    assert found(inventories=[{"resource_class": "VCPU", "reserved": 8, "hosts": ["a"]}]) == everywhere[1:]
    # What was written of imagined hosts is not told of real ones.
    assert api.get(f"{path}?{QUERY}").data == before
    answer = api.get(f"{path}?{QUERY}&world=%7B%22without%22:%5B%22nobody%22%5D%7D")
    assert (answer.status_code, "world.without[0]" in detail(answer)) == (400, True)
    assert api.get(f"{path}?{QUERY}&world=x").status_code == 400
