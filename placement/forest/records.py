"""The input of the forest: providers as plain rows, by their storage ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

MILLION = 1_000_000


class InventoryRow(NamedTuple):
    """One inventory; `capacity` and `used` in units of the class.

    Searches look at nothing else; what makes the capacity (`total`, `reserved`, ratio in millionths) is for
    who watches.
    """

    class_id: int
    capacity: int
    min_unit: int
    max_unit: int
    step_size: int
    used: int
    total: int = 0
    reserved: int = 0
    ratio_millionths: int = MILLION


class ProviderRow(NamedTuple):
    """One provider without inventories and memberships; `parent_id` is None for a root."""

    id: int
    uuid: str
    generation: int
    parent_id: int | None
    root_id: int
    revision: int


@dataclass(frozen=True, slots=True)
class ProviderRecord:
    """One provider with everything a search looks at; replaces what the forest knew of it."""

    row: ProviderRow
    inventories: tuple[InventoryRow, ...]
    trait_ids: frozenset[int]
    aggregate_ids: frozenset[int]


class Snapshot(NamedTuple):
    """All providers of one moment, as streams of rows that need no particular order.

    `inventories` yields (provider id, InventoryRow), the memberships (provider id, trait or aggregate id).
    """

    providers: Iterable[ProviderRow]
    inventories: Iterable[tuple[int, InventoryRow]]
    traits: Iterable[tuple[int, int]]
    aggregates: Iterable[tuple[int, int]]
