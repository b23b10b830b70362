"""How many members of a kind can be placed at most: by the room of each host, and by each rule alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from placement.domain.member_rules import RuleKind
from placement.forest.arrays import Amounts, Mask, Rows
from placement.forest.forest import Forest
from placement.forest.sharing import SharingMap
from placement.search.capacity.capacity import Capacity
from placement.search.capacity.totals import max_flow
from placement.search.members.board import Board, Kind
from placement.search.members.places import NOWHERE
from placement.search.members.tally import Tally
from placement.search.query import ForestQuery


def most_of(board: Board, kind: Kind, others: Collection[Kind] = ()) -> int:
    """At most so many of a kind, on a board that was cleared; `others` are the kinds placed beside it.

    No rule is stricter where the other rules are left out. Others may fill the emptiest place of a spread, so
    that it is no bound for one kind alone.
    """
    roots = board.forest.roots.astype(np.intp)
    room = limited_room(board, kind, roots)
    shared = {number for other in others if other is not kind for number in other.rules}
    fixed = [
        each
        for each in _on_hosts(board, kind)
        if each.rule.kind is RuleKind.AT_MOST or board.tallies.index(each) not in shared
    ]
    bounds = [_bound(tally, tally.rule.places.of(roots[:, None]), room) for tally in fixed]
    return min([int(room.sum()), *bounds])


def limited_room(board: Board, kind: Kind, roots: Rows) -> Amounts:
    """How many each host has room for, where each rule is about that host alone."""
    room = kind.room()[roots]
    for tally in _on_hosts(board, kind):
        where = tally.rule.places.of(roots[:, None])
        room = np.where(_open(tally, where), room, 0)
        if tally.rule.kind is RuleKind.AT_MOST and where.shape[1] == 1:
            left = np.where(where[:, 0] >= 0, tally.rule.limit - tally.counts[where[:, 0]], room)
            room = np.minimum(room, np.maximum(left, 0))
    return room


def _on_hosts(board: Board, kind: Kind) -> list[Tally]:
    """The tallies of the rules that must hold and that hosts decide about."""
    tallies = [board.tallies[number] for number in kind.rules]
    return [each for each in tallies if each.rule.weight is None and each.rule.on_hosts]


def _open(tally: Tally, places: Rows) -> Mask:
    """Where one may be at all; a spread may come to allow what it does not yet."""
    if tally.rule.kind is RuleKind.SPREAD:
        inside: Mask = (places != NOWHERE).any(axis=1)
        return inside
    return tally.allowed(places)


def _bound(tally: Tally, places: Rows, room: Amounts) -> int:
    if tally.rule.kind is RuleKind.AT_MOST:
        return _at_most(tally, places, room)
    if tally.rule.kind is RuleKind.SPREAD and places.shape[1] == 1:
        return _spread(tally, places[:, 0], room)
    return int(room.sum())


def _at_most(tally: Tally, places: Rows, room: Amounts) -> int:
    """By flow: hosts give to their places, which take what the limit leaves; others give as they are."""
    outside = (places == NOWHERE).all(axis=1)
    kinds, number = np.unique(places[~outside], axis=0, return_inverse=True)
    wanted = np.bincount(number.ravel(), room[~outside], len(kinds)).astype(np.int64)
    used = np.unique(places[places != NOWHERE])
    at = {place: index for index, place in enumerate(used.tolist())}
    left = np.maximum(tally.rule.limit - tally.counts[used], 0)
    if places.shape[1] == 1:
        return int(np.minimum(wanted, left).sum() + room[outside].sum())
    givers = [frozenset(at[place] for place in row if place != NOWHERE) for row in kinds.tolist()]
    return max_flow(left.tolist(), givers, wanted.tolist()) + int(room[outside].sum())


def _spread(tally: Tally, places: Rows, room: Amounts) -> int:
    """Nobody may be further above the place with the fewest than the limit, however full that one gets."""
    inside = places != NOWHERE
    count = tally.rule.places.count
    able = np.bincount(places[inside], room[inside], count).astype(np.int64)
    counts = tally.counts[:-1]
    fewest = int((counts + able).min()) if count else 0
    return int(np.clip(fewest + tally.rule.limit - counts, 0, able).sum())


def room_below(forest: Forest, sharing: SharingMap, queries: Sequence[ForestQuery]) -> Amounts:
    """For each row that is a root how many consumers its host alone has room for. Raises SearchEnded."""
    room = np.zeros(forest.count, np.int64)
    for query in queries:
        counted = Capacity(forest, sharing, query)
        room[counted.roots] += counted.upper
    return room
