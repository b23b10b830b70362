"""How many members of a kind can be placed at most: by the room of each host, and by each rule alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from placement.engine.domain.member_rules import RuleKind
from placement.engine.forest.arrays import Amounts, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import SharingMap
from placement.engine.search.capacity.capacity import Capacity
from placement.engine.search.capacity.totals import max_flow
from placement.engine.search.members.places import NOWHERE
from placement.engine.search.members.state import MemberKind, PlacementState
from placement.engine.search.members.tallies import Tally
from placement.engine.search.query import ForestQuery


def most_of(state: PlacementState, kind: MemberKind, kinds: Collection[MemberKind] = ()) -> int:
    """Return at most how many of a kind fit, on a cleared state; `kinds` are all kinds that are placed.

    No rule is stricter where the other rules are left out. Other kinds may fill the emptiest place of a
    spread, so a spread that they share does not bound this kind alone.
    """
    roots = state.forest.roots.astype(np.intp)
    room = limited_room(state, kind, roots)
    shared = {number for each in kinds if each is not kind for number in each.rules}
    most = int(room.sum())
    for number, tally in state.hard(kind):
        if not tally.rule.on_hosts:
            continue
        places = tally.rule.places.of(roots[:, None])
        if tally.rule.kind is RuleKind.AT_MOST:
            most = min(most, _at_most(tally, places, room))
        elif tally.rule.kind is RuleKind.SPREAD and places.shape[1] == 1 and number not in shared:
            most = min(most, _spread(tally, places[:, 0], room))
    return most


def limited_room(state: PlacementState, kind: MemberKind, roots: Rows) -> Amounts:
    """Return how many members each host has room for, if each rule concerned that host alone."""
    room = kind.room()[roots]
    for tally in state.hard_on_hosts(kind):
        where = tally.rule.places.of(roots[:, None])
        # A spread may later allow what it does not allow yet.
        spread = tally.rule.kind is RuleKind.SPREAD
        open_ = (where != NOWHERE).any(axis=1) if spread else tally.allowed(where)
        room = np.where(open_, room, 0)
        if tally.rule.kind is RuleKind.AT_MOST and where.shape[1] == 1:
            left = np.where(where[:, 0] >= 0, tally.rule.limit - tally.counts[where[:, 0]], room)
            room = np.minimum(room, np.maximum(left, 0))
    return room


def _at_most(tally: Tally, places: Rows, room: Amounts) -> int:
    """Return a bound by flow: hosts give to places up to the limit; hosts without a place give all."""
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
    """Return a bound: no place may exceed the emptiest, however full that gets, by more than the limit."""
    inside = places != NOWHERE
    count = tally.rule.places.count
    able = np.bincount(places[inside], room[inside], count).astype(np.int64)
    counts = tally.counts[:-1]
    fewest = int((counts + able).min()) if count else 0
    return int(np.clip(fewest + tally.rule.limit - counts, 0, able).sum())


def room_below(forest: Forest, sharing: SharingMap, forest_queries: Sequence[ForestQuery]) -> Amounts:
    """Return for each root's row how many consumers its host alone has room for. Raises SearchEnded."""
    room = np.zeros(forest.count, np.int64)
    for query in forest_queries:
        capacity = Capacity(forest, sharing, query)
        room[capacity.roots] += capacity.upper
    return room
