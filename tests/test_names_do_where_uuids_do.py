"""Aggregates and hosts are called by name wherever /ext/v1 and the pages take their UUIDs."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest

from tests.client import Client, detail
from tests.kubernetes import cluster_of

RACK, OTHER, TWIN = (f"0a000000-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))
SEARCH = "/ext/v1/allocation_candidates"
FLAVOR = {"vcpus": 1, "memory_mb": 0}


@pytest.fixture
def racks(api: Client) -> Client:
    """Three hosts: one in rack-1, one in rack-1 and rack 2, one in neither."""
    for name, aggregates in (("one", [RACK]), ("two", [RACK, OTHER]), ("three", [])):
        api.join(api.provider(name, VCPU=8), *aggregates)
    for uuid, name in ((RACK, "rack-1"), (OTHER, "rack 2")):
        assert api.put(f"/ext/v1/aggregates/{uuid}", {"name": name}).status_code == 200
    return api


def hosts(api: Client) -> dict[str, str]:
    return {each["uuid"]: each["name"] for each in api.get("/ext/v1/hosts").json["hosts"]}


def found(api: Client, *query: tuple[str, str]) -> list[str]:
    answer = api.get(f"{SEARCH}?{urlencode([('resources', 'VCPU:1'), *query])}")
    assert answer.status_code == 200, answer.text
    known = hosts(api)
    return [known[uuid] for each in answer.json["allocation_requests"] for uuid in each["allocations"]]


@pytest.mark.parametrize(
    ("by_name", "by_uuid", "expected"),
    [
        ("rack 2", OTHER, {"two"}),
        ("in:rack-1,rack 2", f"in:{RACK},{OTHER}", {"one", "two"}),
        ("in: rack-1 ,rack 2", f"in:{RACK},{OTHER}", {"one", "two"}),
        ("!rack 2", f"!{OTHER}", {"one", "three"}),
        ("!in:rack-1,rack 2", f"!in:{RACK},{OTHER}", {"three"}),
    ],
)
def test_a_query_takes_names_of_aggregates(racks: Client, by_name: str, by_uuid: str, expected: set[str]):
    assert set(found(racks, ("member_of", by_name))) == expected
    assert set(found(racks, ("member_of", by_uuid))) == expected


def test_names_of_several_conditions_hold_together(racks: Client):
    assert found(racks, ("member_of", "rack-1"), ("member_of", "!rack 2")) == ["one"]
    assert found(racks, ("in_tree", "three")) == ["three"]
    assert found(racks, ("prefer", "rack 2"))[0] == "two"
    assert found(racks, ("prefer", "!rack-1:5"))[0] == "three"


def test_json_takes_names(racks: Client):
    for group, expected in (
        ({"member_of": ["rack 2"]}, ["two"]),
        ({"member_of": [["rack 2", "rack-1"]], "forbidden_aggregates": ["rack 2"]}, ["one"]),
        ({"in_tree": "three"}, ["three"]),
    ):
        body = {"groups": {"": {"resources": {"VCPU": 1}, **group}}}
        answer = racks.post(SEARCH, body)
        assert answer.status_code == 200, answer.text
        known = hosts(racks)
        requests = answer.json["allocation_requests"]
        assert [known[uuid] for each in requests for uuid in each["allocations"]] == expected


def test_an_unknown_name_is_refused_with_what_was_meant(racks: Client):
    for query, field, said, meant in (
        ("member_of=rack-11", "member_of", "No aggregate rack-11 found", "rack-1"),
        ("member_of=!in:rack-1,rack%203", "member_of", "No aggregate rack 3 found", "rack 2"),
        ("prefer=rack-11", "prefer", "No trait or aggregate rack-11 found", "rack-1"),
        ("in_tree=tree", "in_tree", "No host tree found", "three"),
    ):
        answer = racks.get(f"{SEARCH}?resources=VCPU:1&{query}")
        (error,) = answer.json["errors"]
        assert (answer.status_code, error["field"]) == (400, field), query
        assert said in error["detail"]
        assert error["suggestion"] == meant
    group = {"resources": {"VCPU": 1}, "member_of": ["rack-1", "rock"], "in_tree": "x"}
    errors = racks.post(SEARCH, {"groups": {"_a": group}}).json["errors"]
    assert errors[0]["field"] == "/groups/_a/member_of"


def test_a_name_of_two_aggregates_is_refused_with_both(racks: Client):
    racks.join(racks.provider("four", VCPU=8), TWIN)
    assert racks.put(f"/ext/v1/aggregates/{TWIN}", {"name": "rack-1"}).status_code == 200
    for path in (
        f"{SEARCH}?resources=VCPU:1&member_of=rack-1",
        f"{SEARCH}?resources=VCPU:1&prefer=rack-1",
        "/ext/v1/capacity?resources=VCPU:1&member_of=rack-1",
        "/ext/v1/hosts?aggregate=rack-1",
    ):
        answer = racks.get(path)
        assert answer.status_code == 400, path
        assert f"2 aggregates have the name rack-1: {RACK}, {TWIN}" in detail(answer)
    renamed = racks.put("/ext/v1/aggregates/rack-1", {"name": "x"})
    assert (renamed.status_code, TWIN in detail(renamed)) == (409, True)


def test_of_two_aggregates_the_one_of_the_cluster_counts(racks: Client):
    cluster_of(racks, "edge-01")
    own = racks.get("/ext/v1/clusters/edge").json["aggregate"]
    racks.join(racks.provider("four", VCPU=8), TWIN, own)
    assert racks.put(f"/ext/v1/aggregates/{TWIN}", {"name": "rack-1"}).status_code == 200
    assert found(racks, ("member_of", "rack-1"), ("cluster", "edge")) == ["four"]


def test_other_questions_take_names(racks: Client):
    counted = racks.get("/ext/v1/capacity?resources=VCPU:1&member_of=rack%202&by=host").json
    assert counted["kinds"]["query"]["total"]["lower"] == 8
    body = {"kinds": {"it": {"flavor": FLAVOR, "member_of": ["rack-1", "!rack 2"]}}, "by": ["host"]}
    (host,) = racks.post("/ext/v1/capacity", body).json["kinds"]["it"]["hosts"]
    assert host["name"] == "one"
    listed = racks.get("/ext/v1/hosts?aggregate=rack%202").json["hosts"]
    assert [each["name"] for each in listed] == ["two"]
    assert racks.put(f"/ext/v1/aggregates/{quote('rack 2')}", {"name": "rack 3"}).json["uuid"] == OTHER


@pytest.mark.parametrize(
    ("member_of", "expected"),
    [(["rack-1"], {"one", "two"}), (["in:rack-1,rack 2", "!rack 2"], {"one"}), ([OTHER], {"two"})],
)
def test_flavors_are_asked_for_in_aggregates(racks: Client, member_of: list[str], expected: set[str]):
    answer = racks.post("/ext/v1/flavors/candidates", {"flavor": FLAVOR, "member_of": member_of})
    known = hosts(racks)
    requests = answer.json["candidates"]["allocation_requests"]
    assert {known[uuid] for each in requests for uuid in each["allocations"]} == expected


def test_a_flavor_is_refused_where_its_aggregate_is_unknown(racks: Client):
    for path, beside in (
        ("/ext/v1/flavors/candidates", {}),
        ("/ext/v1/claims", {"consumer_uuid": TWIN, "project_id": "p", "user_id": "u", "consumer_type": "X"}),
    ):
        answer = racks.post(path, {"flavor": FLAVOR, "member_of": ["rack-11"], **beside})
        (error,) = answer.json["errors"]
        assert (answer.status_code, error["field"], error["suggestion"]) == (400, "/member_of", "rack-1")
    for wrong in ("rack-1", [], [5], ["x"] * 101):
        answer = racks.post("/ext/v1/flavors/candidates", {"flavor": FLAVOR, "member_of": wrong})
        assert answer.status_code == 400, wrong


@pytest.mark.parametrize("name", ["a\0b", "\0"])
def test_a_name_that_no_database_holds_is_unknown(racks: Client, name: str):
    body = {"flavor": FLAVOR, "member_of": [name]}
    assert racks.post("/ext/v1/flavors/candidates", body).status_code == 400


def test_claims_hold_what_names_say(racks: Client):
    known = hosts(racks)
    claim = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    query = {"consumer_uuid": RACK, "query": "resources=VCPU:1&member_of=rack%202", **claim}
    assert racks.post("/ext/v1/claims", query).status_code == 201
    assert racks.post("/ext/v1/claims", query).status_code == 200, "the same claim, repeated"
    assert [known[uuid] for uuid in racks.used_by(RACK)] == ["two"]
    flavor = {"consumer_uuid": OTHER, "flavor": FLAVOR, "member_of": ["rack 2"], **claim}
    assert racks.post("/ext/v1/claims", flavor).status_code == 201
    assert [known[uuid] for uuid in racks.used_by(OTHER)] == ["two"]
    rule = {"kind": "spread", "per": "aggregate", "aggregates": ["rack 2", TWIN]}
    members = {"members": [{"count": 1}], "query": "resources=VCPU:1", "rules": [rule], "dry_run": True}
    assert racks.post("/ext/v1/claims", {**members, **claim}).status_code == 200
    rule["aggregates"] = ["rack 2", "rock 2"]
    answer = racks.post("/ext/v1/claims", {**members, **claim})
    assert answer.json["errors"][0]["field"] == "/rules/0/aggregates/1"


def test_pages_take_names(racks: Client):
    shown = racks.get("/ui/hosts?aggregate=rack%202&format=json").json["hosts"]
    assert [each["name"] for each in shown] == ["two"]
    assert racks.get("/ui/map?aggregate=rock").status_code == 400
    asked = quote("resources=VCPU:1&member_of=rack 2")
    why = racks.get(f"/ui/why?format=json&query={asked}").json
    assert [each["host"]["name"] for each in why["candidates"]] == ["two"]
    refused = racks.get(f"/ui/why?query={quote('resources=VCPU:1&member_of=rack-11')}")
    assert (refused.status_code, "Did you mean" in refused.text) == (400, True)
    room = racks.get(f"/ui/room?format=json&query={asked}").json
    assert room["total"]["lower"] == 8 if "total" in room else "8" in str(room)


def test_the_placement_api_takes_uuids_only(racks: Client):
    for path in (
        "/allocation_candidates?resources=VCPU:1&member_of=rack-1",
        "/allocation_candidates?resources=VCPU:1&in_tree=three",
        "/resource_providers?member_of=rack-1",
    ):
        answer = racks.get(path)
        assert answer.status_code == 400
        assert "UUID" in detail(answer) or "uuid" in detail(answer)


def test_a_cluster_that_is_an_aggregate_is_called_so(racks: Client):
    for answer in (
        racks.get(f"{SEARCH}?resources=VCPU:1&cluster=rack-1"),
        racks.post("/ext/v1/flavors/candidates", {"flavor": FLAVOR, "cluster": "rack-1"}),
        racks.get("/ext/v1/hosts?cluster=rack-1"),
        racks.get("/ext/v1/capacity?resources=VCPU:1&cluster=rack-1"),
    ):
        assert answer.status_code in (400, 404)
        assert "rack-1 is an aggregate: --aggregate or member_of asks for it" in detail(answer)
