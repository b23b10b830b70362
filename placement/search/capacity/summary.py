"""What some hosts have room for together, and what they offer for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Offered:
    """What some hosts offer of a class: `free` of it, `wanted` by each request, `stranded` of it.

    `alone`: how many could be placed if only this class counted.
    """

    free: int
    wanted: int
    alone: int
    stranded: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Some hosts together: how many more at least and at most, and what they offer by class.

    `hosts` offer what is asked for, `taking` of them can take one. `ideal`: how many could be placed if
    everything that is free were one host.
    Stranded amounts and fragmentation are those of docs/packing.md.
    """

    lower: int
    upper: int
    hosts: int
    taking: int
    ideal: int
    offered: Mapping[int, Offered]

    @property
    def runs_out_first(self) -> int | None:
        """The class of which the hosts have enough for the fewest; None without hosts."""
        if not self.hosts:
            return None
        return min(self.offered, key=lambda class_id: self.offered[class_id].alone, default=None)

    @property
    def fragmentation(self) -> float:
        """0: what is free is as good as one host; 1: none of it is of use. By what is placed at least."""
        return max(0.0, 1 - self.lower / self.ideal) if self.ideal else 0.0


def summary_of(lower: int, upper: int, hosts: int, taking: int, offered: Mapping[int, Offered]) -> Summary:
    """A summary, with its ideal."""
    ideal = min((each.free // each.wanted for each in offered.values()), default=0)
    return Summary(lower, upper, hosts, taking, ideal if hosts else 0, offered)


def together(summaries: Iterable[Summary], *, shares: bool) -> Summary:
    """The summary of different hosts; if some share providers, no more than the best of them is certain."""
    found = list(summaries)
    lower = [each.lower for each in found]
    classes = dict.fromkeys(class_id for each in found for class_id in each.offered)
    return Summary(
        max(lower) if shares else sum(lower),
        sum(each.upper for each in found),
        sum(each.hosts for each in found),
        sum(each.taking for each in found),
        sum(each.ideal for each in found),
        {
            class_id: _added([each.offered[class_id] for each in found if class_id in each.offered])
            for class_id in classes
        },
    )


def _added(offers: list[Offered]) -> Offered:
    return Offered(
        sum(each.free for each in offers),
        max(each.wanted for each in offers),
        sum(each.alone for each in offers),
        sum(each.stranded for each in offers),
    )
