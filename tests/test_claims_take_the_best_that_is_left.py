"""Search and claim in one call: the best candidate, the next best on a lost race, the same when repeated."""

from __future__ import annotations

import uuid
from urllib.parse import urlencode

import pytest

from placement.allocations.claims import Claims
from placement.engine.domain.errors import CapacityExceeded
from tests.client import Client, code, detail

pytestmark = pytest.mark.one_database

PATH = "/ext/v1/claims"


def wish(consumer: str | None = None, **query: str) -> dict[str, str]:
    return {
        "consumer_uuid": consumer or str(uuid.uuid4()),
        "project_id": "project",
        "user_id": "user",
        "consumer_type": "INSTANCE",
        "query": urlencode(query or {"resources": "VCPU:1"}),
    }


@pytest.fixture
def hosts(api: Client) -> list[str]:
    """Two hosts with 4 VCPU each, the second half used."""
    made = [api.provider(f"host-{number}", VCPU=4) for number in range(2)]
    assert api.claim({made[1]: {"VCPU": 2}}).status_code == 204
    return made


def test_the_best_candidate_is_claimed_and_shown(api, hosts):
    wanted = wish(resources="VCPU:1", order_by="pack")
    answer = api.post(PATH, wanted)
    assert answer.status_code == 201
    assert answer.json == {
        "consumer_uuid": wanted["consumer_uuid"],
        "consumer_generation": 1,
        "project_id": "project",
        "user_id": "user",
        "consumer_type": "INSTANCE",
        "allocations": {hosts[1]: {"resources": {"VCPU": 1}}},
        "mappings": {"": [hosts[1]]},
    }
    stored = api.get(f"/allocations/{wanted['consumer_uuid']}").json
    assert stored["allocations"][hosts[1]]["resources"] == {"VCPU": 1}


@pytest.mark.both_databases
def test_repeating_returns_what_the_consumer_holds(api, hosts):
    wanted = wish()
    first = api.post(PATH, wanted)
    again = api.post(PATH, wanted)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json == first.json
    assert api.used(hosts[0]) == {"VCPU": 1}
    other = api.post(PATH, {**wanted, "query": "resources=VCPU:2"})
    assert (other.status_code, detail(other)) == (
        409,
        f"consumer_uuid: {wanted['consumer_uuid']} already holds something else than the query asks for",
    )


def test_groups_get_what_they_ask_for(api):
    host = api.provider("host", VCPU=4)
    ports = [api.provider(f"port-{number}", host, SRIOV_NET_VF=1) for number in range(2)]
    query = {
        "resources": "VCPU:1",
        "resources1": "SRIOV_NET_VF:1",
        "resources2": "SRIOV_NET_VF:1",
        "group_policy": "isolate",
    }
    answer = api.post(PATH, wish(**query))
    assert answer.status_code == 201
    assert answer.json["mappings"][""] == [host]
    assert sorted(answer.json["mappings"]["1"] + answer.json["mappings"]["2"]) == sorted(ports)
    assert sum(held["resources"].get("SRIOV_NET_VF", 0) for held in answer.json["allocations"].values()) == 2


def test_repeating_tells_again_which_group_got_what(api):
    """Groups that ask for the same thing get their providers in order of uuids."""
    host = api.provider("host", VCPU=4)
    for number in range(4):
        api.provider(f"port-{number}", host, SRIOV_NET_VF=1)
    query = {f"resources{number}": "SRIOV_NET_VF:1" for number in (3, 1, 2)}
    wanted = wish(resources="VCPU:1", **query, group_policy="isolate")
    first, again = api.post(PATH, wanted), api.post(PATH, wanted)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json == first.json
    mappings = first.json["mappings"]
    assert mappings[""] == [host]
    assert [*mappings["1"], *mappings["2"], *mappings["3"]] == sorted(set(first.json["allocations"]) - {host})


def test_groups_that_the_amounts_do_not_tell_apart_are_not_guessed(api):
    host = api.provider("host")
    ports = [api.provider(f"port-{number}", host, SRIOV_NET_VF=1) for number in range(2)]
    for port in ports:
        api.carry(port, "CUSTOM_FAST")
    query = {"resources1": "SRIOV_NET_VF:1", "required1": "CUSTOM_FAST", "resources2": "SRIOV_NET_VF:1"}
    wanted = wish(**query, group_policy="isolate")
    first, again = api.post(PATH, wanted), api.post(PATH, wanted)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json == {key: value for key, value in first.json.items() if key != "mappings"}


def test_nothing_left_is_told_with_the_reason(api, hosts):
    answer = api.post(PATH, wish(resources="VCPU:5"))
    assert (answer.status_code, code(answer)) == (409, "no_candidate")
    assert detail(answer) == (
        f"no candidate: 5 VCPU free: 0 of 2 hosts; host-0 ({hosts[0]}) lacks 1 VCPU: it has 4 free"
    )


@pytest.mark.both_databases
def test_the_next_best_is_taken_when_the_best_is_gone(api, hosts, monkeypatch):
    """The database refuses the first candidate, as it does when somebody else was faster."""
    refused: list[str] = []
    replace = Claims.put

    def late(self: Claims, claims: list, **options: bool) -> None:
        if not refused:
            refused.extend(claims[0].resources)
            raise CapacityExceeded("gone")
        replace(self, claims, **options)

    monkeypatch.setattr(Claims, "put", late)
    answer = api.post(PATH, wish(order_by="pack", resources="VCPU:1"))
    assert refused == [hosts[1]]
    assert list(answer.json["allocations"]) == [hosts[0]]
