"""How many requests providers have room for, as numbers by host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from placement.engine.forest.arrays import Amounts, Floats, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import Sharing
from placement.engine.search.filters import Choices
from placement.engine.search.query import Slot

MOST = 2**40
"""More than this is not counted: sums of it over a tree are exact as floating point numbers, too."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A pair of bounds: at least `lower`, at most `upper`, by host; equal where they are exact."""

    lower: Amounts
    upper: Amounts

    def least(self, other_bounds: Bounds) -> Bounds:
        """Return the smaller bounds, for consumers that need both."""
        return Bounds(np.minimum(self.lower, other_bounds.lower), np.minimum(self.upper, other_bounds.upper))


@dataclass(frozen=True, slots=True)
class SlotEntries:
    """A list of providers that can fill a slot, each with the host (by its place) that it does so for.

    A sharing provider of another tree is listed once for each host that it serves, with `foreign` set.
    """

    rows: Rows
    hosts: Rows
    foreign: Mask


class Anchors:
    """The hosts to count for, by their roots."""

    def __init__(self, forest: Forest, roots: Rows, sharing: Sharing) -> None:
        self.forest = forest
        self.roots = roots
        self._sharing = sharing
        self._place = np.full(forest.count, -1, np.intp)
        self._place[roots] = np.arange(len(roots))

    def __len__(self) -> int:
        return len(self.roots)

    def hosts_of(self, rows: Rows) -> Rows:
        """Return the host of each provider, by the tree that it is in; -1 if it is in none of them."""
        return self._place[self.forest.roots_of(rows)]

    def entries(self, choice: Choices) -> SlotEntries:
        """Return the providers of a choice that serve some of the hosts."""
        roots, rows = choice.served(self.forest, self._sharing)
        hosts = self._place[roots]
        kept, foreign = hosts >= 0, np.arange(len(rows)) >= len(choice.own)
        return SlotEntries(rows[kept], hosts[kept], foreign[kept])

    def sums(self, hosts: Rows, numbers: Amounts | Floats) -> Amounts:
        """Return the sum of the numbers of each host."""
        return np.bincount(hosts, numbers, len(self)).astype(np.int64)


def free_of(forest: Forest, class_id: int, rows: Rows) -> Amounts:
    """Return how much of a class is free at providers, at most MOST; 0 without an inventory."""
    return np.clip(forest.column(class_id).free_of(rows), 0, MOST)


def room_for(forest: Forest, resources: Iterable[tuple[int, int]], rows: Rows) -> Amounts:
    """Return how many times each provider can give all of the resources."""
    room = np.full(len(rows), MOST, np.int64)
    for class_id, amount in resources:
        np.minimum(room, free_of(forest, class_id, rows) // amount, out=room)
    return room


def most_of_one(forest: Forest, slot: Slot, rows: Rows) -> Amounts:
    """Return how often one consumer may take a slot's resources from each provider, whatever is free."""
    most = np.full(len(rows), MOST, np.int64)
    for class_id, amount in slot.resources:
        np.minimum(most, forest.column(class_id).most(rows) // amount, out=most)
    return most


def largest(room: Amounts, most: Amounts, wanted: int, hosts: Rows, count: int) -> Amounts:
    """Return for each of `count` hosts the largest t with sum(min(room, most * t)) >= wanted * t.

    That many consumers can take `wanted` each from providers that have `room` for all of them together and
    give one consumer at most `most`. The left side is concave in t, and a share-out exists exactly where no
    provider has to give more (max-flow min-cut).
    """
    within = room.astype(np.float64)
    high = (np.bincount(hosts, within, count) // wanted).astype(np.int64)
    if not (most < room).any():
        return high
    low = np.zeros(count, np.int64)
    while (low < high).any():
        middle = (low + high + 1) // 2
        given = np.bincount(hosts, np.minimum(within, most * middle[hosts].astype(np.float64)), count)
        enough = given >= wanted * middle
        low, high = np.where(enough, middle, low), np.where(enough, high, middle - 1)
    return low
