"""The providers or trees closest to a condition that none met, and their shortages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, assert_never

import numpy as np

from placement.engine.domain.explanation import (
    Miss,
    Reason,
    Shortage,
)
from placement.engine.forest.arrays import Amounts, Floats, Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import Sharing
from placement.engine.forest.texts import to_text
from placement.engine.search import conditions
from placement.engine.search.places import is_location
from placement.engine.search.query import ForestQuery, IsCoreTree, IsOpen
from placement.engine.search.shortages import Shortages
from placement.engine.search.vocabulary import Vocabulary

RowsT = TypeVar("RowsT", Rows, Indices)


@dataclass(frozen=True, slots=True)
class NearMisses:
    """The `most` nearest misses of one search, among hosts that the caller chooses by their roots."""

    _forest: Forest
    _sharing: Sharing
    _query: ForestQuery
    _words: Vocabulary
    _most: int

    def outside(self, condition: conditions.PlaceCondition, hosts: Mask) -> Iterator[Miss]:
        """Yield hosts that fail a condition on places; none where it asks where a host is."""
        if not is_location(condition) and not isinstance(condition, IsCoreTree):
            roots = self._in_order(np.flatnonzero(hosts))
            yield from self._failing(condition, roots[: self._most])

    def providers(self, condition: conditions.ProviderCondition, rows: Rows, group: str) -> Iterator[Miss]:
        """Yield the providers in these rows, of a group, that fail a condition; the ones that lack least."""
        rows = self._in_order(rows)
        if isinstance(condition, conditions.Fits):
            yield from self._by_amount(condition, rows, group)
        elif not isinstance(condition, conditions.Exists):
            yield from self._failing(condition, rows[: self._most])

    def _by_amount(self, fits: conditions.Fits, rows: Rows, group: str) -> Iterator[Miss]:
        free = self._forest.column(fits.class_id).free_of(rows)
        missing = np.maximum(fits.amount - free, 0)
        nearest = _smallest(missing, self._most)
        uuids = self._uuids(rows[nearest])
        name = self._words.resource_class(fits.class_id)
        for uuid, lack, left in zip(uuids, missing[nearest].tolist(), free[nearest].tolist(), strict=True):
            reason = Reason.AMOUNT if lack else Reason.UNITS
            yield Miss(uuid, (Shortage(reason, (group,), uuid, name, fits.amount, max(left, 0), lack),))

    def hosts(self, hosts: Mask) -> Iterator[Miss]:
        """Yield the hosts that lack the least of the whole request."""
        shortages = Shortages(self._forest, self._sharing, self._query, self._words)
        roots = self._in_order(np.flatnonzero(hosts).astype(np.int32))
        roots = roots[_smallest(shortages.distances(roots), self._most)]
        for root, uuid in zip(roots.tolist(), self._uuids(roots), strict=True):
            yield Miss(uuid, shortages=shortages.of(root), is_tree=True)

    def by_parts(self, hosts: Mask, parts: Sequence[tuple[str, Mask]]) -> Iterator[Miss]:
        """Yield the hosts that serve the most parts; among equals, the hosts that lack the least.

        `parts`: the suffix of each part of the request, and the roots that serve it.
        """
        served = np.sum([serving for _, serving in parts], axis=0)
        roots = self._in_order(np.flatnonzero(hosts & (served > 0)))
        if not len(roots):
            return
        lacks = len(parts) - served[roots]
        near = lacks <= np.sort(lacks[_smallest(lacks, self._most)])[-1]
        roots, lacks = roots[near].astype(np.int32), lacks[near]
        shortages = Shortages(self._forest, self._sharing, self._query, self._words)
        nearest = np.lexsort((shortages.distances(roots), lacks))[: self._most]
        for root, uuid in zip(roots[nearest].tolist(), self._uuids(roots[nearest]), strict=True):
            lacking = dict.fromkeys(suffix for suffix, serving in parts if not serving[root])
            found = shortages.of(root)
            yield Miss(uuid, lacking_groups=tuple(lacking), shortages=found, is_tree=True)

    def _uuids(self, rows: Rows | Indices) -> list[str]:
        return to_text(self._forest.providers.uuid[rows])

    def _in_order(self, rows: RowsT) -> RowsT:
        """Return providers in order of ids, so that every process picks the same ones among equals.

        Rows of deleted providers are used again, so rows are only nearly in that order: hence a stable sort.
        """
        return rows[np.argsort(self._forest.providers.id[rows], kind="stable")]

    def _failing(
        self, condition: conditions.ProviderCondition | conditions.PlaceCondition, rows: Rows | Indices
    ) -> Iterator[Miss]:
        """Yield providers that fail a condition, with the names it lacks and the names it has too much."""
        lacks = self._lacks(condition, rows)
        if isinstance(condition, conditions.IsIn) and condition.or_root:
            # A provider in aggregate A with its root in B meets each part, though one of the two needs both.
            by_itself = self._lacks(replace(condition, or_root=False), rows)
            lacks = [these if any(these) else own for these, own in zip(lacks, by_itself, strict=True)]
        for uuid, (names, others) in zip(self._uuids(rows), lacks, strict=True):
            yield Miss(uuid, lacking=tuple(names), unwanted=tuple(others))

    def _lacks(
        self, condition: conditions.ProviderCondition | conditions.PlaceCondition, rows: Rows | Indices
    ) -> list[tuple[list[str], list[str]]]:
        """Return for each row the names that it lacks and the names it has too much, part by part."""
        parts: Iterable[conditions.Carries | conditions.IsIn | conditions.InTree | IsOpen] = ()
        is_of_host = isinstance(condition, conditions.OnHost)
        match condition:
            case conditions.OnHost(condition=inner):
                parts = (inner,)
            case conditions.Carries() | conditions.IsIn():
                parts = conditions.split(condition)
            case conditions.InTree() | IsOpen():
                parts = (condition,)
            case (
                conditions.Fits()
                | conditions.GivesPart()
                | conditions.OffersClass()
                | conditions.Exists()
                | IsCoreTree()
            ):
                # They are about amounts, or about the whole tree, and ask for no names.
                pass
            case _:
                assert_never(condition)
        lacks: list[tuple[list[str], list[str]]] = [([], []) for _ in rows]
        for part in parts:
            asked = self._words.stated(part)
            # No host meets what a whole host was asked, though its root may, by itself.
            failed: Iterable[int] = range(len(rows))
            if not is_of_host:
                failed = np.flatnonzero(~part.among(self._forest, rows)).tolist()
            for at in failed:
                lacks[at][0].extend(name for any_of in asked.required for name in any_of)
                lacks[at][1].extend(asked.forbidden)
        return lacks


def _smallest(values: Amounts | Floats, count: int) -> Rows:
    """Return the places of the smallest values, ties in order of place, without sorting the rest."""
    if len(values) > count:
        bound = np.partition(values, count - 1)[count - 1]
        below = np.flatnonzero(values < bound)
        places = np.concatenate([below, np.flatnonzero(values == bound)[: count - len(below)]])
    else:
        places = np.arange(len(values))
    return places[np.lexsort((places, values[places]))]
