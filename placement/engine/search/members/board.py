"""The board of a decision: what members have so far, in forest and tallies, and what is left by kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from placement.engine.domain.groups import RuleKind
from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.inventories import Draw
from placement.engine.forest.sharing import SharingMap
from placement.engine.forest.simulation import SimulatedForest
from placement.engine.search.answer import Answer
from placement.engine.search.capacity.capacity import Capacity
from placement.engine.search.capacity.totals import Edges, connect, max_flow, saturate
from placement.engine.search.filters import flags_of
from placement.engine.search.members.places import (
    NOWHERE,
    HostPlaces,
    ResolvedRule,
    Tally,
    filled_up,
    hosts_of,
)
from placement.engine.search.query import ForestQuery

FindMore = Callable[[Mask | None], tuple[Answer, bool]]
"""A search at some of the rows as roots, or at all: the answer, and whether it was cut."""


@dataclass(frozen=True, eq=False, slots=True)
class MemberKind:
    """A kind: members that ask for the same under the same rules, by the numbers of the rules.

    `room` returns for each row of the forest how many fit at most below it if it is a root.
    """

    find: FindMore
    room: Callable[[], Amounts]
    rules: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class CandidateTable:
    """A table of the candidates of a kind, best first, with their hosts and their places by rule.

    `is_cut`: there may be more. `at_version`: the version of the board at the search. `narrowed`: only hosts
    that hard rules allowed then. `drawn`: what candidates draw, as far as requested.
    """

    answer: Answer
    hosts: Rows
    places: Mapping[int, Rows]
    scores: Amounts
    alive: Mask
    is_cut: bool
    at_version: int
    narrowed: bool
    drawn: dict[int, list[Draw]] = field(default_factory=dict)

    def draws(self, at: int) -> list[Draw]:
        """Return what a candidate draws."""
        if at not in self.drawn:
            self.drawn[at] = self.answer.draws(at)
        return self.drawn[at]


@dataclass(frozen=True, eq=False, slots=True)
class AssignedCandidate:
    """A candidate that a member was given: its table and number, what it draws, its places by rule."""

    kind: MemberKind
    table: CandidateTable
    at: int
    draws: Sequence[Draw]
    places: Mapping[int, list[int]]


class PlacementState:
    """The state of a decision; what is given is taken from its forest."""

    def __init__(self, forest: SimulatedForest, sharers: Mask, rules: Sequence[ResolvedRule]) -> None:
        self.forest = forest
        self._sharers = sharers
        self.tallies = [Tally(rule) for rule in rules]
        self._first: dict[MemberKind, CandidateTable] = {}
        self._tables: dict[MemberKind, CandidateTable] = {}
        self.given: list[AssignedCandidate] = []
        self._marks: list[int] = []
        self.version = 0
        self._touched: dict[int, int] = {}

    # -- candidates ---------------------------------------------------------------------------------

    def table(self, kind: MemberKind) -> CandidateTable:
        """Return the candidates of a kind."""
        if kind not in self._tables:
            assert not self.given, "tables are made before anything is given"
            self._first[kind] = self.searched(kind)
            self._tables[kind] = _fresh(self._first[kind])
        return self._tables[kind]

    def first_table(self, kind: MemberKind) -> CandidateTable:
        """Return the candidates of a kind before anything was given."""
        self.table(kind)
        return self._first[kind]

    def search_again(self, kind: MemberKind) -> CandidateTable:
        """Search the candidates of a kind again, on what is left, at hosts that the rules allow."""
        roots = self.forest.roots.astype(np.intp)
        allowed = flags_of(self.forest.count, roots)
        for tally in self.hard_on_hosts(kind):
            allowed[roots] &= tally.allowed(tally.rule.places.of(roots[:, None]))
        self._tables[kind] = self.searched(kind, allowed)
        return self._tables[kind]

    def searched(self, kind: MemberKind, among: Mask | None = None) -> CandidateTable:
        """Return the candidates of a kind on what is left, at all roots or some, whatever rules say."""
        answer, is_cut = kind.find(among)
        rows: Rows | Indices = answer.provider_rows
        if answer.splits:
            rows = filled_up([sorted({draw.row for draw in answer.draws(at)}) for at in range(len(answer))])
        count = len(rows)
        if not count:
            rows = np.empty((0, 1), np.intp)
        places = {number: self.tallies[number].rule.places.of(rows) for number in kind.rules}
        hosts = hosts_of(self.forest, self._sharers, rows)
        alive = np.ones(count, bool)
        scores = answer.present_scores()
        return CandidateTable(answer, hosts, places, scores, alive, is_cut, self.version, among is not None)

    def hard(self, kind: MemberKind) -> list[tuple[int, Tally]]:
        """Return the rules of a kind that must hold, by number."""
        tallies = [(number, self.tallies[number]) for number in kind.rules]
        return [(number, tally) for number, tally in tallies if tally.rule.is_hard]

    def hard_on_hosts(self, kind: MemberKind) -> list[Tally]:
        """Return the rules of a kind that must hold and that hosts decide about."""
        return [tally for _, tally in self.hard(kind) if tally.rule.on_hosts]

    def touched_since(self, host: int, version: int) -> bool:
        """Return whether something was given on a host at or after a version of the board."""
        return self._touched.get(host, -1) >= version

    def excess(self, number: int) -> int:
        """Return by how many a rule is broken where members are; 0 if it holds."""
        tally = self.tallies[number]
        places = [given.places[number] for given in self.given if number in given.places]
        return tally.excess(filled_up([*places, *tally.rule.held.tolist()]))

    # -- giving -------------------------------------------------------------------------------------

    def give(self, kind: MemberKind, table: CandidateTable, at: int) -> None:
        """Give a candidate to a member of the kind."""
        places = {number: table.places[number][at].tolist() for number in kind.rules}
        given = AssignedCandidate(kind, table, at, table.draws(at), places)
        self._marks.append(self.forest.mark())
        self.forest.take(given.draws)
        for number, each in places.items():
            self.tallies[number].add(each)
        self._touched[int(table.hosts[at])] = self.version
        self.version += 1
        self.given.append(given)

    def give_back(self) -> None:
        """Take back what was given last."""
        last = self.given.pop()
        self.forest.back(self._marks.pop())
        for number, each in last.places.items():
            self.tallies[number].add(each, -1)

    def score_again(self, given: AssignedCandidate) -> None:
        """Update the scores of the other candidates of a host after one was given there."""
        host = int(given.table.hosts[given.at])
        for table in self._tables.values():
            if table.answer.is_ordered:
                at = np.flatnonzero(table.hosts == host)
                table.scores[at] = table.answer.present_scores(at)

    def clear(self) -> None:
        """Take everything back, so that the board is as in the beginning."""
        while self.given:
            self.give_back()
        for tally in self.tallies:
            tally.reset()
        self._tables = {kind: _fresh(table) for kind, table in self._first.items()}
        self._touched = {}
        self.version += 1


def _fresh(table: CandidateTable) -> CandidateTable:
    """Return a copy that may be written to."""
    return replace(table, scores=table.scores.copy(), alive=np.ones(len(table.hosts), bool))


# How many members of a kind can be placed at most: by the room of each host, and by each rule alone.


def most_of(board: PlacementState, kind: MemberKind, others: Collection[MemberKind] = ()) -> int:
    """Return at most how many of a kind fit, on a cleared board; `others` are the kinds placed beside it.

    No rule is stricter where the other rules are left out. Other kinds may fill the emptiest place of a
    spread, so a spread that they share does not bound this kind alone.
    """
    roots = board.forest.roots.astype(np.intp)
    room = limited_room(board, kind, roots)
    shared = {number for other in others if other is not kind for number in other.rules}
    most = int(room.sum())
    for number, tally in board.hard(kind):
        if not tally.rule.on_hosts:
            continue
        places = tally.rule.places.of(roots[:, None])
        if tally.rule.kind is RuleKind.AT_MOST:
            most = min(most, _at_most(tally, places, room))
        elif tally.rule.kind is RuleKind.SPREAD and places.shape[1] == 1 and number not in shared:
            most = min(most, _spread(tally, places[:, 0], room))
    return most


def limited_room(board: PlacementState, kind: MemberKind, roots: Rows) -> Amounts:
    """Return how many each host has room for, where each rule is about that host alone."""
    room = kind.room()[roots]
    for tally in board.hard_on_hosts(kind):
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


def room_below(forest: Forest, sharing: SharingMap, queries: Sequence[ForestQuery]) -> Amounts:
    """Return for each root's row how many consumers its host alone has room for. Raises SearchEnded."""
    room = np.zeros(forest.count, np.int64)
    for query in queries:
        counted = Capacity(forest, sharing, query)
        room[counted.roots] += counted.upper
    return room


# How many members of one kind go where, if two rules limit aggregates that lie across each other.
#
# Taking the best one after another may block more than it has to there. Which zones and racks give how many
# is a flow from the places of one rule through the hosts to the places of the other.


_ENDLESS = 2**40


class Quota:
    """A quota of members for hosts of each sort; `of_row` has the sorts by the rows of their roots."""

    def __init__(self, of_row: Rows, left: Amounts) -> None:
        self._of_row, self._left = of_row, left
        self.total = int(left.sum())

    def open(self, hosts: Rows) -> Mask:
        """Return which of the hosts may get one more."""
        fine: Mask = (self._left > 0)[self._of_row[hosts]]
        return fine

    def use(self, host: int) -> None:
        """Use the quota once, for one more member on a host."""
        self._left[self._of_row[host]] -= 1


def quota_of(board: PlacementState, kind: MemberKind) -> Quota | None:
    """Return the quotas of a kind on a cleared board; None unless two rules lie across each other."""
    roots = board.forest.roots.astype(np.intp)
    hard = [tally for _, tally in board.hard(kind) if not isinstance(tally.rule.places, HostPlaces)]
    if len(hard) != 2 or not all(each.rule.kind is RuleKind.AT_MOST and each.rule.on_hosts for each in hard):
        return None
    places = [tally.rule.places.of(roots[:, None]) for tally in hard]
    if any(each.shape[1] != 1 for each in places):
        return None
    pairs, number = np.unique(np.hstack(places), axis=0, return_inverse=True)
    room = np.bincount(number.ravel(), limited_room(board, kind, roots), len(pairs)).astype(np.int64)
    of_row = np.zeros(board.forest.count, np.intp)
    of_row[roots] = number.ravel()
    # The largest flow goes from the places of the first rule through the pairs to the places of the second.
    first = {place: 1 + at for at, place in enumerate(dict.fromkeys(pairs[:, 0].tolist()))}
    second = {place: -1 - at for at, place in enumerate(dict.fromkeys(pairs[:, 1].tolist()))}
    source, sink = 0, 1 + len(first)
    edges: Edges = {node: {} for node in (source, sink, *first.values(), *second.values())}
    left = [np.maximum(tally.rule.limit - tally.counts, 0).tolist() for tally in hard]
    for place, node in first.items():
        connect(edges, source, node, _ENDLESS if place == NOWHERE else left[0][place])
    for place, node in second.items():
        connect(edges, node, sink, _ENDLESS if place == NOWHERE else left[1][place])
    for (one, other), amount in zip(pairs.tolist(), room.tolist(), strict=True):
        connect(edges, first[one], second[other], amount)
    saturate(edges, source, sink)
    flow = [edges[second[other]][first[one]] for one, other in pairs.tolist()]
    return Quota(of_row, np.array(flow, np.int64))
