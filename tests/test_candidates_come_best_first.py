"""Our own search orders, prefers, narrows and explains; the default order counts everywhere."""

from __future__ import annotations

import json
import uuid
from urllib.parse import urlencode

import pytest
from flask import Flask

from placement.allocations import candidate_query, candidates
from placement.allocations.candidates import SearchSettings
from placement.allocations.orders import order_of
from placement.app import build
from placement.engine.domain.errors import parameter
from placement.http import query_strings
from placement.http.registry import registry_of
from tests.client import Client, detail
from tests.conftest import compatible

pytestmark = pytest.mark.one_database

PATH = "/ext/v1/allocation_candidates"
RAMP = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
RATIO = {"type": "RequestedToCapacityRatio", "shape": RAMP}


@pytest.fixture
def hosts(api: Client) -> dict[str, str]:
    """Three hosts of 8 VCPU and 1000 MEMORY_MB, of which 6, 2 and 4 VCPU are used; uuids by name."""
    made = {}
    for name, used in (("full", 6), ("empty", 2), ("half", 4)):
        uuid = made[name] = api.provider(name)
        api.offer(uuid, VCPU={"total": 8}, MEMORY_MB={"total": 1000})
        assert api.claim({uuid: {"VCPU": used, "MEMORY_MB": 100}}).status_code == 204
    return made


def test_of_what_is_asked_nothing_long_is_kept(shared: Client):
    candidate_query._asked.cache_clear()
    search(shared, status=400, order_by="x" * query_strings.LONGEST_KEPT)
    assert candidate_query._asked.cache_info().currsize == 0
    search(shared, status=400, order_by="x")
    assert candidate_query._asked.cache_info().currsize == 1, "else this would show nothing"


def test_of_queries_as_placement_has_them_nothing_long_is_kept(shared: Client):
    candidate_query.parse_text.cache_clear()
    for most, kept in ((query_strings.LONGEST_KEPT, 0), (1, 1)):
        names = ",".join(f"CUSTOM_{number:02000}" for number in range(most // 2000 + 1))
        assert shared.get(f"/allocation_candidates?resources=VCPU:1&required={names}").status_code == 400
        assert candidate_query.parse_text.cache_info().currsize == kept


def search(api: Client, resources: str = "VCPU:1", status: int = 200, **parameters: object):
    given = {
        key: json.dumps(value) if isinstance(value, (dict, list)) else value
        for key, value in parameters.items()
    }
    answer = api.get(f"{PATH}?{urlencode({'resources': resources, **given})}")
    assert answer.status_code == status, answer.text
    return answer


def order(answer, hosts: dict[str, str]) -> list[str]:
    names = {uuid: name for name, uuid in hosts.items()}
    return [names[next(iter(element["allocations"]))] for element in answer.json["allocation_requests"]]


@pytest.mark.parametrize(
    ("order_by", "expected"),
    [
        ("pack", ["full", "half", "empty"]),
        ("spread", ["empty", "half", "full"]),
        ("MostAllocated", ["full", "half", "empty"]),
        ("LeastAllocated", ["empty", "half", "full"]),
        ("none", ["full", "empty", "half"]),
        (RATIO, ["full", "half", "empty"]),
        ([RATIO, {"type": "LeastAllocated", "weight": 3}], ["empty", "half", "full"]),
        (
            {
                "kind": "Policy",
                "apiVersion": "v1",
                "priorities": [
                    {
                        "name": "RequestedToCapacityRatioPriority",
                        "weight": 2,
                        "argument": {
                            "requestedToCapacityRatioArguments": {
                                "shape": RAMP,
                                "resources": [{"name": "cpu", "weight": 3}],
                            }
                        },
                    }
                ],
            },
            ["full", "half", "empty"],
        ),
    ],
    ids=["pack", "spread", "most", "least", "none", "ratio", "two", "policy"],
)
def test_order_by(api, hosts, order_by, expected):
    assert order(search(api, order_by=order_by), hosts) == expected
    assert order(search(api, order_by=order_by, limit=2), hosts) == expected[:2]


def test_each_element_tells_its_score_and_what_it_is_made_of(api, hosts):
    first = search(api, order_by=RATIO, limit=1).json["allocation_requests"][0]
    resources = {
        "VCPU": {"utilization": 87, "score": 8, "weight": 1},
        "MEMORY_MB": {"utilization": 10, "score": 1, "weight": 1},
    }
    part = {
        "type": "RequestedToCapacityRatio",
        "weight": 1,
        "score": 5,
        "max_score": 10,
        "resources": resources,
    }
    assert (first["score"], first["max_score"], first["score_parts"]) == (5, 10, [part])
    assert "score" not in search(api).json["allocation_requests"][0]


def test_hosts_by_their_trees_and_inside_them_nodes_and_cores(api):
    """Packing packs cores, too: the fuller host first, on it the fuller NUMA node, there the core begun."""
    cores = {}
    for host, used in (("calm", {"0-0": 1}), ("busy", {"0-0": 2, "1-0": 2, "1-1": 1})):
        root = api.provider(host)
        for node in "01":
            parent = api.provider(f"{host}-{node}", parent=root)
            for core in "012":
                name = f"{host} {node}-{core}"
                cores[name] = api.provider(name, parent=parent)
                api.offer(cores[name], PCPU={"total": 2})
                api.offer(parent, VCPU={"total": 12})
        for core, amount in used.items():
            assert api.claim({cores[f"{host} {core}"]: {"PCPU": amount}}).status_code == 204
    pcpu = {"type": "MostAllocated", "resources": [{"name": "PCPU"}]}
    found = search(api, "PCPU:1", order_by=[{**pcpu, "weight": 100}, {**pcpu, "scope": "allocated"}]).json[
        "allocation_requests"
    ]
    names = {uuid: name for name, uuid in cores.items()}
    ordered = [names[next(iter(element["allocations"]))] for element in found]
    assert ordered[0] == "busy 1-1"
    assert ordered[1:4] == ["busy 0-1", "busy 0-2", "busy 1-2"]
    assert ordered[4] == "calm 0-0"
    assert len(ordered) == 10
    assert [part["score"] for part in found[0]["score_parts"]] == [50, 100]


def test_preferences_are_soft_and_weighted(api, hosts):
    api.at("1.39").put("/traits/CUSTOM_SSD")
    api.carry(hosts["empty"], "CUSTOM_SSD")
    aggregate = "aaaaaaaa-0000-0000-0000-000000000001"
    api.join(hosts["half"], aggregate)
    assert order(search(api, prefer="CUSTOM_SSD"), hosts) == ["empty", "full", "half"]
    assert order(search(api, prefer="!CUSTOM_SSD"), hosts) == ["full", "half", "empty"]
    both = search(api, prefer=f"CUSTOM_SSD:2,{aggregate}:5")
    assert order(both, hosts) == ["half", "empty", "full"]
    first = both.json["allocation_requests"][0]
    assert (first["score"], first["max_score"]) == (500, 700)
    assert first["score_parts"] == [
        {"prefer": "CUSTOM_SSD", "weight": 2, "met": False},
        {"prefer": aggregate, "weight": 5, "met": True},
    ]
    assert order(search(api, prefer="CUSTOM_SSD", order_by="pack"), hosts)[0] == "empty"


def test_a_cluster_narrows_and_brings_its_order(api, hosts):
    assert api.put("/ext/v1/clusters/east", {"scoring": "spread"}).status_code == 201
    shown = api.get("/ext/v1/clusters/east").json
    assert shown["scoring"] == "spread"
    assert order(search(api, cluster="east"), hosts) == []
    for name in ("full", "half"):
        api.join(hosts[name], shown["aggregate"])
    assert order(search(api, cluster="east"), hosts) == ["half", "full"]
    assert order(search(api, cluster="east", order_by="pack"), hosts) == ["full", "half"]
    refused = api.put("/ext/v1/clusters/east", {"scoring": {"type": "Fastest"}})
    assert refused.status_code == 400
    assert detail(refused).startswith("scoring.type: must be one of ")


def test_explain_tells_why_in_figures_and_words(api, hosts):
    found = search(api, "VCPU:5", explain=1).json
    assert len(found["allocation_requests"]) == 1
    assert found["explanation"]["first_empty"] is None
    explanation = search(api, "VCPU:8", explain=1).json["explanation"]
    counted = {"counted": "providers", "came": 3, "providers": 0, "trees": 0}
    assert explanation["stages"][0] == {
        **{"group": "", "condition": "8 VCPU free", "kind": "amount", "resource_class": "VCPU", "wanted": 8},
        **counted,
        "trees_came": 3,
        "sentence": "8 VCPU free: 0 of 3 hosts",
    }
    assert explanation["first_empty"] == 0
    empty = {"resource_provider": {"uuid": hosts["empty"], "name": "empty"}}
    lacking = {**empty, "resource_class": "VCPU", "wanted": 8, "missing": 2, "free": 6}
    sentence = "empty lacks 2 VCPU: it has 6 free"
    shortages = [{"reason": "amount", "groups": [""], **lacking}]
    assert explanation["nearest"][0] == {**lacking, "shortages": shortages, "sentences": [sentence]}
    assert explanation["sentences"][1] == sentence
    assert "explanation" not in search(api, "VCPU:8").json
    nowhere = str(uuid.UUID(int=15))
    sentences = search(api, "VCPU:1", member_of=nowhere, explain=1).json["explanation"]["sentences"]
    assert f"aggregate {nowhere} (no provider is in it)" in sentences[1]


@pytest.fixture
def nodes(api: Client) -> dict[str, str]:
    """A host with two NUMA nodes, and a small host without."""
    host, small = api.provider("host"), api.provider("small", DISK_GB=1)
    node = {f"node-{at}": api.provider(f"node-{at}", host, VCPU=4 + at, MEMORY_MB=64) for at in (0, 1)}
    return {"host": host, "small": small, **node}


SHARED = {"resources1": "VCPU:4", "resources2": "VCPU:4", "resources3": "VCPU:4", "group_policy": "none"}


def test_hosts_of_other_clusters_are_no_near_misses(api, nodes):
    east = api.put("/ext/v1/clusters/east", {}).json["aggregate"]
    api.join(nodes["host"], east)
    api.provider("rich", VCPU=6)
    nearest = search(api, "VCPU:7", explain=1, cluster="east").json["explanation"]["nearest"]
    assert [miss["resource_provider"]["name"] for miss in nearest] == ["node-1", "node-0"]
    explanation = search(api, "VCPU:5", explain=1, cluster="east").json["explanation"]
    assert "hosts in cluster east: 1 of 3 hosts" in explanation["sentences"]
    assert search(api, "VCPU:7", explain=1).json["explanation"]["nearest"][0]["missing"] == 1


def test_a_search_that_finds_nothing_leaves_one_line(api, nodes, caplog):
    with caplog.at_level("INFO", logger=candidates.__name__):
        search(api, "MEMORY_MB:1", **SHARED)
        search(api, "VCPU:8")
        search(api, "VCPU:1")
    # Other loggers may be at any level.
    lines = [record.getMessage() for record in caplog.records if record.name == candidates.__name__]
    assert lines == [
        "no candidates: hosts that can serve the whole request at once: "
        f"0 of 1 hosts; {nodes['node-1']} lacks 3 VCPU for 2 and 3: 8 wanted, 5 free",
        f"no candidates: 8 VCPU free: 0 of 2 hosts; {nodes['node-1']} lacks 3 VCPU: it has 5 free",
    ]


def test_the_configured_order_counts_for_placement_itself(database, api, hosts):
    plain = api.get("/allocation_candidates?resources=VCPU:1").json
    ordered_application: Flask = build(
        database, compatible(), SearchSettings(order=order_of("pack", parameter("[scoring] order_by")))
    )
    ordered = Client(ordered_application.test_client())
    found = ordered.get("/allocation_candidates?resources=VCPU:1")
    assert order(found, hosts) == ["full", "half", "empty"]
    assert found.json["provider_summaries"] == plain["provider_summaries"]
    assert sorted(map(json.dumps, found.json["allocation_requests"])) == sorted(
        map(json.dumps, plain["allocation_requests"])
    )
    assert order(ordered.get("/allocation_candidates?resources=VCPU:1&limit=1"), hosts) == ["full"]
    assert order(search(ordered, order_by="none"), hosts) == ["full", "empty", "half"]
    registry_of(ordered_application).close()
