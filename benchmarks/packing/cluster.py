"""The hosts: flat ones of two sizes for shared CPUs, and trees of NUMA nodes and cores of two sizes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.data import DataSet, Provider
from benchmarks.packing.stream import GIB


@dataclass(frozen=True)
class FlatSize:
    """A host without children."""

    name: str
    vcpu: int
    memory: int
    disk: int


@dataclass(frozen=True)
class TreeSize:
    """A host with two NUMA nodes; amounts are those of one node, each core is a provider."""

    name: str
    cores: int
    memory: int
    vcpu: int
    disk: int


SMALL = FlatSize("small", 32, 128 * GIB, 2000)
LARGE = FlatSize("large", 64, 512 * GIB, 4000)
NARROW = TreeSize("narrow", 8, 64 * GIB, 4, 1000)
WIDE = TreeSize("wide", 16, 128 * GIB, 4, 1000)
_SHARES: dict[FlatSize | TreeSize, float] = {SMALL: 0.4, LARGE: 0.2, NARROW: 0.25, WIDE: 0.15}
_NODES = 2


def cluster(hosts: int) -> DataSet:
    """So many hosts, the sizes mixed in an order that is the same in every run."""
    sizes = [size for size, share in _SHARES.items() for _ in range(round(share * hosts))]
    random.Random(hosts).shuffle(sizes)
    trees = [list(_host(f"host-{number:04}", size)) for number, size in enumerate(sizes)]
    return DataSet(f"packing {hosts}", trees, [])


def _host(name: str, size: FlatSize | TreeSize) -> Iterator[Provider]:
    if isinstance(size, FlatSize):
        offers = {"VCPU": size.vcpu, "MEMORY_MB": size.memory, "DISK_GB": size.disk}
        yield Provider(name, None, _inventories(offers))
        return
    yield Provider(name, None, _inventories({"DISK_GB": size.disk}))
    for number in range(_NODES):
        node = f"{name}-n{number}"
        offers = {"VCPU": size.vcpu, "MEMORY_MB": size.memory}
        yield Provider(node, name, _inventories(offers), ["HW_NUMA_ROOT"])
        for core in range(size.cores):
            yield Provider(f"{node}-c{core}", node, _inventories({"PCPU": 1}))


def _inventories(offers: dict[str, int]) -> dict[str, dict[str, int]]:
    return {name: {"total": amount, "max_unit": amount} for name, amount in offers.items()}
