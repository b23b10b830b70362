"""The wanted state of a provider tree, as a dialect describes it and a service brings it about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from placement.domain.inventory import Inventory


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """One provider of a wanted tree; `parent_uuid` is None for the root."""

    uuid: str
    name: str
    parent_uuid: str | None = None
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TreeSpec:
    """A whole wanted tree: the root first, every parent before its children."""

    providers: tuple[ProviderSpec, ...]

    @property
    def root(self) -> ProviderSpec:
        """The provider without a parent."""
        return self.providers[0]
