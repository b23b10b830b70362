"""Flavors on hosts whose cores are providers: each guest cell's CPUs come from below its memory."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from tests.client import Client, detail

pytestmark = pytest.mark.one_database

CANDIDATES = "/ext/v1/flavors/candidates"
TRANSLATION = "/ext/v1/flavors/translation"
CLAIMS = "/ext/v1/claims"
CORES = 8
# Properties of flavors.
DEDICATED = {"hw:cpu_policy": "dedicated"}
TWO_CELLS = {"hw:numa_nodes": "2"}

Held = Mapping[str, Mapping[str, int]]


class Cloud:
    """A host with two NUMA nodes of eight cores of two threads each; providers by name."""

    def __init__(self, api: Client, name: str = "host") -> None:
        self.api = api
        self.uuids = {name: api.provider(name, DISK_GB=100)}
        for numa in ("numa-0", "numa-1"):
            self.uuids[numa] = api.provider(f"{name}-{numa}", self.uuids[name], VCPU=16, MEMORY_MB=8192)
            api.carry(self.uuids[numa], "HW_NUMA_ROOT")
            for core in range(CORES):
                label = f"{numa}-core-{core}"
                self.uuids[label] = api.provider(f"{name}-{label}", self.uuids[numa], PCPU=2)
        self.names = {value: key for key, value in self.uuids.items()}

    def use(self, *names: str, amount: int = 1) -> None:
        """Let others hold so many PCPU of each of these cores."""
        for name in names:
            assert self.api.claim({self.uuids[name]: {"PCPU": amount}}).status_code == 204

    def named(self, allocations: Mapping[str, Any]) -> dict[str, dict[str, int]]:
        return {self.names[key]: entry["resources"] for key, entry in allocations.items()}

    def find(self, vcpus: int, specs: Mapping[str, str], **parts: Any) -> list[dict[str, dict[str, int]]]:
        found = find(self.api, flavor(vcpus, specs), **parts)
        return [self.named(each["allocations"]) for each in found["candidates"]["allocation_requests"]]


@pytest.fixture
def host(api: Client) -> Cloud:
    return Cloud(api)


def flavor(vcpus: int, specs: Mapping[str, str], memory_mb: int = 1024) -> dict[str, Any]:
    return {"vcpus": vcpus, "memory_mb": memory_mb, "root_gb": 1, "extra_specs": dict(specs)}


def find(api: Client, asked: dict[str, Any], **parts: Any) -> dict[str, Any]:
    answer = api.post(CANDIDATES, {"flavor": asked, **parts})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json
    return found


def claim(api: Client, asked: dict[str, Any], consumer: str | None = None, **parts: Any):
    body = {"consumer_uuid": consumer or str(uuid.uuid4()), "project_id": "p", "user_id": "u"}
    return api.post(CLAIMS, {**body, "consumer_type": "INSTANCE", "flavor": asked, **parts})


def cores(held: Held) -> dict[str, list[int]]:
    """Per NUMA node what its cores give, ascending."""
    given: dict[str, list[int]] = {}
    for name, amounts in held.items():
        if "PCPU" in amounts:
            given.setdefault(name[:6], []).append(amounts["PCPU"])
    return {numa: sorted(amounts) for numa, amounts in sorted(given.items())}


def cells(held: Held) -> dict[str, Mapping[str, int]]:
    """Per NUMA node what it gives itself."""
    return {name: amounts for name, amounts in sorted(held.items()) if name in ("numa-0", "numa-1")}


@pytest.mark.parametrize(
    ("vcpus", "specs", "shared"),
    [
        *((vcpus, DEDICATED, 0) for vcpus in (3, 16)),
        (4, {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "2-3"}, 2),
        (8, {"resources:VCPU": "4", "resources:PCPU": "4"}, 4),
    ],
)
def test_cpus_come_from_one_numa_node_beside_the_memory(
    host: Cloud, vcpus: int, specs: Mapping[str, str], shared: int
) -> None:
    found = host.find(vcpus, specs)
    beside = {"VCPU": shared, "MEMORY_MB": 1024} if shared else {"MEMORY_MB": 1024}
    for each in found:
        ((numa, given),) = cores(each).items()
        assert given == [1] * (vcpus % 2) + [2] * ((vcpus - shared) // 2)
        assert (cells(each), each["host"]) == ({numa: beside}, {"DISK_GB": 1})
    assert sorted(next(iter(cores(each))) for each in found) == ["numa-0", "numa-1"]
    answer = claim(host.api, flavor(vcpus, specs))
    assert answer.status_code == 201, answer.text
    assert host.named(answer.json["allocations"]) in found


def test_two_guest_cells_are_on_numa_nodes_of_their_own(host: Cloud) -> None:
    two = {**DEDICATED, **TWO_CELLS}
    for each in host.find(8, two):
        assert cores(each) == {"numa-0": [2, 2], "numa-1": [2, 2]}
        assert cells(each) == {"numa-0": {"MEMORY_MB": 512}, "numa-1": {"MEMORY_MB": 512}}
    for each in host.find(8, {**TWO_CELLS, "resources:VCPU": "3", "resources:PCPU": "5"}):
        assert sorted(sum(given) for given in cores(each).values()) == [2, 3]
        assert sorted(amounts["VCPU"] for amounts in cells(each).values()) == [1, 2]
    # As it is without dedicated CPUs: each cell asks for its shared ones beside its memory.
    for each in host.find(8, TWO_CELLS):
        assert cells(each) == {name: {"VCPU": 4, "MEMORY_MB": 512} for name in ("numa-0", "numa-1")}
    assert len(host.find(16, two)) == 2
    host.use("numa-1-core-0")
    assert len(host.find(16, two)) == 2
    host.use(*(f"numa-1-core-{core}" for core in range(CORES)), amount=1)
    # Node 0 could give all twelve, but not to two cells.
    assert host.find(16, two) == []
    assert len(host.find(12, DEDICATED)) == 1


def test_thread_policies_choose_the_cores(host: Cloud) -> None:
    """Nova looks for the siblings by a trait of the host; here the cores tell."""
    for policy, vcpus, given in (
        *(("prefer", 3, [1, 2]), ("prefer", 4, [2, 2]), ("require", 4, [2, 2]), ("require", 3, None)),
        *(("isolate", 4, [2, 2, 2, 2]), ("isolate", 3, [2, 2, 2]), ("isolate", 9, None)),
    ):
        found = host.find(vcpus, {**DEDICATED, "hw:cpu_thread_policy": policy})
        assert [list(cores(each).values()) for each in found] == ([] if given is None else [[given]] * 2)


@pytest.mark.parametrize(
    ("policy", "given"), [(None, [1, 2, 2]), ("require", [1, 2, 2]), ("isolate", [2] * 5)]
)
def test_the_emulator_has_a_cpu_of_its_own_beside_the_first_cell(
    host: Cloud, policy: str | None, given: list[int]
) -> None:
    specs = {**DEDICATED, "hw:emulator_threads_policy": "isolate"}
    if policy is not None:
        specs["hw:cpu_thread_policy"] = policy
    assert [list(cores(each).values()) for each in host.find(4, specs)] == [[given]] * 2
    answer = claim(host.api, flavor(4, specs))
    assert answer.status_code == 201, answer.text
    two = find(host.api, flavor(4, {**specs, **TWO_CELLS}))["candidates"]["allocation_requests"]
    assert len(two) == 2
    amount, extra = (4, 2) if policy == "isolate" else (2, 1)
    for each in two:
        (first,) = {host.names[key][:6] for key in each["mappings"]["_numa0"]}
        sums = {numa: sum(given) for numa, given in cores(host.named(each["allocations"])).items()}
        assert sums == {numa: amount + extra * (numa == first) for numa in ("numa-0", "numa-1")}


def test_flat_hosts_are_asked_what_nova_asks_in_the_same_search(host: Cloud) -> None:
    flat = host.api.provider("flat", VCPU=16, PCPU=16, MEMORY_MB=8192, DISK_GB=100)
    for specs in (DEDICATED, {**DEDICATED, **TWO_CELLS}):
        found = find(host.api, flavor(8, specs))
        requests = found["candidates"]["allocation_requests"]
        (plain,) = (each for each in requests if flat in each["allocations"])
        ordinary = host.api.get(f"/allocation_candidates?{found['translation']['querystring']}").json
        assert ordinary["allocation_requests"] == [plain]
        assert len(requests) == 3
        assert found["candidates"]["provider_summaries"].keys() == {flat, *host.uuids.values()}
        assert found["candidates"]["provider_summaries"][flat] == ordinary["provider_summaries"][flat]


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_a_limit_counts_for_both_kinds_of_hosts_together(host: Cloud, limit: int) -> None:
    flat = {host.api.provider(f"flat-{n}", PCPU=16, MEMORY_MB=8192, DISK_GB=100) for n in range(2)}
    found = find(host.api, flavor(4, DEDICATED), limit=limit)["candidates"]
    assert len(found["allocation_requests"]) == limit
    used = {key for each in found["allocation_requests"] for key in each["allocations"]}
    roots = {summary["root_provider_uuid"] for summary in found["provider_summaries"].values()}
    assert roots == (used & flat) | ({host.uuids["host"]} if used - flat else set())


def test_the_translation_says_what_nova_would_send(api: Client) -> None:
    asked = flavor(8, {**DEDICATED, **TWO_CELLS, "hw:cpu_thread_policy": "isolate"})
    before = api.post(TRANSLATION, {"flavor": asked}).json
    Cloud(api)
    assert api.post(TRANSLATION, {"flavor": asked}).json == before
    assert find(api, asked)["translation"] == before
    assert "split" not in str(before)
    assert before["groups"][""]["resources"] == {"DISK_GB": 1, "MEMORY_MB": 1024, "PCPU": 8}


def test_hosts_without_numa_nodes_or_whose_numa_nodes_give_all_cpus_are_asked_as_ever(api: Client) -> None:
    host = api.provider("host", DISK_GB=10)
    node = api.provider("node", host, PCPU=8, MEMORY_MB=1024)
    (found,) = find(api, flavor(4, DEDICATED))["candidates"]["allocation_requests"]
    assert sorted(found["mappings"][""]) == sorted([host, node])
    host = api.provider("flat", DISK_GB=10, MEMORY_MB=8192)
    cores = {api.provider(f"core-{core}", host, PCPU=2) for core in range(4)}
    (found,) = find(api, flavor(8, DEDICATED, 2048))["candidates"]["allocation_requests"]
    assert found["allocations"].keys() == {host, *cores}


def test_cpus_of_one_cell_never_come_from_several_numa_nodes(api: Client) -> None:
    """The host gives the memory of both NUMA nodes, so one provider has to give all CPUs, as nova asks."""
    host = api.provider("host", DISK_GB=10, MEMORY_MB=8192)
    nodes = [api.provider(numa, host, VCPU=8) for numa in ("numa-0", "numa-1")]
    for node in nodes:
        api.carry(node, "HW_NUMA_ROOT")
    cores = [api.provider(f"{node}-core-{core}", node, PCPU=2) for node in nodes for core in range(2)]
    found = find(api, flavor(2, DEDICATED))["candidates"]["allocation_requests"]
    assert [{*cores} & each["allocations"].keys() for each in found] == [{core} for core in cores]
    for vcpus in (4, 6, 8):
        assert find(api, flavor(vcpus, DEDICATED))["candidates"]["allocation_requests"] == []
        assert claim(api, flavor(vcpus, DEDICATED)).status_code == 409


def test_numa_nodes_are_no_cores_where_the_host_gives_the_memory(api: Client) -> None:
    host = api.provider("host", DISK_GB=10, MEMORY_MB=8192)
    nodes = [api.provider(f"numa-{numa}", host, PCPU=8) for numa in (0, 1)]
    for node in nodes:
        api.carry(node, "HW_NUMA_ROOT")
    for specs in (DEDICATED, {**DEDICATED, "hw:cpu_thread_policy": "isolate"}):
        found = find(api, flavor(2, specs))["candidates"]["allocation_requests"]
        given = [each["allocations"][node]["resources"] for node, each in zip(nodes, found, strict=True)]
        assert given == [{"PCPU": 2}] * 2
    assert find(api, flavor(16, DEDICATED))["candidates"]["allocation_requests"] == []


def test_traits_of_the_flavor_count_where_the_disk_is_or_at_the_host(host: Cloud) -> None:
    def found(wanted: str) -> list[int]:
        specs = {**DEDICATED, "trait:CUSTOM_FAST": wanted}
        return [len(host.find(4, specs, options={"boot_from_volume": boots})) for boots in (False, True)]

    host.api.put("/traits/CUSTOM_FAST")
    assert found("required") == [0, 0]
    host.api.carry(host.uuids["host"], "CUSTOM_FAST")
    assert (found("required"), found("forbidden")) == ([2, 2], [0, 0])


def test_devices_are_found_below_the_cell_they_are_tied_to(host: Cloud) -> None:
    assert host.api.put("/resource_classes/CUSTOM_VF").status_code == 201
    vf = host.api.provider("vf", host.uuids["numa-1"], CUSTOM_VF=1)
    host.names[vf] = "vf"
    specs = {**DEDICATED, **TWO_CELLS, "resources_nic:CUSTOM_VF": "1"}
    options = {"numa": "granular", "device_cells": {"_nic": 0}}
    found = find(host.api, flavor(8, specs), options=options)["candidates"]["allocation_requests"]
    assert len(found) == 1
    assert {host.names[key][:6] for key in found[0]["mappings"]["_numa0"]} == {"numa-1"}


def test_an_explanation_says_what_is_missing_below_which_node(host: Cloud) -> None:
    host.use("numa-1-core-0", *(f"numa-0-core-{core}" for core in range(CORES)))
    found = find(host.api, flavor(16, DEDICATED), explain=True)
    assert found["candidates"]["allocation_requests"] == []
    said = found["explanation"]["sentences"]
    assert "NUMA node host-numa-0: 8 of 16 PCPU for group _numa0" in said
    assert "NUMA node host-numa-1: 15 of 16 PCPU for group _numa0" in said
    fitting = find(host.api, flavor(4, DEDICATED), explain=True)
    assert fitting["explanation"]["first_empty"] is None


def test_a_repeated_claim_changes_nothing(host: Cloud) -> None:
    for specs in (DEDICATED, {**DEDICATED, "hw:cpu_thread_policy": "isolate"}):
        asked = flavor(2, specs)
        first = claim(host.api, asked)
        again = claim(host.api, asked, first.json["consumer_uuid"])
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json == first.json
        assert set(first.json["mappings"]) == {"", "_numa0"}
        other = claim(host.api, flavor(3, specs), first.json["consumer_uuid"])
        assert other.status_code == 409


def test_claims_of_flavors_take_each_cpu_once_until_none_is_left(host: Cloud) -> None:
    flat = host.api.provider("flat", PCPU=8, MEMORY_MB=8192, DISK_GB=100)
    host.names[flat] = "flat"
    taken: Counter[str] = Counter()
    for _ in range(2 * CORES * 2 // 4 + 2):
        answer = claim(host.api, flavor(4, DEDICATED))
        assert answer.status_code == 201, answer.text
        held = host.api.used_by(answer.json["consumer_uuid"])
        taken.update({key: amounts.get("PCPU", 0) for key, amounts in held.items()})
    given = {host.names[key]: amount for key, amount in taken.items() if amount}
    assert given == {"flat": 8} | {f"numa-{n}-core-{c}": 2 for n in (0, 1) for c in range(CORES)}
    refused = claim(host.api, flavor(1, DEDICATED))
    assert refused.status_code == 409
    assert "PCPU" in detail(refused)


def test_claims_keep_to_the_cluster(host: Cloud) -> None:
    assert host.api.put("/ext/v1/clusters/north").status_code == 201
    refused = claim(host.api, flavor(4, DEDICATED), cluster="north")
    assert refused.status_code == 409
    host.api.join(host.uuids["host"], host.api.get("/ext/v1/clusters/north").json["aggregate"])
    assert claim(host.api, flavor(4, DEDICATED), cluster="north").status_code == 201
