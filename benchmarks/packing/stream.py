"""The requests: seeded arrivals of mixed kinds, each of which leaves again after a while."""

from __future__ import annotations

import random
from dataclasses import dataclass

GIB = 1024


@dataclass(frozen=True)
class Shared:
    """CPUs of a pool, memory and disk, from whatever providers of a host have them."""

    name: str
    vcpu: int
    memory: int
    disk: int

    @property
    def amounts(self) -> dict[str, int]:
        """What is taken in all."""
        return {"VCPU": self.vcpu, "MEMORY_MB": self.memory, "DISK_GB": self.disk}

    @property
    def query(self) -> str:
        """The request in the grammar of Placement."""
        return "resources=" + ",".join(f"{name}:{amount}" for name, amount in self.amounts.items())

    def query_in(self, host: str) -> str:
        """The request, on one host only."""
        return f"{self.query}&in_tree={host}"


@dataclass(frozen=True)
class Dedicated:
    """Whole cores and memory of one NUMA node, and disk of its host."""

    name: str
    cores: int
    memory: int
    disk: int = 20

    @property
    def amounts(self) -> dict[str, int]:
        """What is taken in all."""
        return {"PCPU": self.cores, "MEMORY_MB": self.memory, "DISK_GB": self.disk}

    @property
    def query(self) -> str:
        """The request in the grammar of Placement."""
        cores = [f"_core{number}" for number in range(self.cores)]
        parts = [f"resources=DISK_GB:{self.disk}", f"resources_node=MEMORY_MB:{self.memory}"]
        parts += [f"resources{core}=PCPU:1" for core in cores]
        return "&".join([*parts, f"same_subtree=_node,{','.join(cores)}", "group_policy=isolate"])

    def query_in(self, host: str) -> str:
        """The request, on one host only."""
        suffixes = ["", "_node", *(f"_core{number}" for number in range(self.cores))]
        return "&".join([self.query, *(f"in_tree{suffix}={host}" for suffix in suffixes)])


Kind = Shared | Dedicated

SMALLEST = Shared("shared small", 2, 4 * GIB, 20)
COMMON = Dedicated("dedicated 4", 4, 16 * GIB)
WHOLE = Dedicated("dedicated 8", 8, 48 * GIB)
BIG = Shared("shared large", 16, 64 * GIB, 200)
MIX: dict[Kind, int] = {
    SMALLEST: 35,
    Shared("shared medium", 4, 16 * GIB, 80): 23,
    BIG: 7,
    Shared("memory-heavy", 4, 96 * GIB, 40): 6,
    Shared("compute-heavy", 16, 16 * GIB, 40): 6,
    Dedicated("dedicated 2", 2, 8 * GIB): 5,
    COMMON: 11,
    WHOLE: 5,
    Dedicated("dedicated 16", 16, 96 * GIB): 2,
}
"""The kinds with their shares of the arrivals in percent. SMALLEST is the most common one, COMMON the most
common dedicated one."""

_STAYING = 0.5


@dataclass(frozen=True)
class Arrival:
    """A request; `leaves` is the number of the arrival before which it goes, None if it stays."""

    number: int
    kind: Kind
    leaves: int | None


def arrivals(count: int, seed: int) -> list[Arrival]:
    """So many requests. Half of them stay; the others leave after 1 to `count` more arrivals."""
    chance = random.Random(seed)
    kinds = chance.choices(list(MIX), list(MIX.values()), k=count)
    return [
        Arrival(number, kind, None if chance.random() < _STAYING else number + chance.randint(1, count))
        for number, kind in enumerate(kinds)
    ]
