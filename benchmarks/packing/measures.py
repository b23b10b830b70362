"""What became of the cluster: stranded cores, fragmentation, empty hosts, use.

*Stranded cores* are free cores of NUMA nodes that cannot take the most common dedicated request any more, for
want of cores or of memory beside them. *Stranded VCPU* are free shared ones of hosts that cannot take the
most common request any more.

*Fragmentation* for a kind of request is 1 - p / q. p is how many such requests could still be placed one
after another; q is how many could be if everything that is free, wherever it is, were one host: the least
over the classes of (free in all hosts that offer what the request needs) // (amount). 0: what is free is as
good as one host; 1: none of it is of use.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.packing.stream import BIG, COMMON, SMALLEST, WHOLE, Dedicated, Kind, Shared
from benchmarks.wire import Wire

_PAGE = "/ext/v1/resource_providers?include=inventories,usages&limit=5000"
_CORE, _MEMORY = "PCPU", "MEMORY_MB"


@dataclass
class Node:
    """A NUMA node: cores that are free, memory and shared CPUs that are."""

    cores: int = 0
    memory: int = 0
    vcpu: int = 0

    def takes(self, kind: Dedicated) -> int:
        """How many such requests fit."""
        return min(self.cores // kind.cores, self.memory // kind.memory)


@dataclass
class Host:
    """What is free on a host; `nodes` by uuid, a flat host is its own only one."""

    disk: int = 0
    used: bool = False
    nodes: dict[str, Node] = field(default_factory=lambda: defaultdict(Node))

    @property
    def free_vcpu(self) -> int:
        """Shared CPUs that are free."""
        return sum(node.vcpu for node in self.nodes.values())

    def takes(self, kind: Kind) -> int:
        """How many such requests fit one after another."""
        disk = self.disk // kind.disk
        if isinstance(kind, Dedicated):
            return min(disk, sum(node.takes(kind) for node in self.nodes.values()))
        # Shared CPUs and memory may come from different nodes.
        vcpu = sum(node.vcpu // kind.vcpu for node in self.nodes.values())
        memory = sum(node.memory // kind.memory for node in self.nodes.values())
        return min(disk, vcpu, memory)


@dataclass(frozen=True)
class Measures:
    """Figures of one moment; shares are between 0 and 1."""

    free_cores: int
    stranded_cores: int
    stranded_vcpu: int
    fragmentation_shared: float
    fragmentation_dedicated: float
    empty_hosts: int
    use: dict[str, float]


@dataclass
class PlanFigures:
    """The figures of plans for one full cluster; cores are counted as `Measures` counts them."""

    order: str
    consumers: int
    stranded_before: int
    stranded_after: int
    moves: int
    bound: int
    seconds: float
    curve: list[int]
    refused: int = 0
    made_to_fit: int = 0
    impossible: int = 0
    undecided: int = 0
    fit_moves: int = 0
    fit_seconds: float = 0.0

    @property
    def regained(self) -> float:
        """The share of the stranded cores that is of use again."""
        return 1 - self.stranded_after / self.stranded_before if self.stranded_before else 0.0


def measure(wire: Wire) -> Measures:
    """Read all providers from the service and work the figures out."""
    return measured(list(_providers(wire)))


def measured(providers: list[dict[str, Any]]) -> Measures:
    """The figures of these providers, as the service lists them."""
    hosts = list(_hosts(providers).values())
    nodes = [node for host in hosts for node in host.nodes.values()]
    return Measures(
        free_cores=sum(node.cores for node in nodes),
        stranded_cores=sum(node.cores for node in nodes if not node.takes(COMMON)),
        stranded_vcpu=sum(host.free_vcpu for host in hosts if not host.takes(SMALLEST)),
        fragmentation_shared=_fragmentation(hosts, BIG),
        fragmentation_dedicated=_fragmentation(hosts, WHOLE),
        empty_hosts=sum(not host.used for host in hosts),
        use=_use(providers),
    )


def _providers(wire: Wire) -> Iterator[dict[str, Any]]:
    after = ""
    while True:
        page = json.loads(wire.must("GET", _PAGE + after))
        yield from page["resource_providers"]
        if page["next"] is None:
            return
        after = f"&after={page['next']}"


def _hosts(providers: list[dict[str, Any]]) -> dict[str, Host]:
    hosts: dict[str, Host] = defaultdict(Host)
    for provider in providers:
        host = hosts[provider["root_provider_uuid"]]
        for name, record in provider["inventories"].items():
            used = provider["usages"].get(name, 0)
            host.used |= used > 0
            free = record["total"] - used
            if name == _CORE:
                host.nodes[provider["parent_provider_uuid"]].cores += free
            elif name == _MEMORY:
                host.nodes[provider["uuid"]].memory += free
            elif name == "VCPU":
                host.nodes[provider["uuid"]].vcpu += free
            else:
                host.disk += free
    return hosts


def _fragmentation(hosts: list[Host], kind: Kind) -> float:
    # Memory beside no cores at all is none that a dedicated request could have.
    able = [host for host in hosts if isinstance(kind, Shared) or any(n.cores for n in host.nodes.values())]
    nodes = [node for host in able for node in host.nodes.values()]
    free = {
        "VCPU": sum(node.vcpu for node in nodes),
        _CORE: sum(node.cores for node in nodes),
        _MEMORY: sum(node.memory for node in nodes),
        "DISK_GB": sum(host.disk for host in able),
    }
    ideal = min(free[name] // amount for name, amount in kind.amounts.items())
    return 1 - sum(host.takes(kind) for host in able) / ideal if ideal else 0.0


def _use(providers: list[dict[str, Any]]) -> dict[str, float]:
    total: dict[str, int] = defaultdict(int)
    used: dict[str, int] = defaultdict(int)
    for provider in providers:
        for name, record in provider["inventories"].items():
            total[name] += record["total"]
            used[name] += provider["usages"].get(name, 0)
    return {name: used[name] / total[name] for name in total}
