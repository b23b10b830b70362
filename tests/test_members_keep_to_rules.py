"""Claims of many under rules between them: who is apart, who is together, and what is told where it fails."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pytest

from placement.allocations.claims import Claims
from placement.engine.domain.errors import CapacityExceeded
from tests.client import Client, detail

pytestmark = pytest.mark.one_database

PATH = "/ext/v1/claims"
Rule = dict[str, Any]
APART: Rule = {"kind": "at_most"}
SAME: Rule = {"kind": "together"}


def wish(members: Any, *rules: Rule, query: Any = "resources=VCPU:1", **more: Any) -> dict[str, Any]:
    if isinstance(members, int):
        members = [{"count": members}]
    common: dict[str, Any] = {"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE"}
    if query is not None:
        common["query"] = query
    return {**common, "members": members, **({"rules": list(rules)} if rules else {}), **more}


def places(answer: Any) -> list[str | None]:
    """The one provider of each member, None for those that got nothing."""
    assert answer.status_code == 200, answer.text
    found: list[str | None] = []
    for each in answer.json["members"]:
        providers = list(each.get("allocations", [None]))
        assert len(providers) == 1
        found += providers
    return found


def consumers(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [each["consumer_uuid"] for each in answer.json["members"] if "allocations" in each]


def hosts(api: Client, count: int, vcpus: int = 8) -> list[str]:
    return [api.provider(f"host-{uuid.uuid4()}", VCPU=vcpus) for _ in range(count)]


def zones(api: Client, *members: list[str]) -> list[str]:
    """Aggregates with these hosts in them."""
    made = [str(uuid.uuid4()) for _ in members]
    for host in {host for each in members for host in each}:
        api.join(host, *(zone for zone, each in zip(made, members, strict=True) if host in each))
    return made


def test_members_are_on_different_hosts(api: Client):
    three = hosts(api, 3)
    answer = api.post(PATH, wish(4, APART))
    assert places(answer) == [*three, None]
    assert answer.json["proven"] is True
    assert answer.json["rules"] == [{"rule": "at most 1 per host", "kept": True, "excess": 0}]
    (error,) = [each["error"]["detail"] for each in answer.json["members"] if "error" in each]
    assert "3 of 4 members fit; 3 hosts have room for another" in error
    assert "rules[0] (at most 1 per host) rules out 3 of them" in error


def test_all_or_none_and_at_least_so_many(api: Client):
    three = hosts(api, 3)
    for refused in (wish(4, APART, atomic=True), wish(5, APART, minimum=4)):
        answer = api.post(PATH, refused)
        assert answer.status_code == 409
        assert "3 hosts have room for another" in answer.json["errors"][0]["detail"]
    assert [api.used(host) for host in three] == [{"VCPU": 0}] * 3
    assert Counter(places(api.post(PATH, wish(5, APART, minimum=3)))) == {**dict.fromkeys(three, 1), None: 2}


def test_members_are_together(api: Client):
    hosts(api, 2, vcpus=3)
    (large,) = hosts(api, 1)
    hosts(api, 2, vcpus=3)
    assert places(api.post(PATH, wish(4, SAME, atomic=True))) == [large] * 4
    refused = api.post(PATH, wish(5, SAME, atomic=True))
    assert refused.status_code == 409
    assert api.used(large) == {"VCPU": 4}
    assert places(api.post(PATH, wish(5, SAME))) == [large] * 4 + [None]


def test_members_are_spread_over_zones(api: Client):
    inside = [hosts(api, 1), hosts(api, 3), hosts(api, 3)]
    hosts(api, 3)
    made = zones(api, *inside)
    spread = {"kind": "spread", "per": "aggregate", "aggregates": made}
    placed = places(api.post(PATH, wish(9, APART, spread)))
    per_zone = [sum(host in each for host in placed) for each in inside]
    # The one host of the first zone is taken, so the others may have one more each.
    assert (sorted(per_zone), placed.count(None)) == ([1, 2, 2], 4)


def test_a_zone_that_no_host_was_ever_in_counts_as_empty(api: Client):
    inside = [hosts(api, 3), hosts(api, 3)]
    made = [*zones(api, *inside), str(uuid.uuid4())]
    spread = {"kind": "spread", "per": "aggregate", "aggregates": made}
    placed = places(api.post(PATH, wish(9, APART, spread)))
    # The empty zone has none, so the others may have one each.
    assert [sum(host in each for host in placed) for each in inside] == [1, 1]
    together = {"kind": "together", "per": "aggregate", "aggregates": made}
    placed = places(api.post(PATH, wish(2, together)))
    assert any({*placed} <= {*each} for each in inside)
    assert places(api.post(PATH, wish(1, {**together, "aggregates": made[2:]}))) == [None]


def test_at_most_so_many_are_in_an_aggregate(api: Client):
    inside = [hosts(api, 2), hosts(api, 2)]
    made = zones(api, *inside)
    rule = {"kind": "at_most", "per": "aggregate", "aggregates": made[:1], "count": 3}
    placed = places(api.post(PATH, wish(20, rule)))
    assert sum(host in inside[0] for host in placed) == 3
    assert sum(host in inside[1] for host in placed) == 16


def test_members_are_on_different_numa_nodes(api: Client):
    nodes = []
    for host in hosts(api, 2):
        for number in range(2):
            nodes.append(api.provider(f"{host}-{number}", host, PCPU=4))
            api.carry(nodes[-1], "HW_NUMA_ROOT")
    rule = {"kind": "at_most", "per": "provider", "trait": "HW_NUMA_ROOT"}
    placed = places(api.post(PATH, wish(5, rule, query="resources=PCPU:1")))
    assert sorted(each for each in placed if each) == sorted(nodes)
    assert placed.count(None) == 1
    together = {"kind": "together", "per": "provider", "resource_class": "PCPU"}
    assert len({*places(api.post(PATH, wish(3, together, query="resources=PCPU:1", atomic=True)))}) == 1


def test_rules_name_members(api: Client):
    hosts(api, 2)
    members = [
        {"name": "web", "count": 2},
        {"name": "db", "consumer_uuids": [str(uuid.uuid4()) for _ in "ab"]},
    ]
    answer = api.post(PATH, wish(members, {**APART, "members": ["web"]}, {**SAME, "members": ["db"]}))
    placed = places(answer)
    assert [each["name"] for each in answer.json["members"]] == ["web", "web", "db", "db"]
    assert (len({*placed[:2]}), len({*placed[2:]})) == (2, 1)


def test_soft_rules_give_way(api: Client):
    two = hosts(api, 2, vcpus=3)
    answer = api.post(PATH, wish(5, {**APART, "weight": 1}, atomic=True))
    assert sorted(Counter(places(answer)).values()) == [2, 3]
    assert answer.json["rules"] == [{"rule": "at most 1 per host", "kept": False, "excess": 3}]
    assert {*places(answer)} == {*two}


def test_others_count_in_rules(api: Client):
    four = hosts(api, 4)
    first = api.post(PATH, wish(2, APART))
    named = {**APART, "consumers": consumers(first)}
    assert {*places(first), *places(api.post(PATH, wish(2, named, atomic=True)))} == {*four}
    one = {"consumers": consumers(first)[:1]}
    assert api.post(PATH, wish(1, {**named, **one}, {**SAME, **one}, atomic=True)).status_code == 409


def test_a_group_grows(api: Client):
    three = hosts(api, 3)
    rule = {**APART, "groups": ["web"]}
    found = [places(api.post(PATH, wish(1, rule, group="web"))) for _ in range(4)]
    assert [each for (each,) in found] == [*three, None]
    # Whoever leaves makes room.
    (gone,) = api.get(f"/resource_providers/{three[1]}/allocations").json["allocations"]
    assert api.delete(f"/allocations/{gone}").status_code == 204
    assert places(api.post(PATH, wish(1, rule, group="web"))) == [three[1]]


def test_a_repeated_call_changes_nothing(api: Client):
    three = hosts(api, 3)
    members = [{"consumer_uuid": str(uuid.uuid4())} for _ in range(3)]
    body = wish(members, {**APART, "groups": ["web"]}, group="web", atomic=True)
    first, again = api.post(PATH, body), api.post(PATH, body)
    assert [each["status"] for each in first.json["members"]] == [201] * 3
    assert [each["status"] for each in again.json["members"]] == [200] * 3
    assert places(first) == places(again) == three
    # One more beside those that hold something already.
    more = {**body, "members": [*members, {"count": 1}]}
    assert api.post(PATH, more).status_code == 409


def test_who_loses_a_race_is_searched_for_again(api: Client, monkeypatch: pytest.MonkeyPatch):
    three = hosts(api, 3, vcpus=2)
    real = Claims.put
    losses = iter(range(1))

    def beaten(self: Claims, claims: Any, **options: Any) -> None:
        if len(claims) > 1 and (number := next(losses, None)) is not None:
            assert api.claim({three[number]: {"VCPU": 2}}).status_code == 204
            raise CapacityExceeded("taken")
        real(self, claims, **options)

    monkeypatch.setattr(Claims, "put", beaten)
    assert {*places(api.post(PATH, wish(2, APART, atomic=True)))} == {*three[1:]}


def test_a_group_that_changed_meanwhile_is_decided_on_again(api: Client, monkeypatch: pytest.MonkeyPatch):
    three = hosts(api, 3)
    body = wish(1, {**APART, "groups": ["web"]}, group="web", atomic=True)
    real = Claims.put
    others = iter(range(2))

    def outrun(self: Claims, claims: Any, **options: Any) -> None:
        # Another claim into the group commits between decision and write.
        if next(others, None) is not None:
            assert api.post(PATH, body).status_code == 200
        real(self, claims, **options)

    monkeypatch.setattr(Claims, "put", outrun)
    assert places(api.post(PATH, body)) == [three[2]]
    assert [api.used(host) for host in three] == [{"VCPU": 1}] * 3


def test_nothing_is_written_in_a_dry_run(api: Client):
    two = hosts(api, 2)
    assert places(api.post(PATH, wish(2, APART, dry_run=True))) == two
    world = {"without": [two[0]], "more": [{"like": two[1], "count": 2}]}
    elsewhere = places(api.post(PATH, wish(4, APART, dry_run=True, world=world)))
    assert elsewhere[0] == two[1]
    assert [each is None for each in elsewhere] == [False, False, False, True]
    alone = wish(2, APART, dry_run=True, atomic=True, world={"without": two[:1]})
    assert api.post(PATH, alone).status_code == 409
    assert [api.used(host) for host in two] == [{"VCPU": 0}] * 2


FLAVOR = {"vcpus": 2, "memory_mb": 64, "extra_specs": {"hw:cpu_policy": "dedicated"}}


def flavor_hosts(api: Client, count: int) -> list[str]:
    return [api.provider(f"host-{uuid.uuid4()}", VCPU=8, PCPU=8, MEMORY_MB=1024) for _ in range(count)]


@pytest.mark.parametrize(
    ("group", "count", "expected"),
    [
        ({"policy": "anti-affinity"}, 3, [1, 1, 1]),
        ({"policy": "anti-affinity", "rules": {"max_server_per_host": 2}}, 6, [2, 2, 2]),
        ({"policies": ["affinity"]}, 3, [3]),
        ({"policy": "soft-anti-affinity"}, 5, [1, 2, 2]),
        ({"policy": "soft-affinity"}, 5, [1, 4]),
    ],
)
def test_server_groups_of_nova(api: Client, group: dict[str, Any], count: int, expected: list[int]):
    flavor_hosts(api, 3)
    named = {**group, "id": str(uuid.uuid4()), "name": "web", "members": []}
    answer = api.post(PATH, wish(count, query=None, flavor=FLAVOR, server_group=named, atomic=True))
    assert sorted(Counter(places(answer)).values()) == expected
    assert {each["dedicated_cpus"] for each in answer.json["members"]} == {"0-1"}
    shown = api.get("/ext/v1/allocations?consumer_type=INSTANCE").json["consumers"]
    assert [each["dedicated_cpus"] for each in shown] == ["0-1"] * count


def test_a_server_group_grows_server_by_server(api: Client):
    three = flavor_hosts(api, 3)
    group = {"id": "group-1", "policy": "anti-affinity"}
    body = wish(1, query=None, flavor=FLAVOR, server_group=group, atomic=True)
    assert [places(api.post(PATH, body)) for _ in range(3)] == [[host] for host in three]
    refused = api.post(PATH, body)
    assert refused.status_code == 409
    assert "server_group (at most 1 per host) rules out 3 of them" in detail(refused)


def test_flavors_fall_back(api: Client):
    api.provider("old", VCPU=3, MEMORY_MB=1024)
    (new,) = flavor_hosts(api, 1)
    answer = api.post(PATH, wish(5, query=None, flavor=FLAVOR, options={"pcpu_fallback": True}))
    assert [each["status"] for each in answer.json["members"]] == [201] * 5
    assert places(answer).count(new) == 4


def test_rules_name_a_bounded_number_of_consumers(api: Client):
    many = [{**APART, "consumers": [str(uuid.uuid4()) for _ in range(6000)]} for _ in "ab"]
    answer = api.post(PATH, wish(1, *many))
    assert answer.status_code == 400
    assert "rules: name 12000 consumers" in detail(answer)


def test_a_member_has_a_cluster_options_and_an_image_of_its_own(api: Client):
    api.provider("shared-cpus", VCPU=8, MEMORY_MB=1024)
    modest = {"count": 1, "options": {"pcpu_fallback": True}}
    answer = api.post(PATH, wish([modest, {"count": 1}], query=None, flavor=FLAVOR))
    assert [each["status"] for each in answer.json["members"]] == [201, 409]
    flavor_hosts(api, 1)
    assert api.put("/ext/v1/clusters/mine", {}).status_code in (200, 201)
    answer = api.post(PATH, wish([{"count": 1, "cluster": "mine"}, {"count": 1}], query=None, flavor=FLAVOR))
    assert [each["status"] for each in answer.json["members"]] == [409, 201]
