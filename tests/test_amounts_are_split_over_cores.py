"""A group may take an amount from several providers of one subtree: searched for, claimed, explained."""

from __future__ import annotations

import uuid
from collections import Counter
from urllib.parse import urlencode

import pytest

from tests.client import Client

pytestmark = pytest.mark.one_database

PATH = "/ext/v1/allocation_candidates"
CORES = 4


class Host:
    """A host with two NUMA nodes of four cores of two threads each; providers by name."""

    def __init__(self, api: Client) -> None:
        self.api = api
        self.uuids = {"host": api.provider("host", DISK_GB=100)}
        for numa in ("numa-0", "numa-1"):
            self.uuids[numa] = api.provider(numa, self.uuids["host"], VCPU=8, MEMORY_MB=4096)
            api.carry(self.uuids[numa], "HW_NUMA_ROOT")
            for core in range(CORES):
                name = f"{numa}-core-{core}"
                self.uuids[name] = api.provider(name, self.uuids[numa], PCPU=2)
        self.names = {value: key for key, value in self.uuids.items()}

    def use(self, *names: str, amount: int = 1) -> None:
        """Let others hold so many PCPU of each of these cores."""
        for name in names:
            assert self.api.claim({self.uuids[name]: {"PCPU": amount}}).status_code == 204

    def named(self, allocations: dict) -> dict[str, dict[str, int]]:
        return {self.names[key]: entry["resources"] for key, entry in allocations.items()}

    def search(self, **query: object) -> list[dict[str, dict[str, int]]]:
        answer = self.api.get(f"{PATH}?{urlencode(query)}")
        assert answer.status_code == 200, answer.text
        return [self.named(found["allocations"]) for found in answer.json["allocation_requests"]]


@pytest.fixture
def host(api: Client) -> Host:
    return Host(api)


def on_numa(amount: int, rule: str | None = None, **more: str) -> dict[str, str]:
    """So many PCPU below one NUMA node."""
    query = {
        "required_numa": "HW_NUMA_ROOT",
        "resources_cpus": f"PCPU:{amount}",
        "split_cpus": "PCPU",
        "same_subtree": "_numa,_cpus",
        "group_policy": "none",
    }
    return {**query, **({"split_rule_cpus": rule} if rule else {}), **more}


def pcpus(candidate: dict[str, dict[str, int]]) -> list[int]:
    return sorted(held["PCPU"] for held in candidate.values() if "PCPU" in held)


def test_each_subtree_yields_one_choice(host: Host):
    found = host.search(**on_numa(4))
    assert [pcpus(candidate) for candidate in found] == [[2, 2], [2, 2]]
    assert {frozenset(name[:6] for name in candidate) for candidate in found} == {
        frozenset({"numa-0"}),
        frozenset({"numa-1"}),
    }


def test_rules_choose_the_cores(host: Host):
    """Of node 0 one thread is taken, of node 1 every core: whole ones are left on node 0 only."""
    host.use("numa-0-core-0", *(f"numa-1-core-{core}" for core in range(CORES)))
    for rule, amount, expected in (
        *(("pack", 3, [1, 2]), ("pack", 7, [1, 2, 2, 2]), ("pack", 9, None), ("spread", 6, [1, 1, 2, 2])),
        *(("require", 4, [2, 2]), ("require", 3, None), ("isolate", 3, [2, 2, 2]), ("isolate", 4, None)),
    ):
        found = [each for each in host.search(**on_numa(amount, rule)) if "numa-1-core-1" not in each]
        assert [pcpus(candidate) for candidate in found] == ([expected] if expected else []), (rule, amount)
    # Packing, which is the rule where none is given, breaks a whole core only if it must.
    assert any("numa-0-core-0" in each for each in host.search(**on_numa(3)))


def test_without_same_subtree_the_whole_tree_gives(host: Host):
    (found,) = host.search(resources_cpus="PCPU:16", split_cpus="PCPU")
    assert pcpus(found) == [2] * 8


def test_what_is_not_split_comes_from_one_provider_above_the_parts(host: Host):
    found = host.search(resources_cell="MEMORY_MB:1024,PCPU:4", split_cell="PCPU")
    taken = [[held["MEMORY_MB"] for held in each.values() if "MEMORY_MB" in held] for each in found]
    assert taken == [[1024]] * 2
    for candidate in found:
        assert len({name[:6] for name in candidate}) == 1
        assert pcpus(candidate) == [2, 2]


def test_a_flat_host_gives_all_of_it_alone(api: Client):
    flat = api.provider("flat", MEMORY_MB=4096, PCPU=8)
    query = urlencode({"resources_cell": "MEMORY_MB:1024,PCPU:4", "split_cell": "PCPU"})
    (found,) = api.get(f"{PATH}?{query}").json["allocation_requests"]
    assert found == {
        "allocations": {flat: {"resources": {"MEMORY_MB": 1024, "PCPU": 4}}},
        "mappings": {"_cell": [flat]},
    }


def test_an_order_is_of_no_effect_where_nothing_is_found(host: Host):
    assert host.search(**on_numa(9), order_by="pack") == []


def test_mappings_name_all_providers(host: Host):
    answer = host.api.get(f"{PATH}?{urlencode(on_numa(4, order_by='pack'))}").json
    assert answer["allocation_requests"]
    for found in answer["allocation_requests"]:
        assert found["score"] <= found["max_score"]
        assert sorted(found["mappings"]["_cpus"]) == sorted(found["allocations"])
        (numa,) = found["mappings"]["_numa"]
        assert {host.names[each][:6] for each in found["allocations"]} == {host.names[numa]}
    assert set(answer["provider_summaries"]) == set(host.uuids.values())


def test_two_groups_share_the_cores_of_one_node(host: Host):
    query = on_numa(5, resources_more="PCPU:3", split_more="PCPU", same_subtree="_numa,_cpus,_more")
    assert [pcpus(candidate) for candidate in host.search(**query)] == [[2] * CORES] * 2
    assert host.search(**{**query, "resources_more": "PCPU:4"}) == []
    # Kept apart they share no core, and would need five.
    assert host.search(**{**query, "group_policy": "isolate"}) == []
    assert host.search(**{**query, "group_policy": "isolate", "resources_cpus": "PCPU:4"})


@pytest.mark.parametrize(
    ("amount", "rule", "expected"),
    [
        (6, "pack", {"even": 4, "few": 2}),
        (7, "pack", {"even": 4, "many": 3}),
        (3, "pack", {"many": 3}),
        (9, "spread", {"even": 4, "few": 2, "many": 3}),
        (1, "pack", {"few": 1}),
    ],
)
def test_each_part_respects_the_units_of_its_provider(
    api: Client, amount: int, rule: str, expected: dict[str, int]
):
    """`even` gives 2 or 4, `few` at most 2, `many` no less than 3."""
    host = api.provider("host")
    uuids = {
        "even": api.provider("even", host, PCPU={"total": 4, "step_size": 2, "min_unit": 2}),
        "few": api.provider("few", host, PCPU={"total": 8, "max_unit": 2}),
        "many": api.provider("many", host, PCPU={"total": 3, "min_unit": 3}),
    }
    query = urlencode({"resources_a": f"PCPU:{amount}", "split_a": "PCPU", "split_rule_a": rule})
    (found,) = api.get(f"{PATH}?{query}").json["allocation_requests"]
    held = {key: entry["resources"]["PCPU"] for key, entry in found["allocations"].items()}
    assert held == {uuids[name]: part for name, part in expected.items()}


def test_any_fit_of_the_nearly_saturated_ports(api: Client):
    """Use case 5 of the granular syntax as one group: four VFs, where each port has two left."""
    host = api.provider("CN1")
    ports = {}
    for name, network in (("RP1", "CUSTOM_NET1"), ("RP2", "CUSTOM_NET2"), ("RP3", "CUSTOM_NET1")):
        ports[name] = api.provider(name, host, SRIOV_NET_VF=16)
        api.carry(ports[name], network)
        assert api.claim({ports[name]: {"SRIOV_NET_VF": 14}}).status_code == 204
    query = "resources_1=SRIOV_NET_VF:4&required_1=CUSTOM_NET1&split_1=SRIOV_NET_VF"
    (found,) = api.get(f"{PATH}?{query}").json["allocation_requests"]
    two = {"resources": {"SRIOV_NET_VF": 2}}
    assert found["allocations"] == {ports["RP1"]: two, ports["RP3"]: two}


def claim(host: Host, query: object, consumer: str | None = None):
    body = {"consumer_uuid": consumer or str(uuid.uuid4()), "project_id": "p", "user_id": "u"}
    return host.api.post("/ext/v1/claims", {**body, "consumer_type": "INSTANCE", "query": query})


def test_claims_hold_exactly_the_split_until_each_pcpu_is_given_once(host: Host):
    taken: Counter[str] = Counter()
    for _ in range(4):
        answer = claim(host, urlencode(on_numa(4)))
        assert answer.status_code == 201, answer.text
        held = host.api.used_by(answer.json["consumer_uuid"])
        assert held == {key: entry["resources"] for key, entry in answer.json["allocations"].items()}
        for provider, amounts in held.items():
            taken[provider] += amounts["PCPU"]
    assert taken == {host.uuids[f"numa-{numa}-core-{core}"]: 2 for numa in (0, 1) for core in range(CORES)}
    assert claim(host, urlencode(on_numa(1))).status_code == 409


@pytest.mark.parametrize("rule", ["pack", "isolate", "spread"])
def test_a_repeated_claim_changes_nothing(host: Host, rule: str):
    query = urlencode(
        {"resources_cell": "MEMORY_MB:1024,PCPU:3", "split_cell": "PCPU", "split_rule_cell": rule}
    )
    first = claim(host, query)
    again = claim(host, query, first.json["consumer_uuid"])
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json == first.json
    assert claim(host, query.replace("1024", "512"), first.json["consumer_uuid"]).status_code == 409


def test_nobody_gets_the_siblings_of_isolated_threads(host: Host):
    for _ in range(2):
        assert claim(host, urlencode(on_numa(4, "isolate"))).status_code == 201
    assert host.search(resources="PCPU:1") == []


def explained(host: Host, **query: object) -> list[str]:
    answer = host.api.get(f"{PATH}?{urlencode({**query, 'explain': 1})}")
    assert answer.status_code == 200, answer.text
    sentences: list[str] = answer.json["explanation"]["sentences"]
    return sentences


def test_what_is_missing_is_said_per_subtree(host: Host):
    host.use("numa-0-core-0", *(f"numa-1-core-{core}" for core in range(CORES)))
    said = explained(host, **on_numa(8))
    assert said[-2:] == [
        "NUMA node numa-0: 7 of 8 PCPU for group _cpus",
        "NUMA node numa-1: 4 of 8 PCPU for group _cpus",
    ]
    said = explained(host, **on_numa(4, "isolate"))
    assert "NUMA node numa-0: 3 of 4 PCPU for group _cpus" in said
    assert explained(host, resources_cpus="PCPU:12", split_cpus="PCPU")[-1] == (
        "host host: 11 of 12 PCPU for group _cpus"
    )


def test_groups_that_find_too_little_together_are_named_together(host: Host):
    query = on_numa(5, resources_more="PCPU:4", split_more="PCPU", same_subtree="_numa,_cpus,_more")
    assert explained(host, **query)[-2:] == [
        "NUMA node numa-0: 8 of 9 PCPU for _cpus and _more",
        "NUMA node numa-1: 8 of 9 PCPU for _cpus and _more",
    ]


def test_a_plain_group_is_told_that_split_would_help(host: Host):
    assert explained(host, resources="PCPU:4")[-1] == (
        "split would help: 4 providers below numa-0 have 8 PCPU free, of 4 wanted"
    )
    assert explained(host, resources="PCPU:12")[-1] == (
        "split would help: 8 providers below host have 16 PCPU free, of 12 wanted"
    )
    assert "split" not in " ".join(explained(host, resources="PCPU:17"))


def test_split_would_help_only_where_the_query_looks(host: Host):
    host.api.carry(host.api.provider("big", PCPU=64), "CUSTOM_BIG")
    host.api.carry(host.uuids["host"], "CUSTOM_CORES")
    assert explained(host, resources="PCPU:4", root_required="CUSTOM_CORES")[-1] == (
        "split would help: 4 providers below numa-0 have 8 PCPU free, of 4 wanted"
    )
    for elsewhere in ({"resources": "PCPU:4"}, {"resources": "PCPU:65", "root_required": "CUSTOM_BIG"}):
        assert "split" not in " ".join(explained(host, **elsewhere))


def test_a_subtree_that_is_no_numa_node_is_told_by_its_name(api: Client):
    rack = api.provider("rack", VCPU=1)
    api.provider("card", rack, PGPU=2)
    query = "resources_a=VCPU:1,PGPU:3&split_a=PGPU&explain=1"
    said = api.get(f"{PATH}?{query}").json["explanation"]["sentences"]
    assert said[-1] == "below rack: 2 of 3 PGPU for group _a"
