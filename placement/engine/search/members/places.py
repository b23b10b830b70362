"""The places that rules count members in: hosts, aggregates of hosts, providers inside of hosts.

A consumer is given as the rows of the providers that it takes something of, filled up with -1. Its places are
filled up so, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np

from placement.engine.domain.groups import RuleKind
from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows, Shares
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


# One rule, and where members are: which places may get one more, and the cost of breaking a soft rule.


@dataclass(frozen=True, slots=True)
class ResolvedRule:
    """A rule by ids: `limit` is the count or the skew of MemberRule, `weight` the cost of breaking it.

    `counted`: the places of each consumer that counts and is there already, `held`: the places of the members
    among them. `on_hosts`: hosts decide about the places, not providers inside of them.
    """

    kind: RuleKind
    places: Places
    limit: int
    counted: Rows
    on_hosts: bool
    weight: float | None = None
    held: Rows = field(default_factory=lambda: np.empty((0, 1), np.intp))

    @property
    def is_hard(self) -> bool:
        """Return whether the rule must hold."""
        return self.weight is None


class Tally:
    """A tally of the consumers that count in each place of a rule."""

    def __init__(self, rule: ResolvedRule) -> None:
        self.rule = rule
        # The last entry stands for NOWHERE and stays 0.
        self.counts: Amounts = np.zeros(rule.places.count + 1, np.int64)
        self.total = 0
        self.frame: int | None = None
        """The place where all have to be, of a rule that all are together."""
        for places in rule.counted.tolist():
            self.add(places)
        self._first = self.counts.copy(), self.total

    def add(self, places: Sequence[int], sign: int = 1) -> None:
        """Count one more consumer with these places, or one less."""
        for place in places:
            if place != NOWHERE:
                self.counts[place] += sign
        self.total += sign

    def reset(self) -> None:
        """Forget all consumers but the ones that were there first."""
        counts, self.total = self._first
        self.counts = counts.copy()

    def allowed(self, places: Rows) -> Mask:
        """Return which candidates may be next without breaking it, by their places."""
        rule = self.rule
        if rule.kind is RuleKind.AT_MOST:
            return _all(self.counts < rule.limit, places)
        if rule.kind is RuleKind.SPREAD:
            fine = _all(self.counts < self._fewest + rule.limit, places)
            return cast(Mask, (places != NOWHERE).any(axis=1) & fine)
        met = places != NOWHERE if self.frame is None else places == self.frame
        return cast(Mask, met.any(axis=1))

    def admits(self, places: Sequence[int]) -> bool:
        """Return whether one candidate may be next; of a spread only whether it is in any of the places."""
        if self.rule.kind is RuleKind.AT_MOST:
            return all(place == NOWHERE or self.counts[place] < self.rule.limit for place in places)
        if self.frame is not None:
            return self.frame in places
        return any(place != NOWHERE for place in places)

    def penalties(self, places: Rows) -> Shares:
        """Return what each candidate would cost by breaking a soft rule."""
        rule, counts = self.rule, self.counts[places]
        somewhere = places != NOWHERE
        if rule.kind is RuleKind.AT_MOST:
            over = np.where(somewhere, counts + 1 - rule.limit, 0).max(axis=1)
        elif rule.kind is RuleKind.TOGETHER:
            over = self.total - counts.max(axis=1)
        else:
            least = self._fewest + rule.limit
            outside = int(self.counts[:-1].max(initial=0)) + 1 - least
            over = np.where(somewhere, counts + 1 - least, 0).max(axis=1)
            over = np.where(somewhere.any(axis=1), over, max(1, outside))
        penalties: Shares = (rule.weight or 0.0) * np.maximum(over, 0)
        return penalties

    def excess(self, members: Rows) -> int:
        """Return by how many the rule is broken where members are, by their places; 0 if it holds."""
        rule = self.rule
        used = np.unique(members[members != NOWHERE])
        nowhere = int((members == NOWHERE).all(axis=1).sum())
        if rule.kind is RuleKind.AT_MOST:
            return int(np.maximum(self.counts[used] - rule.limit, 0).sum())
        if rule.kind is RuleKind.TOGETHER:
            if rule.is_hard:
                # Other consumers may be in several places; members are with some of them.
                return len(members) - int(np.bincount(members[members != NOWHERE]).max(initial=0))
            return self.total - int(self.counts[used].max(initial=0)) if len(members) else 0
        return int(np.maximum(self.counts[used] - self._fewest - rule.limit, 0).sum()) + nowhere

    @property
    def _fewest(self) -> int:
        return int(self.counts[:-1].min(initial=2**40)) if self.rule.places.count else 0


def _all(fine: Mask, places: Rows) -> Mask:
    """Return which candidates are only in places that are fine; NOWHERE is fine."""
    fine[-1] = True
    return cast(Mask, fine[places].all(axis=1))
