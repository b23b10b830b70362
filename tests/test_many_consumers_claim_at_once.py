"""Claims of many in one call: each by itself or all or none, as one after another would have got."""

from __future__ import annotations

import random
import traceback
import uuid
from typing import Any

import pytest

from placement.allocations.best_fit import BestFit
from placement.allocations.claims import Claims
from placement.engine.domain.errors import CapacityExceeded
from tests.client import Client, detail
from tests.kubernetes import node_manifests, pod_manifest

pytestmark = pytest.mark.one_database

PATH = "/ext/v1/claims"


def wish(members: list[dict[str, Any]] | int, query: Any = "resources=VCPU:1", **more: Any) -> dict[str, Any]:
    if isinstance(members, int):
        members = [{"consumer_uuid": str(uuid.uuid4())} for _ in range(members)]
    common = {"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE", "query": query}
    return {**common, "members": members, **more}


def statuses(answer: Any) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [member["status"] for member in answer.json["members"]]


def one_by_one(api: Client, members: list[dict[str, Any]]) -> list[Any]:
    """What the members get by calls of their own."""
    common = {name: part for name, part in wish(0).items() if name != "members"}
    return [api.post(PATH, {**common, **member}).json.get("allocations") for member in members]


@pytest.mark.both_databases
def test_each_gets_what_is_left_by_those_before(api: Client):
    hosts = [api.provider(f"host-{number}", VCPU=2) for number in range(2)]
    body = wish(5)
    answer = api.post(PATH, body)
    assert statuses(answer) == [201, 201, 201, 201, 409]
    held = [member["allocations"] for member in answer.json["members"][:4]]
    assert held == [{host: {"resources": {"VCPU": 1}}} for host in (hosts[0], hosts[0], hosts[1], hosts[1])]
    refused = answer.json["members"][4]
    assert refused["consumer_uuid"] == body["members"][4]["consumer_uuid"]
    assert (refused["error"]["code"], refused["error"]["status"]) == ("no_candidate", 409)
    assert "members[4]: no candidate" in refused["error"]["detail"]
    assert [api.used(host) for host in hosts] == [{"VCPU": 2}, {"VCPU": 2}]
    for member, amounts in zip(body["members"], held, strict=False):
        assert api.used_by(member["consumer_uuid"]) == {
            host: entry["resources"] for host, entry in amounts.items()
        }


def test_each_that_is_refused_has_a_refusal_of_its_own(api: Client, monkeypatch: pytest.MonkeyPatch):
    """One that is raised again and again keeps the frames of each raise."""
    propose, refused = BestFit._propose, []

    def noting(*arguments: Any) -> Any:
        found = propose(*arguments)
        refused.extend(found[1].values())
        return found

    monkeypatch.setattr(BestFit, "_propose", noting)
    api.provider("host", VCPU=1)
    assert statuses(api.post(PATH, wish(20, "resources=VCPU:2"))) == [409] * 20
    assert len(set(map(id, refused))) == 20
    assert max(len(list(traceback.walk_tb(each.__traceback__))) for each in refused) < 5


@pytest.mark.both_databases
def test_repeating_the_call_changes_nothing(api: Client):
    host = api.provider("host", VCPU=3)
    body = wish(4)
    first = api.post(PATH, body)
    again = api.post(PATH, body)
    assert (statuses(first), statuses(again)) == ([201, 201, 201, 409], [200, 200, 200, 409])
    keys = ("consumer_uuid", "allocations", "consumer_generation", "mappings")
    for one, other in zip(first.json["members"][:3], again.json["members"][:3], strict=True):
        assert [one[key] for key in keys] == [other[key] for key in keys]
    assert api.used(host) == {"VCPU": 3}


@pytest.mark.both_databases
def test_all_or_none_is_all_or_none(api: Client):
    host = api.provider("host", VCPU=3)
    body = wish(4, atomic=True)
    refused = api.post(PATH, body)
    assert refused.status_code == 409
    (error,) = refused.json["errors"]
    assert "members[3]: no candidate" in error["detail"]
    assert api.used(host) == {"VCPU": 0}
    taken = api.post(PATH, {**body, "members": body["members"][:3]})
    assert statuses(taken) == [201, 201, 201]
    # The three hold what they ask for, so the fourth alone is what is missing.
    assert api.post(PATH, body).status_code == 409
    assert api.used(host) == {"VCPU": 3}


def test_members_may_ask_for_different_things(api: Client):
    small, large = api.provider("small", VCPU=2), api.provider("large", VCPU=8, MEMORY_MB=512)
    members = [
        {"consumer_uuid": str(uuid.uuid4()), "query": "resources=VCPU:6"},
        {"consumer_uuid": str(uuid.uuid4()), "query": {"groups": {"": {"resources": {"VCPU": 3}}}}},
        {"consumer_uuid": str(uuid.uuid4()), "query": "resources=VCPU:2", "project_id": "another"},
        {"consumer_uuid": str(uuid.uuid4()), "query": "resources=MEMORY_MB:64&required=CUSTOM_NONE"},
        {"consumer_uuid": str(uuid.uuid4())},
    ]
    answer = api.post(PATH, wish(members, "resources=VCPU:2&order_by=pack"))
    assert statuses(answer) == [201, 409, 201, 400, 201]
    assert "required: No such trait CUSTOM_NONE" in answer.json["members"][3]["error"]["detail"]
    assert (api.used(small), api.used(large)) == ({"VCPU": 2}, {"VCPU": 8, "MEMORY_MB": 0})
    assert answer.json["members"][2]["project_id"] == "another"


@pytest.mark.both_databases
def test_nobody_else_suffers_from_consumers_that_may_not_claim(api: Client):
    api.provider("host", VCPU=8)
    holder, idle, other = (str(uuid.uuid4()) for _ in range(3))
    assert statuses(api.post(PATH, wish([{"consumer_uuid": holder}], "resources=VCPU:2"))) == [201]
    assert api.put("/ext/v1/clusters/edge").status_code == 201
    assert api.put("/ext/v1/clusters/edge/nodes/n1", node_manifests("n1")).status_code == 201
    pod = api.put("/ext/v1/clusters/edge/pods/default/web", pod_manifest()).json["consumer_uuid"]
    members = [{"consumer_uuid": each} for each in (idle, holder, pod, other)]
    answer = api.post(PATH, wish(members))
    assert statuses(answer) == [201, 409, 409, 201]
    for member in answer.json["members"][1:3]:
        assert "already holds something else" in member["error"]["detail"]
    assert api.post(PATH, wish(members, atomic=True)).status_code == 409


@pytest.mark.parametrize("order", ["", "&order_by=pack", "&order_by=spread", "&order_by=BalancedAllocation"])
def test_all_get_what_they_would_have_got_one_after_another(api: Client, order: str):
    chance = random.Random(7)
    for number in range(12):
        offered = {"VCPU": chance.randint(3, 17), "MEMORY_MB": chance.randint(30, 170)}
        api.provider(f"host-{number}", **offered)
    queries = [f"resources=VCPU:{amount},MEMORY_MB:{amount * 7}{order}" for amount in (1, 2, 3)]
    members = [{"consumer_uuid": str(uuid.uuid4()), "query": chance.choice(queries)} for _ in range(60)]
    answer = api.post(PATH, wish(members))
    together = [member.get("allocations") for member in answer.json["members"]]
    assert None in together
    for member in members:
        api.delete(f"/allocations/{member['consumer_uuid']}")
    assert one_by_one(api, members) == together


def test_amounts_are_split_as_one_after_another(api: Client):
    for number in range(3):
        host = api.provider(f"host-{number}", MEMORY_MB=100)
        for core in range(4):
            api.provider(f"core-{number}-{core}", host, PCPU=2)
    rules = ("pack", "isolate", "spread")
    members = [
        {
            "consumer_uuid": str(uuid.uuid4()),
            "query": f"resources_N=MEMORY_MB:1,PCPU:{1 + number % 3}&split_N=PCPU"
            f"&split_rule_N={rules[number % 3]}",
        }
        for number in range(9)
    ]
    answer = api.post(PATH, wish(members))
    together = [member.get("allocations") for member in answer.json["members"]]
    assert any(together)
    for member in members:
        api.delete(f"/allocations/{member['consumer_uuid']}")
    assert one_by_one(api, members) == together


@pytest.mark.both_databases
def test_whoever_loses_a_race_is_searched_for_again(api: Client, monkeypatch: pytest.MonkeyPatch):
    hosts = [api.provider(f"host-{number}", VCPU=2) for number in range(3)]
    real = Claims.put
    losses = iter(range(2))

    def beaten(self: Claims, claims: Any, **options: Any) -> None:
        # Another consumer takes all of a host between the search and the claim, twice.
        if len(claims) > 1 and (number := next(losses, None)) is not None:
            assert api.claim({hosts[number]: {"VCPU": 2}}).status_code == 204
            raise CapacityExceeded("taken")
        real(self, claims, **options)

    monkeypatch.setattr(Claims, "put", beaten)
    answer = api.post(PATH, wish(2, atomic=True))
    assert statuses(answer) == [201, 201]
    assert api.used(hosts[2]) == {"VCPU": 2}


def test_a_bounded_number_is_claimed_for_at_once(api: Client):
    answer = api.post(PATH, wish([{"consumer_uuid": str(uuid.uuid4())}] * 10_001))
    assert (answer.status_code, detail(answer)) == (
        400,
        "members: must have at most 10000 elements, not 10001",
    )
