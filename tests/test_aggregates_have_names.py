"""Aggregates can have names, which lists, pages and figures of hosts keep apart from their uuids."""

from __future__ import annotations

import pytest
from flask import Flask

from tests.client import Client, detail
from tests.commands import run
from tests.kubernetes import cluster_of
from tests.server import hosted

AGGREGATES = "/ext/v1/aggregates"
RACK, OTHER = "0a000000-0000-4000-8000-000000000001", "0a000000-0000-4000-8000-000000000002"


@pytest.fixture
def racks(api: Client) -> Client:
    """Two hosts in an aggregate, and one of these in another."""
    for name, aggregates in (("one", [RACK]), ("two", [RACK, OTHER])):
        uuid = api.provider(name, VCPU=8)
        body = {"aggregates": aggregates, "resource_provider_generation": 1}
        assert api.put(f"/resource_providers/{uuid}/aggregates", body).status_code == 200
    return api


def test_a_name_is_given_shown_and_taken_away(racks: Client):
    named = racks.put(f"{AGGREGATES}/{RACK}", {"name": "rack 12"})
    renamed = {"uuid": RACK, "name": "rack 12", "cluster": None, "also_named": []}
    assert (named.status_code, named.json) == (200, renamed)
    assert racks.get(AGGREGATES).json == {
        "aggregates": [
            {"uuid": RACK, "name": "rack 12", "cluster": None, "providers": 2},
            {"uuid": OTHER, "name": None, "cluster": None, "providers": 1},
        ],
        "next": None,
    }
    bare = RACK.replace("-", "").upper()
    assert racks.put(f"{AGGREGATES}/{bare}", {"name": None}).json["name"] is None
    assert racks.get(AGGREGATES).json["aggregates"][0]["name"] is None


def test_an_answer_has_the_other_aggregates_of_the_name(racks: Client):
    cluster_of(racks, "edge-01")
    own = racks.get("/ext/v1/clusters/edge").json["aggregate"]
    for uuid, name, others in (
        (RACK, "x", []),
        (OTHER, "x", [RACK]),
        (OTHER, "edge", [own]),
        (OTHER, None, []),
    ):
        assert racks.put(f"{AGGREGATES}/{uuid}", {"name": name}).json["also_named"] == others, name


def test_an_answer_has_a_bounded_number_of_aggregates_of_the_name(racks: Client):
    many = [RACK[:-2] + f"{number:02}" for number in range(10, 32)]
    uuid = racks.provider("three", VCPU=8)
    racks.put(
        f"/resource_providers/{uuid}/aggregates", {"aggregates": many, "resource_provider_generation": 1}
    )
    for each in many:
        named = racks.put(f"{AGGREGATES}/{each}", {"name": "x"}).json
    assert named["also_named"] == many[:10]


@pytest.mark.usefixtures("racks")
def test_the_command_warns_of_other_aggregates_of_the_name(application: Flask):
    with hosted(application) as url:
        first, second = (run("--url", url, "aggregate", "set", uuid, "--name", "x") for uuid in (RACK, OTHER))
    assert (first.returncode, first.stdout, first.stderr) == (0, "", "")
    assert (second.returncode, second.stdout) == (0, "")
    assert second.stderr == (
        f"Warning: the name x is also that of {RACK}; requests that name x are refused, and need a UUID.\n"
    )


def test_pages_lose_no_aggregate(racks: Client):
    whole = racks.get(AGGREGATES).json["aggregates"]
    first = racks.get(f"{AGGREGATES}?limit=1").json
    rest = racks.get(f"{AGGREGATES}?limit=1&after={first['next']}").json
    assert (first["aggregates"] + rest["aggregates"], rest["next"]) == (whole, None)


def test_what_is_unknown_or_no_name_is_refused(racks: Client):
    assert racks.put(f"{AGGREGATES}/{RACK[:-1]}9", {"name": "x"}).status_code == 404
    assert racks.put(f"{AGGREGATES}/rack", {"name": "x"}).status_code == 404
    for body in ({}, {"name": ""}, {"name": 5}, {"name": "x" * 256}, {"name": "x", "more": 1}):
        assert racks.put(f"{AGGREGATES}/{RACK}", body).status_code == 400, body
    assert racks.put(f"{AGGREGATES}/{RACK}", {"name": "ü" * 255}).status_code == 200
    assert "No cluster egde found" in detail(racks.get(f"{AGGREGATES}?cluster=egde"))


def test_the_aggregate_of_a_cluster_keeps_the_name_of_it(racks: Client):
    cluster_of(racks, "edge-01")
    own = racks.get("/ext/v1/clusters/edge").json["aggregate"]
    refused = racks.put(f"{AGGREGATES}/{own}", {"name": "mine"})
    assert (refused.status_code, "keeps its name" in detail(refused)) == (409, True)
    listed = {each["uuid"]: each for each in racks.get(AGGREGATES).json["aggregates"]}
    assert (listed[own]["name"], listed[own]["cluster"]) == ("edge", "edge")


def test_a_cluster_has_the_aggregates_of_its_trees(racks: Client):
    cluster_of(racks, "edge-01")
    own = racks.get("/ext/v1/clusters/edge").json["aggregate"]
    host = racks.provider("in the cluster", VCPU=8)
    racks.join(host, own)
    racks.join(racks.provider("below", host), OTHER)
    of_edge = racks.get(f"{AGGREGATES}?cluster=edge").json["aggregates"]
    assert {each["uuid"]: each["providers"] for each in of_edge} == {own: 2, OTHER: 1}


def test_a_change_of_a_name_is_recorded_and_an_equal_one_is_none(racks: Client):
    for _ in range(2):
        assert racks.put(f"{AGGREGATES}/{RACK}", {"name": "rack 12"}).status_code == 200
    (event,) = racks.get("/ext/v1/audit?target_type=aggregate").json["events"]
    assert (event["target"]["id"], event["action"]) == (RACK, "update")
    attached = {each["name"]: each["content"] for each in event["attachments"]}
    assert attached == {"before": {"name": None}, "after": {"name": "rack 12"}}


def test_every_worker_shows_a_new_name_at_once(racks: Client, other: Client):
    for name in ("rack 12", "rack 13"):
        assert racks.put(f"{AGGREGATES}/{RACK}", {"name": name}).status_code == 200
        assert other.get(AGGREGATES).json["aggregates"][0]["name"] == name


def test_figures_of_an_aggregate_go_on_when_its_name_changes(racks: Client):
    assert racks.put(f"{AGGREGATES}/{RACK}", {"name": "rack 12"}).status_code == 200
    assert len(racks.get("/ext/v1/hosts").json["hosts"]) == 2
    figures = racks.get("/metrics").text
    assert RACK in figures
    assert "rack 12" not in figures


def test_pages_show_the_name_with_the_uuid_as_title(racks: Client):
    assert racks.put(f"{AGGREGATES}/{RACK}", {"name": "rack <12>"}).status_code == 200
    shown = f'title="{RACK}">rack &lt;12&gt;<'
    (host,) = (each["uuid"] for each in racks.get("/ext/v1/hosts").json["hosts"] if each["name"] == "two")
    asked = f"resources%3DVCPU:1%26member_of%3D{RACK}%26prefer%3D{RACK}"
    for path in ("", "map", "hosts", f"hosts/{host}/providers", f"why?query={asked}"):
        assert shown in racks.get(f"/ui/{path}").text, path
    room = racks.get("/ui/room?query=resources%3DVCPU:1").text
    assert f'title="{RACK}">aggregate rack &lt;12&gt;<' in room
    assert f'title="{OTHER}">aggregate {OTHER[:8]}<' in room
    groups = racks.get("/ui/?format=json").json["groups"]
    assert [(each["name"], each["shown"]) for each in groups] == [(OTHER, OTHER), (RACK, "rack <12>")]


def test_pages_show_all_hosts_of_an_aggregate_though_some_are_in_others(racks: Client):
    page = racks.get("/ui/?format=json").json
    assert {each["name"]: (each["hosts"], each["elsewhere"]) for each in page["groups"]} == {
        RACK: (2, 0),
        OTHER: (1, 1),
    }
    assert {each["name"]: each["resources"][0]["capacity"] for each in page["groups"]} == {RACK: 16, OTHER: 8}
    assert page["figures"]["use"]["VCPU"]["capacity"] == 16, "no host counts twice"
    assert f"/ui/map?aggregate={OTHER}" in racks.get("/ui/").text
    for aggregate, names in ((OTHER, ["two"]), (RACK, ["one", "two"]), (RACK[:-1] + "9", [])):
        shown = racks.get(f"/ui/hosts?aggregate={aggregate}&format=json").json["hosts"]
        assert [each["name"] for each in shown] == names


def test_the_room_in_an_aggregate_has_its_name(racks: Client):
    assert racks.put(f"{AGGREGATES}/{RACK}", {"name": "rack 12"}).status_code == 200
    (kind,) = racks.get("/ext/v1/capacity?resources=VCPU:1&by=aggregate").json["kinds"].values()
    assert {each["aggregate"]: each.get("name") for each in kind["aggregates"]} == {
        RACK: "rack 12",
        OTHER: None,
    }
