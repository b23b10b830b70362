"""The answer of a search as a page shows it: candidates and misses by host, hosts left by stage."""

from __future__ import annotations

from typing import Any

from placement.engine.domain.explanation import Alternative
from placement.providers.statements.providers import NamedPlace
from placement.web import near_misses
from placement.web.candidate_hosts import ClaimedUse, by_host
from placement.web.funnel import FunnelStep, funnel
from placement.web.mending import mend


def candidate(host: str, core: str, amount: int = 2) -> dict[str, Any]:
    return {
        "host": {"uuid": host, "name": f"edge/{host}"},
        "score": None,
        "score_parts": [],
        "allocations": {f"{host}-{core}": {"name": f"edge/{host}/{core}", "resources": {"PCPU": amount}}},
    }


def stage(kind: str, condition: str, passed: int, came: int = 6, **more: Any) -> dict[str, Any]:
    counted = "providers" if more.get("group") is not None else "trees"
    given = {"group": None, "kind": kind, "condition": condition, "counted": counted}
    return {**given, "came": came, "trees_came": came, "trees": passed, **more}


def test_candidates_of_a_host_are_one_row_with_the_use_after_the_first():
    found = by_host(
        [candidate("a", "core-0"), candidate("b", "core-0"), candidate("a", "core-1", 4)],
        {"a": {"PCPU": (16, 6), "VCPU": (8, 0)}},
        {},
    )
    assert [(host.name, [row.providers for row in host.candidates]) for host in found] == [
        ("edge/a", ["core-0", "core-1"]),
        ("edge/b", ["core-0"]),
    ]
    assert found[0].uses == [ClaimedUse("PCPU", 6, 8, 16)]
    assert found[1].uses == []


def test_the_funnel_has_the_numbers_of_the_stages_and_ends_where_none_is_left():
    cluster = stage("root_aggregates", "hosts in cluster edge", 4, 6, required=[["cluster edge"]])
    free = stage("amount", "64 PCPU free", 3, 40, group="", resource_class="PCPU", wanted=64)
    last = stage("combination", "hosts that can serve the whole request at once", 0, 3)
    assert funnel({"stages": [cluster, free, last], "first_empty": 2}) == [
        FunnelStep("in cluster edge", "", 4, 6, False),
        FunnelStep("64 CPU free", "PCPU, on one provider", 3, 6, False),
        FunnelStep("all of the above side by side", "sums, group_policy, same_subtree", 0, 6, True),
    ]
    # What takes nothing away is left out, and so is a group that asks for any provider.
    numa = stage("any", "group _numa, any provider", 3, 3, group="_numa")
    steps = funnel({"stages": [cluster, free, numa, {**last, "trees": 3}], "first_empty": None})
    assert [(step.hosts, step.of) for step in steps] == [(4, 6), (3, 6)]


def near_miss(host: str, core: str, free: int = 2) -> dict[str, Any]:
    provider = {"uuid": f"{host}-{core}", "name": f"edge/{host}/{core}"}
    shortage = {"reason": "amount", "resource_provider": provider, "resource_class": "PCPU"}
    amounts = {"wanted": 8, "free": free, "missing": 8 - free}
    sentence = f"{provider['name']} lacks {8 - free} PCPU: it has {free} free"
    return {
        "resource_provider": provider,
        **amounts,
        "shortages": [{**shortage, **amounts}],
        "sentences": [sentence],
    }


def test_misses_of_a_host_that_lack_the_same_share_a_sentence(monkeypatch):
    monkeypatch.setattr(near_misses, "address", lambda path: f"/ui{path}")
    nearest = [near_miss("a", "core-0"), near_miss("b", "core-0", 1), near_miss("a", "core-1")]
    places = {
        each["resource_provider"]["uuid"]: NamedPlace("core", host, f"edge/{host}")
        for each, host in zip(nearest, "aba", strict=True)
    }
    found = near_misses.missed_hosts(nearest, places)
    assert [(host.name, host.sentences) for host in found] == [
        ("edge/a", ["6 CPU of PCPU missing: 2 of 8 CPU free on core-0 and 1 more"]),
        ("edge/b", ["7 CPU of PCPU missing: 1 of 8 CPU free on core-0"]),
    ]
    assert found[0].page.startswith("/ui/hosts/a?lacks=a-core-0%2CPCPU%2C6+CPU+missing&lacks=a-core-1")


def mended(query: str, group: str = "", name: str = "PCPU") -> str | None:
    pairs = [(key, value) for key, _, value in (each.partition("=") for each in query.split("&"))]
    free = stage("amount", "8 PCPU free", 0, group=group, resource_class="PCPU", wanted=8)
    explanation = {"stages": [free], "first_empty": 0, "nearest": [near_miss("a", "core-0")]}
    found = mend(explanation, pairs, Alternative("a", name, 8, 12, 6), "edge/a")
    return None if found is None else found.query


def test_an_amount_that_no_provider_has_is_split_where_several_have_it():
    assert mended("resources=PCPU:8,VCPU:1") == (
        "resources=VCPU:1&resources_several=PCPU:8&split_several=PCPU"
    )
    assert mended("resources=PCPU:8&resources_1=VGPU:1") == (
        "resources_several=PCPU:8&resources_1=VGPU:1&split_several=PCPU&group_policy=none"
    )
    assert mended("resources_1=PCPU:8", "_1") == "resources_1=PCPU:8&split_1=PCPU"
    assert mended("resources_1=PCPU:8&split_1=PCPU", "_1") is None
    assert mended("resources=PCPU:8", name="VCPU") is None
    # A group without amounts has no conditions, and a suffix is one group's.
    for condition in ("required=!CUSTOM_A", "member_of=b", "in_tree=b"):
        assert mended(f"resources=PCPU:8&{condition}") is None
    assert mended("resources=PCPU:8,VCPU:1&required=CUSTOM_A") == (
        "resources=VCPU:1&resources_several=PCPU:8&required=CUSTOM_A&split_several=PCPU"
    )
    assert mended("resources=PCPU:8&resources_several=VGPU:1") is None
