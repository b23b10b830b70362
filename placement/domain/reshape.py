"""What a reshape asks of one provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placement.domain.inventory import Inventory


@dataclass(frozen=True, slots=True)
class ProviderInventories:
    """All that one provider shall offer from now on, by class; `generation` as the caller knows it."""

    provider_uuid: str
    generation: int
    inventories: Mapping[str, Inventory]
