"""How many members of one kind go where, if two rules limit aggregates that lie across each other.

Taking the best one after another may block more places than necessary. The numbers for each zone and rack
are a flow from the places of one rule, through the hosts, to the places of the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.engine.domain.member_rules import RuleKind
from placement.engine.forest.arrays import Amounts, Mask, Rows
from placement.engine.search.capacity.totals import Edges, connect, saturate
from placement.engine.search.members.bounds import limited_room
from placement.engine.search.members.places import (
    NOWHERE,
    HostPlaces,
)
from placement.engine.search.members.state import MemberKind, PlacementState
from placement.engine.search.members.tallies import Tally

_ENDLESS = 2**40


class Quota:
    """A quota of members for hosts of each sort; `of_row` has the sorts by the rows of their roots."""

    def __init__(self, of_row: Rows, left: Amounts) -> None:
        self._of_row, self._left = of_row, left
        self.total = int(left.sum())

    def open(self, hosts: Rows) -> Mask:
        """Return the mask of the hosts that may get one more."""
        fine: Mask = (self._left > 0)[self._of_row[hosts]]
        return fine

    def use(self, host: int) -> None:
        """Use the quota once, for one more member on a host."""
        self._left[self._of_row[host]] -= 1


def quota_of(state: PlacementState, kind: MemberKind) -> Quota | None:
    """Return the quotas of a kind on a cleared state; None unless two rules lie across each other."""
    roots = state.forest.roots.astype(np.intp)
    tallies = [tally for _, tally in state.hard(kind) if not isinstance(tally.rule.places, HostPlaces)]
    if len(tallies) != 2 or not all(map(_limits_aggregates, tallies)):
        return None
    places = [tally.rule.places.of(roots[:, None]) for tally in tallies]
    if any(each.shape[1] != 1 for each in places):
        return None
    pairs, number = np.unique(np.hstack(places), axis=0, return_inverse=True)
    room = np.bincount(number.ravel(), limited_room(state, kind, roots), len(pairs)).astype(np.int64)
    of_row = np.zeros(state.forest.count, np.intp)
    of_row[roots] = number.ravel()
    limits = [np.maximum(tally.rule.limit - tally.counts, 0).tolist() for tally in tallies]
    return Quota(of_row, np.array(_flow(pairs.tolist(), room.tolist(), *limits), np.int64))


def _limits_aggregates(tally: Tally) -> bool:
    return tally.rule.kind is RuleKind.AT_MOST and tally.rule.on_hosts


def _flow(
    pairs: Sequence[Sequence[int]], room: Sequence[int], first_limits: list[int], second_limits: list[int]
) -> list[int]:
    """Return how many members each pair of places gets, if as many as possible are placed.

    The largest flow goes from the places of the first rule through the pairs to the places of the second.
    """
    first = {place: 1 + at for at, place in enumerate(dict.fromkeys(one for one, _ in pairs))}
    second = {place: -1 - at for at, place in enumerate(dict.fromkeys(other for _, other in pairs))}
    source, sink = 0, 1 + len(first)
    edges: Edges = {node: {} for node in (source, sink, *first.values(), *second.values())}
    for place, node in first.items():
        connect(edges, source, node, _ENDLESS if place == NOWHERE else first_limits[place])
    for place, node in second.items():
        connect(edges, node, sink, _ENDLESS if place == NOWHERE else second_limits[place])
    for (one, other), amount in zip(pairs, room, strict=True):
        connect(edges, first[one], second[other], amount)
    saturate(edges, source, sink)
    return [edges[second[other]][first[one]] for one, other in pairs]
