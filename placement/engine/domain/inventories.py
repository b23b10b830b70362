"""Inventories, capacity arithmetic, and what a reshape asks of one provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_INT = 2147483647
MAX_FLOAT = 3.40282e38


@dataclass(frozen=True, slots=True)
class Inventory:
    """An inventory: what one provider offers of one resource class, in the units of that class.

    Source: placement-api.md, "Inventories".
    """

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_INT
    step_size: int = 1
    allocation_ratio: float = 1.0

    @property
    def capacity(self) -> int:
        """The most that may be allocated: (total - reserved) * allocation_ratio cut toward zero."""
        return int((self.total - self.reserved) * self.allocation_ratio)

    def admits(self, amount: int) -> bool:
        """Return whether one allocation of `amount` respects min_unit, max_unit and step_size."""
        return self.min_unit <= amount <= self.max_unit and amount % self.step_size == 0


@dataclass(frozen=True, slots=True)
class ProviderInventories:
    """All that one provider is to offer from now on, by class; `generation` as the caller knows it."""

    provider_uuid: str
    generation: int
    inventories: Mapping[str, Inventory]


# The wanted state of a provider tree, as an API describes it and a service applies it.


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


# Names of traits that mean something to several packages.


NUMA_ROOT = "HW_NUMA_ROOT"
"""A provider that stands for a NUMA node has this trait."""


# Claims of consumers, and filters for allocations.


UNKNOWN_CONSUMER_TYPE = "unknown"
MOVE_HEADER = "X-Placement-Move"
"""The header of a PUT of allocations that is "true" if the request of the consumer is unchanged."""
UNKNOWN_OWNER = "00000000-0000-0000-0000-000000000000"
"""The project and user of consumers that were written without one, unless the configuration names others."""


@dataclass(frozen=True, slots=True)
class AnyGeneration:
    """A mark that the caller gives no generation of the consumer (before microversion 1.28)."""


ANY_GENERATION = AnyGeneration()


@dataclass(frozen=True, slots=True)
class ConsumerClaim:
    """All that one consumer is to hold from now on; it replaces what the consumer held.

    `resources` maps provider uuid -> resource class -> amount; empty means "release everything".
    `generation`: the consumer's generation, None if it must not exist yet, or ANY_GENERATION.
    `consumer_type` None leaves the type as it is. `request` is its request (engine.domain.groups), None if
    that is not known; `is_move`: the stored request stays valid.
    """

    consumer_uuid: str
    resources: Mapping[str, Mapping[str, int]]
    project_id: str
    user_id: str
    generation: int | AnyGeneration | None = ANY_GENERATION
    consumer_type: str | None = None
    request: str | None = None
    is_move: bool = False


@dataclass(frozen=True, slots=True)
class AllocationFilter:
    """A filter for allocations that match all given fields; `untyped`: of consumers without a type."""

    project_id: str | None = None
    user_id: str | None = None
    consumer_type: str | None = None
    untyped: bool = False
    consumer_uuid: str | None = None
    provider_uuid: str | None = None
    cluster: str | None = None
    host: str | None = None
