"""Inventories, capacity arithmetic, and the inventories that a reshape gives one provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_INT = 2147483647
MAX_FLOAT = 3.40282e38


@dataclass(frozen=True, slots=True)
class Inventory:
    """An inventory: the offer of one provider of one resource class, in the units of that class.

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
