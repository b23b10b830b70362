"""Data sets, built through REST: flat hosts, NUMA trees, trees down to cores, hosts with sharing storage."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tqdm import tqdm

from benchmarks.wire import Wire

_NAMESPACE = uuid.UUID("0c0ffee0-0000-4000-8000-000000000000")
_TRAITS = ["HW_CPU_X86_AVX", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE42", "HW_CPU_X86_AESNI", "HW_CPU_X86_VMX"]
_TRAITS += ["COMPUTE_NODE", "COMPUTE_VOLUME_EXTEND", "COMPUTE_TRUSTED_CERTS", "COMPUTE_RESCUE_BFV"]
CUSTOM_TRAITS = ["CUSTOM_GOLD", "CUSTOM_PHYSNET1", "CUSTOM_PHYSNET2"]
# What a host's consumer holds: about 40% of it.
_SIZES = [
    {"VCPU": 48, "MEMORY_MB": 49152, "DISK_GB": 700},
    {"VCPU": 52, "MEMORY_MB": 53248, "DISK_GB": 800},
    {"VCPU": 56, "MEMORY_MB": 57344, "DISK_GB": 900},
]
ZONES = [str(uuid.uuid5(_NAMESPACE, f"zone-{number}")) for number in range(3)]


def identifier(name: str) -> str:
    """The uuid of a named provider; the same in every run and on every server."""
    return str(uuid.uuid5(_NAMESPACE, name))


@dataclass(frozen=True)
class Provider:
    """One provider to create."""

    name: str
    parent: str | None = None
    inventories: dict[str, dict[str, Any]] = field(default_factory=dict)
    traits: list[str] = field(default_factory=list)
    aggregates: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DataSet:
    """Hosts, each a tree, and consumers as (provider name -> class -> amount)."""

    name: str
    hosts: list[list[Provider]]
    consumers: list[dict[str, dict[str, int]]]


def flat(count: int) -> DataSet:
    """Hosts without children, about 40% used."""
    chance = random.Random(count)
    hosts, consumers = [], []
    for number in range(count):
        name = f"flat-{number}"
        inventories: dict[str, dict[str, Any]] = {
            "VCPU": {"total": 32, "allocation_ratio": 4.0},
            "MEMORY_MB": {"total": 131072, "max_unit": 131072},
            "DISK_GB": {"total": 2000, "max_unit": 2000},
        }
        traits = [*_TRAITS, *(["CUSTOM_GOLD"] if number % 3 == 0 else [])]
        aggregates = [ZONES[number % 3], identifier(f"rack-{number // 100}")]
        hosts.append([Provider(name, None, inventories, traits, aggregates)])
        consumers.append({name: chance.choice(_SIZES)})
    return DataSet(f"flat {count}", hosts, consumers)


def numa(count: int) -> DataSet:
    """Hosts with two NUMA nodes, each with two physical functions and a GPU: nine providers."""
    hosts, consumers = [], []
    for number in range(count):
        root = f"numa-{number}"
        tree = [Provider(root, None, {"DISK_GB": {"total": 2000}}, _TRAITS, [ZONES[number % 3]])]
        for node in range(2):
            cell = f"{root}-n{node}"
            inventories = {"VCPU": {"total": 32}, "PCPU": {"total": 32}, "MEMORY_MB": {"total": 65536}}
            tree.append(Provider(cell, root, inventories, ["HW_NUMA_ROOT"]))
            for port in (1, 2):
                offer = {"SRIOV_NET_VF": {"total": 16}, "NET_BW_EGR_KILOBIT_PER_SEC": {"total": 10_000_000}}
                tree.append(Provider(f"{cell}-pf{port}", cell, offer, [f"CUSTOM_PHYSNET{port}"]))
            tree.append(Provider(f"{cell}-gpu", cell, {"PGPU": {"total": 1}}))
        hosts.append(tree)
        amounts = {"VCPU": 12, "PCPU": 12, "MEMORY_MB": 24576}
        consumers.append({f"{root}-n{number % 2}": amounts, root: {"DISK_GB": 400}})
        consumers.append({f"{root}-n{1 - number % 2}": {"PCPU": 12}, f"{root}-n0-pf1": {"SRIOV_NET_VF": 6}})
    return DataSet(f"numa {count}", hosts, consumers)


def cores(count: int) -> DataSet:
    """Hosts with two NUMA nodes of 16 single-thread cores, each core a provider."""
    hosts, consumers = [], []
    for number in range(count):
        root = f"cores-{number}"
        tree = [Provider(root, None, {"DISK_GB": {"total": 2000}})]
        for node in range(2):
            cell = f"{root}-n{node}"
            tree.append(Provider(cell, root, {"MEMORY_MB": {"total": 65536}}, ["HW_NUMA_ROOT"]))
            tree += [Provider(f"{cell}-c{core}", cell, {"PCPU": {"total": 1}}) for core in range(16)]
        hosts.append(tree)
        used = random.Random(number).sample(range(32), 12)
        consumers.append({f"{root}-n{core // 16}-c{core % 16}": {"PCPU": 1} for core in used})
    return DataSet(f"cores {count}", hosts, consumers)


def sharing(count: int) -> DataSet:
    """Hosts without disk, and one sharing storage provider per fifty of them."""
    hosts, consumers = [], []
    for number in range(count):
        name, pool = f"sharing-{number}", identifier(f"pool-{number // 50}")
        inventories = {"VCPU": {"total": 64}, "MEMORY_MB": {"total": 131072}}
        hosts.append([Provider(name, None, inventories, _TRAITS, [pool])])
        consumers.append(
            {name: {"VCPU": 24, "MEMORY_MB": 52428}, f"storage-{number // 50}": {"DISK_GB": 400}}
        )
    for number in range((count + 49) // 50):
        storage = Provider(
            f"storage-{number}",
            None,
            {"DISK_GB": {"total": 50_000}},
            ["MISC_SHARES_VIA_AGGREGATE"],
            [identifier(f"pool-{number}")],
        )
        hosts.append([storage])
    return DataSet(f"sharing {count}", hosts, consumers)


KINDS: dict[str, Callable[[int], DataSet]] = {"flat": flat, "numa": numa, "cores": cores, "sharing": sharing}


def build(url: str, data: DataSet, label: str, clients: int = 8) -> None:
    """Create everything through REST, with a progress bar."""
    wire = Wire(url)
    for trait in CUSTOM_TRAITS:
        wire.must("PUT", f"/traits/{trait}")
    work: list[Callable[[Wire], None]] = [partial(_create, tree) for tree in data.hosts]
    claims: list[Callable[[Wire], None]] = [
        partial(_claim, f"{data.name}-{at}", held) for at, held in enumerate(data.consumers)
    ]
    for title, jobs in (("hosts", work), ("consumers", claims)):
        _run(url, jobs, clients, f"{label}: {data.name}, {title}")


def _run(url: str, jobs: list[Callable[[Wire], None]], clients: int, title: str) -> None:
    bar = tqdm(total=len(jobs), desc=title, unit="")

    def work(mine: list[Callable[[Wire], None]]) -> None:
        wire = Wire(url)
        for job in mine:
            job(wire)
            bar.update()

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(work, [jobs[number::clients] for number in range(clients)]))
    bar.close()


def _create(tree: list[Provider], wire: Wire) -> None:
    for provider in tree:
        own = identifier(provider.name)
        parent = identifier(provider.parent) if provider.parent else None
        body: dict[str, Any] = {"name": provider.name, "uuid": own, "parent_provider_uuid": parent}
        wire.must("POST", "/resource_providers", body)
        for generation, (what, value) in enumerate(_parts(provider)):
            body = {"resource_provider_generation": generation, what: value}
            wire.must("PUT", f"/resource_providers/{own}/{what}", body)


def _parts(provider: Provider) -> Iterator[tuple[str, Any]]:
    for what in ("inventories", "traits", "aggregates"):
        value = getattr(provider, what)
        if value:
            yield what, value


def _claim(name: str, held: dict[str, dict[str, int]], wire: Wire) -> None:
    resources = {identifier(provider): amounts for provider, amounts in held.items()}
    for _ in range(20):
        status, content = wire.call("PUT", f"/allocations/{identifier(name)}", claim_body(resources))
        if status == 204:
            return
        # The incumbent answers concurrent claims on one provider with conflicts, or with a locked database.
        if b"capacity" in content or status == 400:
            raise RuntimeError(f"{name}: {content[:300]!r}")
    raise RuntimeError(f"{name}: {status} {content[:300]!r}")


def claim_body(resources: dict[str, dict[str, int]]) -> dict[str, Any]:
    """A body of PUT /allocations for a new consumer."""
    return {
        "allocations": {provider: {"resources": amounts} for provider, amounts in resources.items()},
        "project_id": "benchmark",
        "user_id": "benchmark",
        "consumer_type": "INSTANCE",
        "consumer_generation": None,
    }
