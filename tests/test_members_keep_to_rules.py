"""Claims of many under rules between them: who is apart, who is together, and what is told where it fails."""

from __future__ import annotations

import uuid
from typing import Any

from tests.client import Client

PATH = "/ext/v1/claims"


def wish(
    members: Any, *rules: dict[str, Any], query: Any = "resources=VCPU:1", **more: Any
) -> dict[str, Any]:
    if isinstance(members, int):
        members = [{"count": members}]
    common = {"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE", "query": query}
    return {**common, "members": members, **({"rules": list(rules)} if rules else {}), **more}


def places(answer: Any) -> list[set[str] | None]:
    """The providers of each member, None for those that got nothing."""
    assert answer.status_code == 200, answer.text
    return [set(each["allocations"]) if "allocations" in each else None for each in answer.json["members"]]


def hosts(api: Client, count: int, **offered: int) -> list[str]:
    return [api.provider(f"host-{uuid.uuid4()}", **(offered or {"VCPU": 8})) for _ in range(count)]


def zones(api: Client, **members: list[str]) -> dict[str, str]:
    """Aggregates by name, with these hosts in them."""
    made = {name: str(uuid.uuid4()) for name in members}
    for host in {host for each in members.values() for host in each}:
        api.join(host, [made[name] for name, each in members.items() if host in each])
    return made


APART = {"kind": "at_most"}
SAME = {"kind": "together"}


def test_members_are_on_different_hosts(api: Client):
    three = hosts(api, 3)
    answer = api.post(PATH, wish(4, APART))
    assert places(answer) == [{three[0]}, {three[1]}, {three[2]}, None]
    assert answer.json["proven"] is True
    assert answer.json["rules"] == [{"rule": "at most 1 per host", "kept": True, "excess": 0}]
    (error,) = [each["error"]["detail"] for each in answer.json["members"] if "error" in each]
    assert "3 of 4 members have one; 3 hosts have room for another one" in error
    assert "rules[0] (at most 1 per host) leaves out 3 of them" in error


def test_members_are_together(api: Client):
    hosts(api, 2, VCPU=3)
    large = api.provider("large", VCPU=8)
    hosts(api, 2, VCPU=3)
    assert places(api.post(PATH, wish(4, SAME, atomic=True))) == [{large}] * 4
    refused = api.post(PATH, wish(5, SAME, atomic=True))
    assert refused.status_code == 409
    assert api.used(large) == {"VCPU": 4}
    assert [each is None for each in places(api.post(PATH, wish(5, SAME)))] == [False] * 4 + [True]
