"""The room for more requests, as answers show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from placement.engine.search.capacity.capacity import Capacity, Offered, Summary, together
from placement.engine.search.query import ForestQuery
from placement.providers.view import View


@dataclass(frozen=True, slots=True)
class Classes:
    """The amounts that hosts offer of a class, in its units; `stranded` is free where no more fits."""

    free: int
    wanted: int
    stranded: int


@dataclass(frozen=True, slots=True)
class CapacityCount:
    """The room that some hosts have together; `lower` and `upper` are equal where that is exact.

    `hosts` offer what is asked for, `taking` of them can take one. `ideal`: how many could be placed if
    everything that is free were one host. `fragmentation`: the share of `ideal` that cannot be placed.
    Stranded amounts and fragmentation are defined in docs/packing.md. `place`: the cluster, or the aggregate
    (uuid) of roots.
    """

    lower: int
    upper: int
    hosts: int
    taking: int
    runs_out_first: str | None
    ideal: int
    fragmentation: float
    classes: Mapping[str, Classes]
    place: str = ""


@dataclass(frozen=True, slots=True)
class HostRoom:
    """The room of one host; `like`: the host is imagined, and like the host with this uuid."""

    uuid: str
    name: str | None
    lower: int
    upper: int
    runs_out_first: str
    classes: Mapping[str, Classes]
    like: str | None = None


@dataclass(frozen=True, slots=True)
class KindRoom:
    """The room for one kind: in all, and where asked for by cluster, aggregate of roots and host."""

    total: CapacityCount
    clusters: Sequence[CapacityCount] | None = None
    aggregates: Sequence[CapacityCount] | None = None
    hosts: Sequence[HostRoom] | None = None


# Capacity for a query, summed by cluster and aggregate.


# Members that one claim is tried with.
_MOST_MEMBERS = 1000


class QueryCapacity:
    """A count of one query, which may ask something else of core trees. Raises SearchEnded."""

    def __init__(self, view: View, queries: Sequence[ForestQuery], place: Callable[[int], int]) -> None:
        """Prepare to count; `place` returns how many of so many members one claim would place."""
        self._names = view.names.classes
        self._place = place
        self._counted = [Capacity(view.forest, view.sharing, query) for query in queries]
        self._shares = any(each.shares for each in self._counted)

    def room(self) -> CapacityCount:
        """Return the room of all hosts together."""
        return self._told(self._everywhere)

    @cached_property
    def _everywhere(self) -> Summary:
        summary = self._summed([each.everywhere for each in self._counted])
        if summary.lower < summary.upper <= _MOST_MEMBERS:
            # One claim for many members tries other choices beside the first, which may be worth more.
            summary = replace(summary, lower=max(summary.lower, self._place(summary.upper)))
        return summary

    def by_aggregate(self, groups: Mapping[str, int]) -> list[CapacityCount]:
        """Return the room of hosts with roots in each aggregate; empty ones are left out."""
        found = [each.by_aggregate(groups.values()) for each in self._counted]
        sums = {name: self._summed([each[at] for each in found]) for at, name in enumerate(groups)}
        return [self._told(self._if_all(each), name) for name, each in sums.items() if each.hosts]

    def _if_all(self, summary: Summary) -> Summary:
        """Return a sum; one of all hosts takes no less than `_everywhere`."""
        if summary.hosts < self._everywhere.hosts:
            return summary
        return replace(summary, lower=max(summary.lower, self._everywhere.lower))

    def aggregates(self) -> set[int]:
        """Return the ids of the aggregates that hosts are in by their roots."""
        return set().union(*(each.aggregates() for each in self._counted))

    def hosts(self, called: Mapping[int, str], like: Mapping[int, str]) -> Iterator[HostRoom]:
        """Yield each host's room; `called`: names by root id, `like`: models of imagined ones, by row."""
        for counted in self._counted:
            for host in counted.hosts():
                yield HostRoom(
                    host.uuid,
                    None if host.row in like else called.get(host.id),
                    host.lower,
                    host.upper,
                    self._names[host.runs_out_first],
                    self._classes(host.offered),
                    like.get(host.row),
                )

    def _summed(self, summaries: Sequence[Summary]) -> Summary:
        return summaries[0] if len(summaries) == 1 else together(summaries, shares=self._shares)

    def _told(self, summary: Summary, place: str = "") -> CapacityCount:
        first = summary.runs_out_first
        return CapacityCount(
            summary.lower,
            summary.upper,
            summary.hosts,
            summary.taking,
            None if first is None else self._names[first],
            summary.ideal,
            round(summary.fragmentation, 4),
            self._classes(summary.offered),
            place,
        )

    def _classes(self, offered: Mapping[int, Offered]) -> dict[str, Classes]:
        return {
            self._names[class_id]: Classes(each.free, each.wanted, each.stranded)
            for class_id, each in offered.items()
        }
