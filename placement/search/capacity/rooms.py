"""How many requests providers have room for, as numbers by host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from placement.forest.arrays import Amounts, Mask, Rows, Shares
from placement.forest.forest import Forest
from placement.forest.sharing import Sharing
from placement.search.filters import Choices
from placement.search.query import Slot

MOST = 2**40
"""More than this is not counted: sums of it over a tree are exact as floating point numbers, too."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """At least `lower` and at most `upper`, a number for each host; equal where they are exact."""

    lower: Amounts
    upper: Amounts

    def least(self, other: Bounds) -> Bounds:
        """What is left of both where both are needed."""
        return Bounds(np.minimum(self.lower, other.lower), np.minimum(self.upper, other.upper))


@dataclass(frozen=True, slots=True)
class Entries:
    """Providers that can fill a slot, each with the host (its place among the hosts) that it does so for.

    Those of other trees that share stand there once for each host that they serve, with `foreign` set.
    """

    rows: Rows
    hosts: Rows
    foreign: Mask


def own_rows(choices: Iterable[Choices]) -> Rows:
    """The providers that can fill some of the slots for their own trees, ascending."""
    return np.flatnonzero(np.logical_or.reduce([choice.own_mask for choice in choices]))


class Anchors:
    """The hosts that are counted for, by their roots."""

    def __init__(self, forest: Forest, roots: Rows, sharing: Sharing) -> None:
        self.forest = forest
        self.roots = roots
        self._sharing = sharing
        self._place = np.full(forest.count, -1, np.intp)
        self._place[roots] = np.arange(len(roots))

    def __len__(self) -> int:
        return len(self.roots)

    def hosts_of(self, rows: Rows) -> Rows:
        """The host in whose tree each provider is, -1 if it is in none of them."""
        return self._place[self.forest.roots_of(rows)]

    def entries(self, choice: Choices) -> Entries:
        """The providers of a choice that serve some of the hosts."""
        hosts = self.hosts_of(choice.own)
        rows, hosts = choice.own[hosts >= 0], hosts[hosts >= 0]
        foreign = np.zeros(len(rows), bool)
        if len(choice.foreign):
            serving = choice.foreign_mask[self._sharing.pair_provider]
            served = self._place[self._sharing.pair_anchor[serving]]
            lent = self._sharing.pair_provider[serving][served >= 0].astype(np.intp)
            rows, hosts = np.concatenate([rows, lent]), np.concatenate([hosts, served[served >= 0]])
            foreign = np.concatenate([foreign, np.ones(len(lent), bool)])
        return Entries(rows, hosts, foreign)

    def sums(self, hosts: Rows, numbers: Amounts | Shares) -> Amounts:
        """The sum of the numbers of each host."""
        return np.bincount(hosts, numbers, len(self)).astype(np.int64)


def free_of(forest: Forest, class_id: int, rows: Rows) -> Amounts:
    """What is free of a class at providers, as far as it is counted; 0 where there is none."""
    return np.clip(forest.column(class_id).free_of(rows), 0, MOST)


def room_for(forest: Forest, resources: Iterable[tuple[int, int]], rows: Rows) -> Amounts:
    """How many times each provider can give all of the resources."""
    room = np.full(len(rows), MOST, np.int64)
    for class_id, amount in resources:
        np.minimum(room, free_of(forest, class_id, rows) // amount, out=room)
    return room


def most_of_one(forest: Forest, slot: Slot, rows: Rows) -> Amounts:
    """How many times one consumer may take the resources of a slot from each provider, whatever is free."""
    most = np.full(len(rows), MOST, np.int64)
    for class_id, amount in slot.resources:
        np.minimum(most, forest.column(class_id).most(rows) // amount, out=most)
    return most


def largest(room: Amounts, most: Amounts, wanted: int, hosts: Rows, count: int) -> Amounts:
    """For each of `count` hosts the largest t for which sum(min(room, most * t)) >= wanted * t.

    So many consumers can take `wanted` each from providers that have `room` for all of them together and
    give one consumer at most `most`: the left side is concave in t, and a share-out exists exactly where no
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
