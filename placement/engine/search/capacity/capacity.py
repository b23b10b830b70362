"""The number of further requests that could be placed in turn: by host, and for any set of hosts.

It is the most there can be, if each is placed where it hinders later ones the least. What fits side by side
can be placed in any order: amounts, units and traits do not depend on earlier requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from placement.engine.domain.units import rounded_share
from placement.engine.forest.arrays import Amounts, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import SharingMap
from placement.engine.forest.texts import to_text
from placement.engine.search.capacity.anchors import MOST, Anchors, Bounds, SlotEntries, free_of
from placement.engine.search.capacity.cells import nearest_of, parts_of
from placement.engine.search.capacity.claiming import Claiming
from placement.engine.search.capacity.counting import Counting, PartCount
from placement.engine.search.capacity.totals import total
from placement.engine.search.filters import Choices, FilledSlots, filled_slots, flags_of
from placement.engine.search.query import ForestQuery

ClassT = TypeVar("ClassT", int, str)
"""The id of a resource class, or its name."""
_TEN_THOUSANDTHS = 10_000


class Capacity:
    """The hosts that offer the classes of a query, and how many more requests each has room for."""

    def __init__(self, forest: Forest, sharing_map: SharingMap, query: ForestQuery) -> None:
        """Count what each host has room for at most. Raises SearchEnded, as every count does.

        Lower bounds are counted on demand: claims are tried where counting leaves them open.
        """
        query.budget.begin_stages()
        self._forest = forest
        sharing = sharing_map.of(forest, query.sharing_trait)
        self._sharers = sharing.mask(forest.count)
        filled = filled_slots(forest, sharing, query)
        self._slots = filled.slots
        # The providers that could fill each slot, apart from amounts.
        offering = filled_slots(forest, sharing, query, with_room=False)
        self.roots = offering.viable_roots().astype(np.intp)
        """The roots of the hosts, in order of their ids."""
        self._anchors = Anchors(forest, self.roots, sharing)
        query.budget.note_stage("filter")
        self._parts: list[PartCount] = []
        self._bounds = self._counted(filled)
        self.upper = self._bounds.upper
        """How many more fit on each host at most, if the others take nothing."""
        classes = dict.fromkeys(class_id for slot in self._slots for class_id, _ in slot.resources)
        self._classes = {class_id: self._class_offered(class_id, offering.choices) for class_id in classes}
        self.shares = any(offered.entries.foreign.any() for offered in self._classes.values())
        """Whether sharing providers are in play."""
        self._claiming = Claiming(forest, sharing_map, query)
        query.budget.note_stage("combine")

    def _counted(self, filled: FilledSlots) -> Bounds:
        count = len(self._anchors)
        # Parts are counted where all slots can be filled; elsewhere there is nothing to count.
        at = np.unique(self._anchors.hosts_of(filled.viable_roots().astype(np.intp)))
        counting = Counting(filled, Anchors(self._forest, self.roots[at], filled.sharing))
        bounds = Bounds(*np.full((2, len(at)), MOST))
        for part in parts_of(filled) if len(at) else ():
            filled.query.budget.look()
            counted = counting.count(part)
            self._parts.append(counted)
            bounds = bounds.least(counted.bounds)
        self._viable_bounds, self._viable_at = bounds, at
        lower, upper = np.zeros((2, count), np.int64)
        lower[at], upper[at] = bounds.lower, bounds.upper
        return Bounds(lower, upper)

    @cached_property
    def _lower(self) -> Amounts:
        """Return how many each host takes at least: the number counted, or reached by claims of it alone."""
        lower = self._bounds.lower.copy()
        at = np.flatnonzero(lower < self.upper)
        if not self.shares:
            lower[at] = np.maximum(lower[at], self._claiming.by_host(self.roots[at]))
            return lower
        for host in at.tolist():
            lower[host] = max(lower[host], self._claiming.in_all(self.roots[[host]]))
        return lower

    def _class_offered(self, class_id: int, choices: Sequence[Choices]) -> _ClassOffered:
        """Return a class that is asked for, with the entries that offer it."""
        asking = [number for number, slot in enumerate(self._slots) if class_id in dict(slot.resources)]
        amounts = [dict(self._slots[number].resources)[class_id] for number in asking]
        is_one = len({id(choices[number]) for number in asking}) == 1
        entries = self._anchors.entries(Choices.union(choices[number] for number in asking))
        free = free_of(self._forest, class_id, entries.rows)
        if is_one and len(set(amounts)) == 1 and not self._slots[asking[0]].rule:
            alone = self._anchors.sums(entries.hosts, free // amounts[0]) // len(amounts)
        else:
            alone = self._anchors.sums(entries.hosts, free) // sum(amounts)
        # Stranded are the entries of hosts that take nothing, and entries where no cell fits any more.
        stranded: Mask = self.upper[entries.hosts] == 0
        able = [part.able for part in self._parts if part.able is not None]
        if all(self._slots[number].group.suffix for number in asking) and able:
            tops = flags_of(self._forest.count, np.concatenate(able))
            stranded = stranded | (nearest_of(self._forest, tops, entries.rows, or_self=True) < 0)
        return _ClassOffered(entries, free, sum(amounts), alone, stranded)

    @cached_property
    def everywhere(self) -> Summary[int]:
        """Return the summary of all hosts together."""
        return self.summary(np.ones(len(self._anchors), bool))

    def summary(self, among: Mask) -> Summary[int]:
        """Return the summary of some of the hosts together."""
        if self.shares:
            lower, upper = total(self._viable_bounds, self._parts, self._sharers, among[self._viable_at])
            if lower < upper:
                # Hosts that take from sharing providers are in one another's way, so they claim together.
                lower = max(lower, self._claiming.in_all(self.roots[among]))
        else:
            lower, upper = int(self._lower[among].sum()), int(self.upper[among].sum())
        return summary_of(
            lower,
            upper,
            int(among.sum()),
            int((self.upper[among] > 0).sum()),
            {class_id: each.among(among) for class_id, each in self._classes.items()},
        )

    def hosts(self) -> Iterator[HostRoom[int]]:
        """Yield the hosts one by one, in order of their ids."""
        providers, roots = self._forest.providers, self.roots
        columns = self._sums_of_classes(np.arange(len(roots)), len(roots))
        # The class of which each host has enough for the fewest requests.
        first: Iterable[int] = ()
        if self._classes and len(roots):
            table = np.stack([each.alone for each in self._classes.values()])
            first = np.array(list(self._classes))[table.argmin(axis=0)].tolist()
        numbers = zip(
            roots.tolist(),
            to_text(providers.uuid[roots]),
            self._lower.tolist(),
            self.upper.tolist(),
            first,
            strict=True,
        )
        for at, (row, uuid, lower, upper, least) in enumerate(numbers):
            classes = {
                class_id: Offered(free[at], wanted, alone[at], stranded[at])
                for class_id, (wanted, free, alone, stranded) in columns.items()
            }
            yield HostRoom(uuid, lower, upper, least, classes, row)

    def aggregates(self) -> set[int]:
        """Return the ids of the aggregates that hosts are in by their roots."""
        aggregates = self._forest.aggregates
        return set().union(*(aggregates.sets[at] for at in np.unique(aggregates.numbers[self.roots])))

    def by_aggregate(self, ids: Iterable[int]) -> list[Summary[int]]:
        """Return the summary of the hosts with roots in an aggregate, for each of the aggregates."""
        # Hosts share few distinct sets of aggregates: each is summed once.
        aggregates = self._forest.aggregates
        label = aggregates.numbers[self.roots].astype(np.intp)
        sets = {number: aggregates.sets[number] for number in np.unique(label).tolist()}
        groups = [[number for number, members in sets.items() if id_ in members] for id_ in ids]
        if self.shares or not groups:
            return [self.summary(np.isin(label, labels)) for labels in groups]
        count = max(sets, default=0) + 1
        per_host = (self._lower, self.upper, np.ones_like(self.upper), (self.upper > 0).astype(np.int64))
        bounds = [_sums(label, each, count) for each in per_host]
        columns = self._sums_of_classes(label, count)
        summaries = []
        for labels in groups:
            classes = {}
            for class_id, (wanted, *parts) in columns.items():
                free, alone, stranded = (sum(each[at] for at in labels) for each in parts)
                classes[class_id] = Offered(free, wanted, alone, stranded)
            lower, upper, hosts, taking = (sum(each[at] for at in labels) for each in bounds)
            summaries.append(summary_of(lower, upper, hosts, taking, classes))
        return summaries

    def _sums_of_classes(
        self, label: Rows, count: int
    ) -> dict[int, tuple[int, list[int], list[int], list[int]]]:
        """Return the amounts of each class by label of hosts: wanted, free, alone and stranded."""
        columns = {}
        for class_id, each in self._classes.items():
            of, stranded = label[each.entries.hosts], np.where(each.stranded, each.free, 0)
            free, alone = _sums(of, each.free, count), _sums(label, each.alone, count)
            columns[class_id] = each.wanted, free, alone, _sums(of, stranded, count)
        return columns


class HostRoom(NamedTuple, Generic[ClassT]):
    """The room of one host; `runs_out_first` is the class of which it has enough for the fewest requests.

    `row` is the one of its root, -1 for a node. `like`: the host is imagined, like the host with this uuid.
    """

    uuid: str
    lower: int
    upper: int
    runs_out_first: ClassT
    classes: Mapping[ClassT, Offered]
    row: int = -1
    name: str | None = None
    like: str | None = None


class Offered(NamedTuple):
    """An offer of some hosts for a class: `free` of it, `wanted` by each request, `stranded` of it.

    `alone`: how many could be placed if only this class counted.
    """

    free: int
    wanted: int
    alone: int
    stranded: int


@dataclass(frozen=True, slots=True)
class Summary(Generic[ClassT]):
    """The room of some hosts: how many more fit at least and at most, equal where that is exact.

    `hosts` offer what is asked for, `taking` of them can take one. `ideal`: how many could be placed if
    everything that is free were on one host. `place`: the cluster, or the aggregate (uuid) of roots, with its
    `name` if it has one. `first`: the class that most hosts run out of first, if that is known.
    docs/packing.md defines stranded amounts and fragmentation.
    """

    lower: int
    upper: int
    hosts: int
    taking: int
    ideal: int
    classes: Mapping[ClassT, Offered]
    place: str = ""
    name: str | None = None
    first: ClassT | None = None

    @property
    def runs_out_first(self) -> ClassT | None:
        """Return the class of which the hosts have enough for the fewest requests; None without hosts."""
        if not self.hosts or self.first is not None:
            return self.first
        return min(self.classes, key=lambda each: self.classes[each].alone, default=None)

    @property
    def fragmentation(self) -> float:
        """Return the share of `ideal` that cannot be placed, by the lower bound."""
        return rounded_share(self.ideal - self.lower, self.ideal, _TEN_THOUSANDTHS) / _TEN_THOUSANDTHS


def summary_of(
    lower: int, upper: int, hosts: int, taking: int, classes: Mapping[ClassT, Offered]
) -> Summary[ClassT]:
    """Return a summary, with its ideal."""
    ideal = min((each.free // each.wanted for each in classes.values()), default=0)
    return Summary(lower, upper, hosts, taking, ideal if hosts else 0, classes)


def together(summaries: Sequence[Summary[int]], *, shares: bool) -> Summary[int]:
    """Return the summary of different hosts; if some share providers, only the largest `lower` is certain."""
    classes: dict[int, Offered] = {}
    for class_id, each in chain(*(summary.classes.items() for summary in summaries)):
        free, wanted, alone, stranded = classes.get(class_id, Offered(0, 0, 0, 0))
        classes[class_id] = Offered(
            free + each.free, max(wanted, each.wanted), alone + each.alone, stranded + each.stranded
        )
    lower = [each.lower for each in summaries]
    return Summary(
        max(lower) if shares else sum(lower),
        sum(each.upper for each in summaries),
        sum(each.hosts for each in summaries),
        sum(each.taking for each in summaries),
        sum(each.ideal for each in summaries),
        classes,
    )


def _sums(labels: Rows, numbers: Amounts, count: int) -> list[int]:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, labels, numbers)
    listed: list[int] = sums.tolist()
    return listed


@dataclass(frozen=True, slots=True)
class _ClassOffered:
    """A class and the entries that offer it: `free` at each, whether it is `stranded`; `alone` by host."""

    entries: SlotEntries
    free: Amounts
    wanted: int
    alone: Amounts
    stranded: Mask

    def among(self, hosts: Mask) -> Offered:
        """Return the offer of some hosts together; amounts of sharing providers count once."""
        kept = hosts[self.entries.hosts]
        rows, free, stranded = self.entries.rows[kept], self.free[kept], self.stranded[kept]
        alone = int(self.alone[hosts].sum())
        if self.entries.foreign.any():
            # A sharing provider is stranded if no host can use it.
            order = np.argsort(stranded, kind="stable")
            _, first = np.unique(rows[order], return_index=True)
            free, stranded = free[order][first], stranded[order][first]
            alone = int((free // self.wanted).sum())
        return Offered(int(free.sum()), self.wanted, alone, int(free[stranded].sum()))
