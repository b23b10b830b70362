"""What the providers of a node offer, by their places below the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

from placement.dialects.koordinator.node.node import NodeImport
from placement.dialects.koordinator.resources import CORE_CLASS, host_class, is_numa_only, numa_class
from placement.domain.inventory import Inventory
from placement.numa.cpuset import CpuSet

HOST = ""
PODS_CLASS = host_class("pods").name


class Place(NamedTuple):
    """One inventory of a node: the path of its provider below the host, and its class."""

    path: str
    resource_class: str


@dataclass(frozen=True, eq=False)
class NodeOffers:
    """All inventories of a node, and where its logical CPUs sit.

    `cores` are the cores of CPUs as places. Nobody is given `unallocatable` CPUs; of those, `reserved` ones
    are taken off the inventories of cores. A bound CPU costs `ratio`.
    """

    inventories: Mapping[Place, Inventory]
    cores: Mapping[int, Place]
    numa_of: Mapping[int, int]
    numa_ids: tuple[int, ...]
    unallocatable: CpuSet
    reserved: CpuSet
    ratio: Fraction

    @cached_property
    def below(self) -> tuple[Place, ...]:
        """The inventories of NUMA nodes of which the host as a whole has none, for whoever counts by host."""
        on_host = {place.resource_class for place in self.inventories if place.path == HOST}
        on_numa_nodes = {f"numa-{numa}" for numa in self.numa_ids}
        return tuple(
            place
            for place in self.inventories
            if place.path in on_numa_nodes
            and place.resource_class not in on_host
            and not is_numa_only(place.resource_class)
        )

    def host(self, resource: str) -> Place | None:
        """Where the host as a whole offers a resource, if it does."""
        place, _ = host_place(resource)
        return place if place in self.inventories else None

    def on_numa_nodes(self, resource: str) -> dict[int, Place]:
        """Where NUMA nodes offer a resource, by NUMA id."""
        name = numa_class(resource).name
        places = {numa: numa_place(numa, name) for numa in self.numa_ids}
        return {numa: place for numa, place in places.items() if place in self.inventories}


@lru_cache(maxsize=1024)
def host_place(resource: str) -> tuple[Place, int]:
    """Where a host that offers a resource does so as a whole, and how much of the resource is one unit."""
    kind = host_class(resource)
    return Place(HOST, kind.name), kind.unit


def numa_place(numa: int, resource_class: str) -> Place:
    """The inventory of a NUMA node."""
    return Place(f"numa-{numa}", resource_class)


def offers_of(node: NodeImport, prefix: str) -> NodeOffers:
    """The offers of an imported node whose provider is called `prefix`."""
    inventories = {
        Place(spec.name.removeprefix(prefix).removeprefix("/"), name): inventory
        for spec in node.tree.providers
        for name, inventory in spec.inventories.items()
    }
    rows = node.topology.by_cpu
    zones = {zone.numa for zone in node.zones}
    return NodeOffers(
        inventories=inventories,
        cores={cpu: Place(f"core-{row.socket}-{row.core}", CORE_CLASS) for cpu, row in rows.items()},
        numa_of={cpu: row.numa for cpu, row in rows.items()},
        numa_ids=tuple(sorted(zones | node.topology.numa_nodes.keys())),
        unallocatable=node.unallocatable,
        reserved=node.reserved,
        ratio=node.amplification.get("cpu", Fraction(1)),
    )
