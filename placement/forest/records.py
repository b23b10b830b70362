"""The input of the forest: providers as plain rows, by their storage ids."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

MILLION = 1_000_000
LARGEST_RATIO = 1e9
"""What is watched of a ratio; capacities are computed from all of it."""
NumberColumn: TypeAlias = "array[int] | array[float]"
"""64-bit integers, or floats, one behind the other."""


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
    content: int = 0
    """Of two states with the same one within a history of writes, more than use is the same; 0: not known."""


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


class ProviderStates(NamedTuple):
    """Many providers, as they were at one moment, as columns.

    `providers` are id, generation, parent_id (0 for a root), root_id, revision and content; `uuids` are those
    of the ones that nothing is known of yet, by id. Of those that are
    not `altered` nothing else changed but their use: `usage` is provider id, class_id and used. Of those that
    are, `inventories` are provider id, class_id, total, reserved, min_unit, max_unit, step_size, used and
    allocation ratio, each class of a provider once, and the memberships are sets of trait or aggregate ids,
    each with the providers that carry it; a set may come more than once, a provider may not.
    """

    providers: Sequence[NumberColumn]
    uuids: Mapping[int, str]
    usage: Sequence[NumberColumn]
    altered: Sequence[int]
    inventories: Sequence[NumberColumn]
    traits: Sequence[tuple[frozenset[int], NumberColumn]]
    aggregates: Sequence[tuple[frozenset[int], NumberColumn]]

    @property
    def class_ids(self) -> frozenset[int]:
        """The classes of the inventories."""
        return frozenset(map(int, self.inventories[1]))
