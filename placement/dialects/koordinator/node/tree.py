"""The provider tree of a host: host, NUMA nodes, physical cores."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha1

from placement.dialects.koordinator.node.inventories import Inventories
from placement.dialects.koordinator.node.traits import NUMA_TRAITS
from placement.dialects.koordinator.resources import CORE_CLASS
from placement.domain.inventory import Inventory
from placement.domain.tree import ProviderSpec, TreeSpec
from placement.numa.cpus import CoreId, CpuTopology

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "placement/koordinator/provider")


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """What names and uuids of a host's providers derive from; `key` is the host's uid, else its name."""

    cluster: str
    host: str
    key: str

    def name(self, path: str = "") -> str:
        """The name of the provider at a path below the host, unique over all clusters."""
        return "/".join(filter(None, (self.cluster, self.host, path)))

    def path(self, name: str) -> str:
        """The path below the host of the provider of that name; empty for the host itself."""
        return name.removeprefix(self.name()).removeprefix("/")

    def uuid(self, path: str = "") -> str:
        """The uuid of that provider, the same on every import (koordinator.md, "Tree")."""
        return _uuid("/".join((self.cluster, self.key, path)))


def _uuid(name: str) -> str:
    """What uuid.uuid5 gives, without objects, for calls with many hosts need thousands.

    Source: RFC 9562, section 5.5.
    """
    digits = sha1(_NAMESPACE.bytes + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"


@dataclass(frozen=True, slots=True)
class Offers:
    """What the host, its NUMA nodes and its cores offer; every core lies in one of these NUMA nodes."""

    host: Inventories
    numa_nodes: Mapping[int, Inventories]
    cores: Mapping[CoreId, Inventory]

    @property
    def classes(self) -> frozenset[str]:
        """Every resource class that is offered."""
        levels = [self.host, *self.numa_nodes.values(), {CORE_CLASS: None} if self.cores else {}]
        return frozenset().union(*levels)


def build_tree(
    identity: HostIdentity, offers: Offers, traits: frozenset[str], topology: CpuTopology
) -> TreeSpec:
    """The tree of a host with these traits: the root, then NUMA nodes, then cores.

    The socket is no level of its own (koordinator.md, "Tree").
    """
    root = ProviderSpec(identity.uuid(), identity.name(), None, offers.host, traits)
    numa_nodes = _numa_providers(identity, offers.numa_nodes)
    return TreeSpec((root, *numa_nodes, *_core_providers(identity, offers.cores, topology)))


def renamed(tree: TreeSpec, identity: HostIdentity, traits: frozenset[str]) -> TreeSpec:
    """The tree of another host that is like this one, with more traits at its root."""
    host = tree.root.name
    paths = {spec.uuid: spec.name.removeprefix(host).removeprefix("/") for spec in tree.providers}
    uuids = {uuid: identity.uuid(path) for uuid, path in paths.items()}
    return TreeSpec(
        tuple(
            ProviderSpec(
                uuids[spec.uuid],
                identity.name(paths[spec.uuid]),
                None if spec.parent_uuid is None else uuids[spec.parent_uuid],
                spec.inventories,
                spec.traits if spec.parent_uuid is not None else spec.traits | traits,
            )
            for spec in tree.providers
        )
    )


def _numa_providers(identity: HostIdentity, numa_nodes: Mapping[int, Inventories]) -> Iterator[ProviderSpec]:
    for numa, inventories in numa_nodes.items():
        path = f"numa-{numa}"
        yield ProviderSpec(
            identity.uuid(path), identity.name(path), identity.uuid(), inventories, NUMA_TRAITS
        )


def _core_providers(
    identity: HostIdentity, cores: Mapping[CoreId, Inventory], topology: CpuTopology
) -> Iterator[ProviderSpec]:
    for (socket, core), inventory in cores.items():
        path = f"core-{socket}-{core}"
        numa = topology.by_cpu[topology.cores[socket, core][0]].numa
        yield ProviderSpec(
            identity.uuid(path), identity.name(path), identity.uuid(f"numa-{numa}"), {CORE_CLASS: inventory}
        )
