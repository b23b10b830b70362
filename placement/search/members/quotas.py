"""How many members of one kind go where, if two rules limit aggregates that lie across each other.

Taking the best one after another may block more than it has to there. Which zones and racks give how many is
a flow from the places of one rule through the hosts to the places of the other.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np

from placement.domain.member_rules import RuleKind
from placement.forest.arrays import Amounts, Mask, Rows
from placement.search.members.board import Board, Kind
from placement.search.members.most import limited_room
from placement.search.members.places import NOWHERE, HostPlaces
from placement.search.members.tally import Tally

_Edges = dict[int, dict[int, int]]
_ENDLESS = 2**40


class Quota:
    """So many may still go to hosts of each sort; `of_row` tells the sort by the rows of their roots."""

    def __init__(self, of_row: Rows, left: Amounts) -> None:
        self._of_row, self._left = of_row, left
        self.total = int(left.sum())

    def open(self, hosts: Rows) -> Mask:
        """Which of the hosts may get one more."""
        fine: Mask = (self._left > 0)[self._of_row[hosts]]
        return fine

    def use(self, host: int) -> None:
        """One more is there."""
        self._left[self._of_row[host]] -= 1


def quota_of(board: Board, kind: Kind) -> Quota | None:
    """The quotas of a kind on a board that was cleared; None unless two rules lie across each other."""
    roots = board.forest.roots.astype(np.intp)
    hard = [board.tallies[number] for number in kind.rules if board.tallies[number].rule.weight is None]
    across = [tally for tally in hard if not isinstance(tally.rule.places, HostPlaces)]
    if len(across) != 2 or any(tally.rule.kind is not RuleKind.AT_MOST for tally in across):
        return None
    if not all(tally.rule.on_hosts for tally in across):
        return None
    places = [tally.rule.places.of(roots[:, None]) for tally in across]
    if any(each.shape[1] != 1 for each in places):
        return None
    pairs, number = np.unique(np.hstack(places), axis=0, return_inverse=True)
    room = np.bincount(number.ravel(), limited_room(board, kind, roots), len(pairs)).astype(np.int64)
    of_row = np.zeros(board.forest.count, np.intp)
    of_row[roots] = number.ravel()
    return Quota(of_row, _flow(pairs, room, across))


def _flow(pairs: Rows, room: Amounts, tallies: list[Tally]) -> Amounts:
    """How many each pair of places gets, in the largest flow from the first ones to the second ones."""
    left = [np.maximum(tally.rule.limit - tally.counts, 0).tolist() for tally in tallies]
    first = {place: 1 + at for at, place in enumerate(dict.fromkeys(pairs[:, 0].tolist()))}
    second = {place: -1 - at for at, place in enumerate(dict.fromkeys(pairs[:, 1].tolist()))}
    source, sink = 0, 1 + len(first)
    edges: _Edges = {node: {} for node in (source, sink, *first.values(), *second.values())}
    for place, node in first.items():
        edges[source][node] = _ENDLESS if place == NOWHERE else left[0][place]
        edges[node][source] = 0
    for place, node in second.items():
        edges[node][sink] = _ENDLESS if place == NOWHERE else left[1][place]
        edges[sink][node] = 0
    for (one, other), amount in zip(pairs.tolist(), room.tolist(), strict=True):
        edges[first[one]][second[other]] = amount
        edges[second[other]][first[one]] = 0
    while path := _path(edges, source, sink):
        steps = list(pairwise(path))
        amount = min(edges[here][there] for here, there in steps)
        for here, there in steps:
            edges[here][there] -= amount
            edges[there][here] += amount
    return np.array([edges[second[other]][first[one]] for one, other in pairs.tolist()], np.int64)


def _path(edges: _Edges, source: int, sink: int) -> list[int]:
    """The shortest way from the source to the sink that takes more, empty if there is none."""
    came = {source: source}
    queue = deque([source])
    while queue:
        here = queue.popleft()
        for there, amount in edges[here].items():
            if amount and there not in came:
                came[there] = here
                queue.append(there)
    if sink not in came:
        return []
    path = [sink]
    while path[-1] != source:
        path.append(came[path[-1]])
    return path[::-1]
