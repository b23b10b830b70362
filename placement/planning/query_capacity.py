"""How many more of a query fit, in all and by cluster, aggregate and host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from placement.engine.search.capacity.capacity import Capacity, HostRoom, Summary, together
from placement.engine.search.query import ForestQuery
from placement.planning.counts import CapacityCount, HostCount
from placement.providers.view import View

# Members that one claim is tried with.
_MOST_MEMBERS = 1000


class QueryCapacity:
    """The count of one query, which may ask something else of core trees. Raises SearchEnded."""

    def __init__(self, view: View, queries: Sequence[ForestQuery], place: Callable[[int], int]) -> None:
        """Prepare to count; `place` returns how many of a number of members one claim would place."""
        self._names, self._ids = view.names.classes, view.forest.providers.id
        self._place = place
        self._capacities = [Capacity(view.forest, view.sharing, query) for query in queries]
        self._shares = any(each.shares for each in self._capacities)

    def total(self) -> CapacityCount:
        """Return the count of all hosts together."""
        return self._named(self._everywhere)

    @cached_property
    def _everywhere(self) -> Summary[int]:
        summary = self._summed([each.everywhere for each in self._capacities])
        if summary.lower < summary.upper <= _MOST_MEMBERS:
            # One claim for many members tries other choices beside the first, which may be worth more.
            summary = replace(summary, lower=max(summary.lower, self._place(summary.upper)))
        return summary

    def by_aggregate(self, groups: Mapping[str, int]) -> list[CapacityCount]:
        """Return the count of hosts with roots in each aggregate; empty ones are left out."""
        found = [each.by_aggregate(groups.values()) for each in self._capacities]
        counts = []
        for at, name in enumerate(groups):
            summary = self._summed([each[at] for each in found])
            if summary.hosts and summary.hosts >= self._everywhere.hosts:
                # One of all hosts takes no less than `_everywhere`.
                summary = replace(summary, lower=max(summary.lower, self._everywhere.lower))
            if summary.hosts:
                counts.append(self._named(summary, name))
        return counts

    def aggregates(self) -> set[int]:
        """Return the ids of the aggregates that hosts are in by their roots."""
        return set().union(*(each.aggregates() for each in self._capacities))

    def hosts(self, called: Mapping[int, str], like: Mapping[int, str]) -> Iterator[HostCount]:
        """Yield the count of each host; `called`: names by root id, `like`: models of new hosts by row."""
        for capacity in self._capacities:
            for host in capacity.hosts():
                name = None if host.row in like else called.get(int(self._ids[host.row]))
                classes = {self._names[id_]: each for id_, each in host.classes.items()}
                first, model = self._names[host.runs_out_first], like.get(host.row)
                yield HostRoom(host.uuid, host.lower, host.upper, first, classes, host.row, name, model)

    def _summed(self, summaries: Sequence[Summary[int]]) -> Summary[int]:
        return summaries[0] if len(summaries) == 1 else together(summaries, shares=self._shares)

    def _named(self, summary: Summary[int], place: str = "") -> CapacityCount:
        classes = {self._names[id_]: each for id_, each in summary.classes.items()}
        numbers = summary.lower, summary.upper, summary.hosts, summary.taking, summary.ideal
        return Summary(*numbers, classes, place)
