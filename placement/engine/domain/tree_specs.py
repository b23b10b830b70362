"""The wanted state of a provider tree, as an API describes it and a service applies it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from placement.engine.domain.inventories import Inventory


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """One provider of a wanted tree; `parent_uuid` is None for the root.

    `optional_traits` are the part of its `traits` that is left out where the cluster has no room for it.
    """

    uuid: str
    name: str
    parent_uuid: str | None = None
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    optional_traits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TreeSpec:
    """A whole wanted tree: the root first, every parent before its children."""

    providers: tuple[ProviderSpec, ...]

    @property
    def root(self) -> ProviderSpec:
        """The provider without a parent."""
        return self.providers[0]


NUMA_ROOT = "HW_NUMA_ROOT"
"""A provider that stands for a NUMA node has this trait."""
