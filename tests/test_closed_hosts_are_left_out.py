"""Closed hosts below /ext/v1: not chosen, not counted and not planned onto, unless asked for."""

from __future__ import annotations

import json
import uuid
from typing import Any
from urllib.parse import quote

import pytest

from placement.planning.consumers import PlacedConsumers
from tests.client import Client, detail
from tests.kubernetes import CLUSTER as EDGE
from tests.kubernetes import add_nodes, cluster_of, node_manifests, pod_manifest

pytestmark = pytest.mark.one_database

CLOSING = "COMPUTE_STATUS_DISABLED"
QUERY = "resources=VCPU:2"
FLAVOR = {"flavor": {"vcpus": 2, "memory_mb": 1024}}
OWNER = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}


@pytest.fixture
def hosts(api: Client) -> dict[str, str]:
    """Three hosts of 8 VCPU; b is closed."""
    uuids = {name: api.provider(name, VCPU=8, MEMORY_MB=8192) for name in "abc"}
    api.carry(uuids["b"], CLOSING)
    return uuids


def roots_of(answer: Any) -> set[str]:
    assert answer.status_code == 200, answer.text
    return {uuid for each in answer.json["allocation_requests"] for uuid in each["allocations"]}


def test_searches_leave_closed_hosts_out_unless_asked(api, hosts):
    everywhere, open_hosts = set(hosts.values()), {hosts["a"], hosts["c"]}
    path = f"/ext/v1/allocation_candidates?{QUERY}"
    assert roots_of(api.get(f"/allocation_candidates?{QUERY}")) == everywhere
    assert roots_of(api.get(path)) == open_hosts
    assert roots_of(api.get(f"{path}&closed=false")) == open_hosts
    assert roots_of(api.get(f"{path}&closed=true")) == everywhere
    body = {"groups": {"": {"resources": {"VCPU": 2}}}}
    assert roots_of(api.post("/ext/v1/allocation_candidates", body)) == open_hosts
    assert roots_of(api.post("/ext/v1/allocation_candidates", {**body, "closed": True})) == everywhere
    answer = api.get(f"{path}&closed=1")
    assert (answer.status_code, detail(answer)) == (400, "closed: must be true or false, not '1'")


def test_a_host_that_opens_counts_again(api, hosts):
    path = f"/ext/v1/allocation_candidates?{QUERY}"
    assert hosts["b"] not in roots_of(api.get(path))
    api.carry(hosts["b"])
    assert hosts["b"] in roots_of(api.get(path))


def test_worlds_leave_closed_hosts_out(api, hosts):
    world = quote('{"without": ["a"]}')
    path = f"/ext/v1/allocation_candidates?{QUERY}&world={world}"
    assert roots_of(api.get(path)) == {hosts["c"]}
    assert roots_of(api.get(f"{path}&closed=true")) == {hosts["b"], hosts["c"]}


def test_explanations_name_open_hosts_as_a_condition(api, hosts):
    in_tree = f"&in_tree={hosts['b']}&explain=1"
    answer = api.get(f"/ext/v1/allocation_candidates?{QUERY}{in_tree}")
    assert roots_of(answer) == set()
    explanation = answer.json["explanation"]
    stages = [each for each in explanation["stages"] if each["kind"] == "open_hosts"]
    assert [each["condition"] for each in stages] == ["open hosts"]
    (miss,) = explanation["nearest"]
    assert (miss["resource_provider"]["uuid"], miss["lacking"]) == (hosts["b"], ["an open host"])


def test_explanations_without_closed_hosts_say_nothing_of_them(api):
    api.provider("a", VCPU=8)
    answer = api.get(f"/ext/v1/allocation_candidates?{QUERY}&explain=1")
    assert not [each for each in answer.json["explanation"]["stages"] if each["kind"] == "open_hosts"]


def test_hosts_elsewhere_are_open_ones(api, hosts):
    rack, aggregate = str(uuid.uuid4()), str(uuid.uuid4())
    api.join(hosts["a"], rack)
    api.join(hosts["b"], aggregate)
    assert api.claim({hosts[name]: {"VCPU": 8} for name in "ac"}).status_code == 204
    path = f"/ext/v1/allocation_candidates?{QUERY}&member_of={rack}&explain=1"
    assert "it fits in no other place" in str(api.get(path).json["explanation"])
    body = {**FLAVOR, "member_of": [rack], "explain": True}
    explained = api.post("/ext/v1/flavors/candidates", body).json["explanation"]
    assert "it fits in no other place" in str(explained)


def test_flavors_leave_closed_hosts_out_unless_asked(api, hosts):
    def found(**more: Any) -> set[str]:
        answer = api.post("/ext/v1/flavors/candidates", {**FLAVOR, **more})
        assert answer.status_code == 200, answer.text
        requests = answer.json["candidates"]["allocation_requests"]
        return {uuid for each in requests for uuid in each["allocations"]}

    assert found() == {hosts["a"], hosts["c"]}
    assert found(closed=True) == set(hosts.values())
    answer = api.post("/ext/v1/flavors/candidates", {**FLAVOR, "closed": "yes"})
    assert answer.status_code == 400


def capacity(api: Client, kind: dict[str, Any], **parts: Any) -> tuple[int, int]:
    """How many more fit, and how many hosts could ever take one."""
    answer = api.post("/ext/v1/capacity", {"kinds": {"it": kind}, **parts})
    assert answer.status_code == 200, answer.text
    total = answer.json["kinds"]["it"]["total"]
    assert total["exact"]
    return total["lower"], total["hosts"]


def test_capacity_leaves_closed_hosts_out_unless_asked(api, hosts):
    for kind in ({"querystring": QUERY}, FLAVOR):
        assert capacity(api, kind) == (8, 2)
        assert capacity(api, kind, closed=True) == (12, 3)
    for parameters, count in ((QUERY, 8), (f"{QUERY}&closed=true", 12)):
        answer = api.get(f"/ext/v1/capacity?{parameters}")
        assert answer.json["kinds"]["query"]["total"]["lower"] == count
    answer = api.post("/ext/v1/capacity", {"kinds": {"it": {"querystring": QUERY}}, "by": ["host"]})
    named = [each["name"] for each in answer.json["kinds"]["it"]["hosts"]]
    assert named == ["a", "c"]


def claimed(api: Client, **body: Any) -> set[str]:
    consumer = str(uuid.uuid4())
    answer = api.post("/ext/v1/claims", {**OWNER, "consumer_uuid": consumer, **body})
    assert answer.status_code == 201, answer.text
    return set(answer.json["allocations"])


def test_claims_by_query_choose_open_hosts_and_claims_by_name_any(api, hosts):
    for name in "ac":
        for _ in range(4):
            consumer = str(uuid.uuid4())
            assert api.claim({hosts[name]: {"VCPU": 2}}, consumer).status_code == 204
    for body in ({"query": QUERY}, FLAVOR):
        refused = api.post("/ext/v1/claims", {**OWNER, "consumer_uuid": str(uuid.uuid4()), **body})
        assert refused.status_code == 409, refused.text
    member = {"count": 2, **OWNER}
    answer = api.post("/ext/v1/claims", {"members": [member], "query": QUERY, "atomic": True})
    assert answer.status_code == 409
    assert claimed(api, query=f"{QUERY}&closed=true") == {hosts["b"]}
    assert claimed(api, **FLAVOR, closed=True) == {hosts["b"]}
    # As nova resizes a server on a disabled host.
    assert api.claim({hosts["b"]: {"VCPU": 2}}, str(uuid.uuid4())).status_code == 204


# -- nodes ----------------------------------------------------------------------------------------------


@pytest.fixture
def edge(api: Client) -> Client:
    """A cluster of two nodes."""
    cluster_of(api, "node-0", "node-1")
    return api


def send(api: Client, name: str, **changes: Any) -> None:
    """Send a node again with another spec, or other annotations."""
    assert api.put(f"{EDGE}/nodes/{name}", node_manifests(name, **changes)).status_code == 200


@pytest.mark.parametrize(
    "change", [{"spec": {"unschedulable": True}}, {"annotations": {"placement/closed": "for a test"}}]
)
def test_nodes_that_take_no_pods_are_closed_until_they_do(edge, change):
    query = "resources=CUSTOM_NODE_MEMORY_MB:1&cluster=edge"
    path = f"/ext/v1/allocation_candidates?{query}"
    both = roots_of(edge.get(path))
    assert len(both) == 2
    send(edge, "node-1", **change)
    assert len(roots_of(edge.get(path))) == 1
    assert roots_of(edge.get(f"{path}&closed=true")) == both
    send(edge, "node-1")
    assert roots_of(edge.get(path)) == both


def test_pods_are_counted_on_cordoned_nodes_if_asked(edge):
    kind = {"pod": pod_manifest("8")}
    all_of_it, _ = capacity(edge, kind, cluster="edge")
    send(edge, "node-1", spec={"unschedulable": True})
    assert capacity(edge, kind, cluster="edge")[0] == all_of_it // 2
    assert capacity(edge, kind, cluster="edge", closed=True)[0] == all_of_it
    add_nodes(edge, "node-2")
    assert capacity(edge, kind, cluster="edge")[0] == all_of_it


# -- plans ----------------------------------------------------------------------------------------------


def planned(api: Client, goal: dict[str, Any], **parts: Any) -> Any:
    answer = api.post("/ext/v1/plans", {"goal": goal, **parts})
    assert answer.status_code == 200, answer.text
    return answer.json


def test_plans_move_off_closed_hosts_and_onto_none_unless_asked(api, hosts):
    consumer = str(uuid.uuid4())
    assert api.claim({hosts["b"]: {"VCPU": 4, "MEMORY_MB": 1024}}, consumer).status_code == 204
    plan = planned(api, {"empty": ["b"]})
    assert plan["reached"]
    assert {each["to_host"] for each in plan["moves"]} <= {hosts["a"], hosts["c"]}
    for name in "ac":
        filler = str(uuid.uuid4())
        assert api.claim({hosts[name]: {"VCPU": 5, "MEMORY_MB": 1024}}, filler).status_code == 204
    plan = planned(api, {"empty": ["a"]})
    assert (plan["reached"], plan["complete"]) == (False, True)
    api.delete(f"/allocations/{consumer}")
    plan = planned(api, {"empty": ["a"]}, closed=True)
    assert [each["to_host"] for each in plan["moves"]] == [hosts["b"]]
    check = {"moves": plan["moves"]}
    assert api.post("/ext/v1/plans/check", {**check, "closed": True}).json["valid"]
    (state,) = api.post("/ext/v1/plans/check", check).json["moves"]
    assert (state["state"], state["why"]) == ("impossible", f"host {hosts['b']} is closed")


def test_requests_are_fitted_on_open_hosts(api, hosts):
    plan = planned(api, {"fit": {"querystring": "resources=VCPU:8", "count": 3}})
    assert (plan["achieved"], plan["complete"]) == (2, True)
    assert {uuid for each in plan["placements"] for uuid in each} == {hosts["a"], hosts["c"]}
    plan = planned(api, {"fit": {"querystring": "resources=VCPU:8", "count": 3}}, closed=True)
    assert plan["achieved"] == 3


def test_a_closed_host_that_is_empty_is_no_free_host_to_a_plan(api, hosts):
    for host in hosts.values():
        assert api.claim({host: {"VCPU": 1}}, str(uuid.uuid4())).status_code == 204
    plan = planned(api, {"free": 2})
    assert (plan["achieved"], plan["complete"]) == (1, True)
    assert set(plan["emptied"]) <= {hosts["a"], hosts["c"]}


def test_lists_and_pages_say_which_hosts_are_closed(api, hosts):
    listed = {each["name"]: each["state"] for each in api.get("/ext/v1/hosts").json["hosts"]}
    assert listed == {"a": "open", "b": "closed", "c": "open"}
    shown = api.get("/ui/hosts?format=json&class=VCPU").json["hosts"]
    assert {each["name"]: each["state"] for each in shown} == listed
    assert api.get("/ui/hosts?class=VCPU").text.count('<span class="tag warn">closed</span>') == 1
    assert "3 hosts (1 closed)" in api.get("/ui/map").text
    packed = api.get("/ui/map/data?class=VCPU").get_data()
    size = int.from_bytes(packed[:4], "little")
    assert json.loads(packed[4 : 4 + size])["closed"] == [1]
    assert "nova disabled it" in api.get(f"/ui/hosts/{hosts['b']}").text
    assert api.get("/ui/?format=json").json["figures"]["closed"] == 1


def test_cordoned_nodes_are_closed_hosts(edge):
    send(edge, "node-1", spec={"unschedulable": True})
    states = {each["name"]: each["state"] for each in edge.get("/ext/v1/hosts").json["hosts"]}
    assert states == {"edge/node-0": "open", "edge/node-1": "closed"}


# -- what hosts are for ---------------------------------------------------------------------------------


def test_plain_servers_go_to_hosts_with_devices_last_and_to_the_fullest_first(api):
    full, other = (api.provider(name, VCPU=8) for name in ("full", "other"))
    gpu = api.provider("gpu", VCPU=8)
    api.provider("gpu-0", gpu, VGPU=2)
    source = api.provider("source", VCPU=8)
    for host, amount in ((full, 4), (other, 1), (gpu, 6), (source, 2)):
        assert api.claim({host: {"VCPU": amount}}, str(uuid.uuid4())).status_code == 204
    plan = planned(api, {"empty": ["source"]})
    assert [each["to_host"] for each in plan["moves"]] == [full]
    for host, amount in ((full, 3), (other, 6)):
        assert api.claim({host: {"VCPU": amount}}, str(uuid.uuid4())).status_code == 204
    plan = planned(api, {"empty": ["source"]})
    assert [each["to_host"] for each in plan["moves"]] == [gpu]


def test_records_of_migrations_stay_where_they_are_and_are_named(api, hosts):
    record, owner = str(uuid.uuid4()), {"project_id": "p", "user_id": "u", "consumer_type": "MIGRATION"}
    assert api.claim({hosts["a"]: {"VCPU": 2}}, record, **owner).status_code == 204
    plan = planned(api, {"empty": ["a"]})
    assert (plan["reached"], plan["complete"], plan["moves"]) == (False, True, [])
    (left,) = plan["left"]
    assert (left["consumer"], left["why"]) == (record, "is the record of a migration, which ends in nova")


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ({"empty": ["z"]}, "goal.empty[0]: there is no host 'z' here"),
        ({"fit": {"querystring": "resources=VCPU:1&required=CUSTOM_NONE"}}, "No such trait CUSTOM_NONE."),
        ({"defragment": {"querystring": "resources=CUSTOM_NONE:1"}}, "No such resource class CUSTOM_NONE."),
    ],
)
def test_unknown_names_are_refused_before_consumers_are_read(api, hosts, monkeypatch, goal, said):
    def read(*_: object) -> None:
        raise AssertionError("consumers were read")

    monkeypatch.setattr(PlacedConsumers, "read", read)
    answer = api.post("/ext/v1/plans", {"goal": goal})
    assert answer.status_code == 400
    assert said in detail(answer)
