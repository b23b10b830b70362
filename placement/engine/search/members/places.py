"""The places that rules count members in: hosts, aggregates of hosts, providers inside of hosts.

A consumer is given as the rows of the providers that it takes something of, filled up with -1, and so are
its places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from placement.engine.forest.arrays import Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import SharingMap
from placement.engine.search.capacity.cells import nearest_of

NOWHERE = -1


class Places(Protocol):
    """The places of a rule, numbered from 0 to `count` - 1."""

    count: int

    def of(self, rows: Rows | Indices) -> Rows:
        """Return the places of each consumer, each once, filled up with NOWHERE."""
        ...


def hosts_of(forest: Forest, sharers: Mask, rows: Rows | Indices) -> Rows:
    """Return the root of each consumer's host: of the tree of the providers it has that do not share."""
    last = forest.count
    roots = np.where(rows >= 0, forest.providers.root[rows], last)
    own = np.where(sharers[rows], last, roots).min(axis=1)
    hosts: Rows = np.where(own < last, own, roots.min(axis=1)).astype(np.intp)
    return hosts


def sharers_of(forest: Forest, sharing: SharingMap, trait: int) -> Mask:
    """Return which rows are sharing providers, by the id of the trait that marks them."""
    return sharing.of(forest, trait).mask(forest.count)


def filled_up(rows: Sequence[Sequence[int]]) -> Rows:
    """Return lists of rows as a table, filled up with -1."""
    table = np.full((len(rows), max([1, *map(len, rows)])), NOWHERE, np.intp)
    for at, each in enumerate(rows):
        table[at, : len(each)] = each
    return table


def places_of_each(places: Places, rows: Sequence[Sequence[int]]) -> Rows:
    """Return the places of consumers that take something of these rows, without the empty consumers."""
    return places.of(filled_up([each for each in rows if each]))


class HostPlaces:
    """Places that are hosts, each under the row of its root."""

    def __init__(self, forest: Forest, sharers: Mask) -> None:
        self._forest, self._sharers = forest, sharers
        self.count = forest.count

    def of(self, rows: Rows | Indices) -> Rows:
        """Return the host of each consumer."""
        return hosts_of(self._forest, self._sharers, rows)[:, None]


class AggregatePlaces:
    """Places that are aggregates with the root of a host in them: the listed ones, or all."""

    def __init__(self, forest: Forest, sharers: Mask, listed: Sequence[int]) -> None:
        self._forest, self._sharers = forest, sharers
        sets = forest.aggregates.sets
        ids = listed or sorted({id_ for members in sets for id_ in members})
        number = {id_: at for at, id_ in enumerate(ids)}
        self.count = len(ids)
        self._of_set = filled_up(
            [sorted(number[id_] for id_ in members if id_ in number) for members in sets]
        )

    def of(self, rows: Rows | Indices) -> Rows:
        """Return the aggregates of the host of each consumer."""
        hosts = hosts_of(self._forest, self._sharers, rows)
        places: Rows = self._of_set[self._forest.aggregates.numbers[hosts]]
        return places


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker of places: providers that offer a class, have a trait, or stand so far below the root."""

    class_id: int | None = None
    trait_id: int | None = None
    depth: int | None = None

    def everywhere(self, forest: Forest) -> Mask:
        """Return which rows are places."""
        rows = np.arange(forest.count)
        if self.class_id is not None:
            offers: Mask = forest.column(self.class_id).entries_of(rows) >= 0
            return offers
        if self.trait_id is not None:
            return forest.traits.satisfying(rows, (frozenset((self.trait_id,)),))
        depths, above = np.zeros(forest.count, np.intp), forest.providers.parent[: forest.count].copy()
        while (below := above >= 0).any():
            depths[below] += 1
            above[below] = forest.providers.parent[above[below]]
        here: Mask = depths == self.depth
        return here


class ProviderPlaces:
    """Places that are the nearest marked provider at or above each used provider, under its row."""

    def __init__(self, forest: Forest, marker: Marker) -> None:
        self.count = forest.count
        rows = np.arange(forest.count)
        self._nearest = nearest_of(forest, marker.everywhere(forest), rows, or_self=True)

    def of(self, rows: Rows | Indices) -> Rows:
        """Return the places of each consumer."""
        places = np.sort(np.where(rows >= 0, self._nearest[rows], NOWHERE), axis=1)
        places[:, 1:][places[:, 1:] == places[:, :-1]] = NOWHERE
        return places
