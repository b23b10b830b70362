"""Whatever happens to a claim for many, its answer tells what was written; repeating it changes nothing."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from placement.allocations import best_fit, group_rules
from placement.allocations.best_fit import BestFit
from placement.allocations.claims import Claims
from placement.allocations.group_rules import GroupPlacer
from placement.engine.domain.errors import CapacityExceeded, Unavailable
from placement.engine.search.budget import Budget
from tests.client import Client

pytestmark = pytest.mark.one_database

PATH = "/ext/v1/claims"
APART: dict[str, Any] = {"kind": "at_most"}
OWNER = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
FLAVOR = {"vcpus": 2, "memory_mb": 64, "extra_specs": {"hw:cpu_policy": "dedicated"}}
MODEST = {**OWNER, "flavor": FLAVOR, "options": {"pcpu_fallback": True}}


def wish(members: list[Any], *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**OWNER, "query": "resources=VCPU:1", "members": members, "rules": list(rules), **more}


def statuses(answer: Any) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [each["status"] for each in answer.json["members"]]


def held(answer: Any) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [each.get("allocations") for each in answer.json["members"]]


def hosts(api: Client, count: int) -> list[str]:
    return [api.provider(f"host-{uuid.uuid4()}", VCPU=8) for _ in range(count)]


def named(count: int) -> list[dict[str, str]]:
    return [{"consumer_uuid": str(uuid.uuid4())} for _ in range(count)]


def put(api: Client, consumer: str, host: str, generation: int | None = None) -> None:
    """Let a consumer hold one VCPU of a host, by itself."""
    owner = {"project_id": "p", "user_id": "u"}
    assert api.claim({host: {"VCPU": 1}}, consumer, generation, **owner).status_code == 204


def old_and_new(api: Client) -> None:
    """One host has CPUs to share, the other has two for one guest alone."""
    api.provider("old", VCPU=8, MEMORY_MB=1024)
    api.provider("new", PCPU=2, MEMORY_MB=1024)


def test_members_that_move_are_counted_where_they_are(api: Client, monkeypatch: pytest.MonkeyPatch):
    """One holds what it asks for; it moves after that was seen, before the others are decided on."""
    first, second = hosts(api, 2)
    holder, other = named(2)
    assert statuses(api.post(PATH, wish([holder], APART))) == [201]
    uuid_ = holder["consumer_uuid"]
    assert list(api.used_by(uuid_)) == [first]
    real, moves = GroupPlacer.decide, iter("x")

    def decide(self: GroupPlacer, *arguments: Any) -> Any:
        for _ in moves:
            put(api, uuid_, second, 1)
        return real(self, *arguments)

    monkeypatch.setattr(GroupPlacer, "decide", decide)
    answer = api.post(PATH, wish([holder, other], APART, atomic=True))
    assert statuses(answer) == [200, 201]
    assert list(api.used_by(other["consumer_uuid"])) == [first]


def test_who_was_deleted_and_claimed_again_is_noticed(api: Client, monkeypatch: pytest.MonkeyPatch):
    """Its generation is that of a new consumer both times."""
    first, second = hosts(api, 2)
    there = named(1)[0]["consumer_uuid"]
    put(api, there, first)
    real, once = Claims.put, iter("x")

    def replace(self: Claims, claims: Any, **options: Any) -> None:
        # Others act between the first decision and its write.
        for _ in once:
            assert api.delete(f"/allocations/{there}").status_code == 204
            put(api, there, second)
        real(self, claims, **options)

    monkeypatch.setattr(Claims, "put", replace)
    answer = api.post(PATH, wish([{"count": 1}], {**APART, "consumers": [there]}))
    assert [list(each) for each in held(answer)] == [[first]]


def test_a_repeated_call_tells_how_the_rules_fare(api: Client):
    hosts(api, 2)
    body = wish(named(3), {**APART, "weight": 1})
    first, again = api.post(PATH, body), api.post(PATH, body)
    assert statuses(again) == [200] * 3
    assert first.json["rules"] == again.json["rules"]
    assert again.json["rules"] == [{"rule": "at most 1 per host", "kept": False, "excess": 1}]


def test_what_was_unproven_once_stays_so(api: Client, monkeypatch: pytest.MonkeyPatch):
    """Who is refused is not decided on again when the others lose a race and are."""
    hosts(api, 2)
    real_decide, real_replace = GroupPlacer.decide, Claims.put
    decisions, losses = iter([False]), iter("x")

    def decide(self: GroupPlacer, *arguments: Any) -> Any:
        decision = real_decide(self, *arguments)
        return decision._replace(proven=next(decisions, decision.proven))

    def replace(self: Claims, claims: Any, **options: Any) -> None:
        for _ in losses:
            raise CapacityExceeded("taken")
        real_replace(self, claims, **options)

    monkeypatch.setattr(GroupPlacer, "decide", decide)
    monkeypatch.setattr(Claims, "put", replace)
    answer = api.post(PATH, wish([{"count": 3}], APART))
    assert statuses(answer) == [201, 201, 409]
    assert answer.json["proven"] is False


def test_reasons_that_cannot_be_found_in_time_are_no_reason_to_fail(
    api: Client, monkeypatch: pytest.MonkeyPatch
):
    hosts(api, 2)
    budgets = iter([Budget(), Budget(-1.0)])
    monkeypatch.setattr(group_rules, "_budget", lambda: next(budgets))
    answer = api.post(PATH, wish([{"count": 3}], APART))
    assert statuses(answer) == [201, 201, 409]
    assert "2 of 3 members fit; time ran out" in answer.json["members"][2]["error"]["detail"]


def test_others_that_are_apart_do_not_break_togetherness(api: Client):
    apart = [each["consumer_uuid"] for each in named(2)]
    for host, consumer in zip(hosts(api, 2), apart, strict=True):
        put(api, consumer, host)
    answer = api.post(PATH, wish([{"count": 2}], {"kind": "together", "consumers": apart}))
    assert statuses(answer) == [201, 201]
    assert [each["kept"] for each in answer.json["rules"]] == [True]


@pytest.mark.both_databases
def test_who_holds_what_it_asks_for_comes_into_its_group(api: Client):
    first, second = hosts(api, 2)
    members = named(1)
    assert statuses(api.post(PATH, wish(members, APART))) == [201]
    body = {**wish(members), "group": "web"}
    del body["rules"]
    assert statuses(api.post(PATH, body)) == [200]
    answer = api.post(PATH, wish([{"count": 1}], {**APART, "groups": ["web"]}))
    assert [list(each) for each in held(answer)] == [[second]]
    assert list(api.used_by(members[0]["consumer_uuid"])) == [first]


@pytest.mark.both_databases
def test_a_fallback_that_was_taken_is_known_again(api: Client):
    old_and_new(api)
    body = {**MODEST, "members": named(3)}
    first, again = api.post(PATH, body), api.post(PATH, body)
    assert (statuses(first), statuses(again)) == ([201] * 3, [200] * 3)
    assert held(first) == held(again)


@pytest.mark.parametrize("atomic", [False, True])
def test_a_dry_run_tries_the_fallback(api: Client, atomic: bool):
    old_and_new(api)
    body = {**MODEST, "members": [{"count": 4}], "atomic": atomic}
    foreseen = held(api.post(PATH, {**body, "dry_run": True}))
    assert held(api.post(PATH, body)) == foreseen
    assert None not in foreseen
    # There is room for three now that the others hold theirs, and what was promised first counts.
    assert held(api.post(PATH, {**body, "members": [{"count": 1}], "dry_run": True}))[0] is not None


def test_what_was_written_is_told_though_the_fallback_fails(api: Client, monkeypatch: pytest.MonkeyPatch):
    old_and_new(api)
    real, calls = BestFit._settled, iter(range(2))

    def settled(self: BestFit, *arguments: Any) -> Any:
        if next(calls):
            raise Unavailable("the database is gone")
        return real(self, *arguments)

    monkeypatch.setattr(BestFit, "_settled", settled)
    answer = api.post(PATH, {**MODEST, "members": [{"count": 2}]})
    assert statuses(answer) == [201, 409]


def test_what_was_written_is_told_though_a_later_portion_fails(api: Client, monkeypatch: pytest.MonkeyPatch):
    hosts(api, 1)
    monkeypatch.setattr(best_fit, "_AT_ONCE", 2)
    real, calls = Claims.put, iter(range(2))

    def replace(self: Claims, claims: Any, **options: Any) -> None:
        if next(calls):
            raise Unavailable("the database is gone")
        real(self, claims, **options)

    monkeypatch.setattr(Claims, "put", replace)
    body = wish([{"count": 5}])
    del body["rules"]
    assert statuses(api.post(PATH, body)) == [201, 201, 503, 503, 503]
