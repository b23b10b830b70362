"""Capacity tells of stranded cores and of fragmentation what the packing simulation measures."""

from __future__ import annotations

import random

import pytest

from benchmarks.packing.measures import measured
from benchmarks.packing.stream import BIG, COMMON, GIB, WHOLE, Kind
from placement.allocations import candidate_query
from placement.common.microversions import NEWEST
from placement.engine.domain.inventories import Inventory
from placement.engine.forest import fleet
from placement.engine.search.capacity.capacity import Capacity, Summary
from placement.http import query_strings
from placement.providers.fleet import COMMON_REQUEST
from tests.forests import World
from tests.naive import NaiveProvider


def cluster(seed: int) -> list[NaiveProvider]:
    """Flat hosts and trees of two NUMA nodes with eight cores, used at random; each tree has free cores."""
    chance = random.Random(seed)
    found = []
    for number in range(12):
        host = f"{number:08x}-0000-4000-8000-000000000000"
        if number % 2:
            offers = {"VCPU": 32, "MEMORY_MB": 128 * GIB, "DISK_GB": 4000}
            used = {"VCPU": chance.randrange(33), "MEMORY_MB": chance.randrange(129) * GIB}
            found.append(NaiveProvider(host, None, totals(offers), used))
            continue
        found.append(NaiveProvider(host, None, totals({"DISK_GB": 4000})))
        for node in range(2):
            uuid = f"{number:08x}-{node + 1:04x}-4000-8000-000000000000"
            used = {"MEMORY_MB": chance.choice((0, 20, 40, 50, 60, 64)) * GIB, "VCPU": chance.randrange(5)}
            found.append(NaiveProvider(uuid, host, totals({"MEMORY_MB": 64 * GIB, "VCPU": 4}), used))
            busy = chance.randrange(8)
            found += [
                NaiveProvider(f"{uuid[:-2]}{core + 1:02x}", uuid, totals({"PCPU": 1}), {"PCPU": core < busy})
                for core in range(8)
            ]
    return found


def totals(offers: dict[str, int]) -> dict[str, Inventory]:
    return {name: Inventory(total=amount) for name, amount in offers.items()}


def listed(providers: list[NaiveProvider]) -> list[dict[str, object]]:
    """The providers as the service lists them."""
    return [
        {
            "uuid": provider.uuid,
            "root_provider_uuid": f"{provider.uuid[:8]}-0000-4000-8000-000000000000",
            "parent_provider_uuid": provider.parent,
            "inventories": {name: {"total": each.total} for name, each in provider.inventories.items()},
            "usages": dict(provider.used),
        }
        for provider in providers
    ]


@pytest.mark.parametrize("seed", range(8))
def test_figures_agree(seed: int) -> None:
    providers = cluster(seed)
    world = World(providers)
    world.load()

    def told(kind: Kind) -> Summary[int]:
        query = candidate_query.parse(query_strings.read(kind.query), NEWEST)
        return Capacity(world.forest, world.sharing, world.query(query)).everywhere

    figures = measured(listed(providers))
    cores = told(COMMON).classes[world.classes["PCPU"]]
    assert (cores.free, cores.stranded) == (figures.free_cores, figures.stranded_cores)
    everywhere = fleet.fleet_of(world.forest, ())
    shown = fleet.stranded_cores(
        world.forest, everywhere, world.classes["PCPU"], world.classes["MEMORY_MB"], COMMON_REQUEST
    )
    assert shown.totals() == (figures.stranded_cores, figures.free_cores), "what the map of hosts shows"
    assert told(BIG).fragmentation == round(figures.fragmentation_shared, 4)
    assert told(WHOLE).fragmentation == round(figures.fragmentation_dedicated, 4)
