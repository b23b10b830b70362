"""What was given to members so far, by the forest and by the tallies of rules; what is left for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from placement.forest.arrays import Amounts, Indices, Mask, Rows
from placement.forest.forest import Forest
from placement.search.answer import Answer, Draw
from placement.search.members.places import filled_up, hosts_of
from placement.search.members.tally import Rule, Tally

FindMore = Callable[[Mask | None], tuple[Answer, bool]]
"""Searches at some of the rows as roots or at all; the answer, and whether it was cut."""


@dataclass(frozen=True, eq=False, slots=True)
class Kind:
    """Members that ask for the same under the same rules, by the numbers of the rules.

    `room` tells of each row of the forest how many fit at most below it if it is a root.
    """

    find: FindMore
    room: Callable[[], Amounts]
    rules: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """The candidates of a kind, best first, with their hosts and their places by rule.

    `is_cut`: there may be more. `at_version` of the board, `narrowed`: at hosts that hard rules allowed then.
    `drawn`: what candidates draw, as far as it was asked for.
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
        """What a candidate draws."""
        found = self.drawn.get(at)
        if found is None:
            found = self.drawn[at] = self.answer.draws(at)
        return found


@dataclass(frozen=True, eq=False, slots=True)
class Given:
    """A candidate that a member was given: its table and number, what it draws, its places by rule."""

    kind: Kind
    table: Table
    at: int
    draws: Sequence[Draw]
    places: Mapping[int, list[int]]


class Board:
    """The state of a decision; `forest` is forked, for what is given is taken there."""

    def __init__(self, forest: Forest, sharers: Mask, rules: Sequence[Rule]) -> None:
        self.forest = forest
        self._sharers = sharers
        self.tallies = [Tally(rule) for rule in rules]
        self._first: dict[Kind, Table] = {}
        self._tables: dict[Kind, Table] = {}
        self.given: list[Given] = []
        self.version = 0
        self._touched: dict[int, int] = {}

    # -- candidates ---------------------------------------------------------------------------------

    def table(self, kind: Kind) -> Table:
        """The candidates of a kind."""
        if kind not in self._tables:
            assert not self.given, "tables are made before anything is given"
            self._first[kind] = self._made(kind, None)
            self._tables[kind] = _fresh(self._first[kind])
        return self._tables[kind]

    def first_table(self, kind: Kind) -> Table:
        """The candidates of a kind before anything was given."""
        self.table(kind)
        return self._first[kind]

    def anywhere(self, kind: Kind) -> Table:
        """The candidates of a kind on what is left, whatever the rules say."""
        return self._made(kind, None)

    def search_again(self, kind: Kind) -> Table:
        """The candidates of a kind on what is left, at hosts that the rules allow."""
        self._tables[kind] = self._made(kind, self.allowed_hosts(kind))
        return self._tables[kind]

    def _made(self, kind: Kind, among: Mask | None) -> Table:
        answer, is_cut = kind.find(among)
        rows = _rows_of(answer)
        count = len(rows)
        if not count:
            rows = np.empty((0, 1), np.intp)
        places = {number: self.tallies[number].rule.places.of(rows) for number in kind.rules}
        hosts = hosts_of(self.forest, self._sharers, rows)
        alive = np.ones(count, bool)
        scores = answer.present_scores()
        return Table(answer, hosts, places, scores, alive, is_cut, self.version, among is not None)

    def allowed_hosts(self, kind: Kind) -> Mask:
        """Which rows are roots where the rules on hosts and aggregates allow one more."""
        roots = self.forest.roots.astype(np.intp)
        allowed = np.zeros(self.forest.count, bool)
        allowed[roots] = True
        for number in kind.rules:
            tally = self.tallies[number]
            if tally.rule.weight is None and tally.rule.on_hosts:
                allowed[roots] &= tally.allowed(tally.rule.places.of(roots[:, None]))
        return allowed

    def touched_since(self, host: int, version: int) -> bool:
        """Whether something was given on a host after a version of the board."""
        return self._touched.get(host, -1) >= version

    def excess(self, number: int) -> int:
        """By how many a rule is broken where members are; 0 if it holds."""
        tally = self.tallies[number]
        places = [given.places[number] for given in self.given if number in given.places]
        return tally.excess(filled_up([*places, *tally.rule.held.tolist()]))

    def has_room(self, draws: Sequence[Draw]) -> bool:
        """Whether all of it is there."""
        inventories = self.forest.inventories
        return all(inventories[draw.class_id].has_free(draw.row, draw.amount) for draw in draws)

    # -- giving -------------------------------------------------------------------------------------

    def give(self, kind: Kind, table: Table, at: int) -> None:
        """Let a member of the kind have a candidate."""
        places = {number: table.places[number][at].tolist() for number in kind.rules}
        given = Given(kind, table, at, table.draws(at), places)
        for draw in given.draws:
            self.forest.take(draw.row, draw.class_id, draw.amount)
        for number, each in places.items():
            self.tallies[number].add(each)
        self._touched[int(table.hosts[at])] = self.version
        self.version += 1
        self.given.append(given)

    def give_back(self) -> None:
        """Take the last one back."""
        last = self.given.pop()
        for draw in last.draws:
            self.forest.take(draw.row, draw.class_id, -draw.amount)
        for number, each in last.places.items():
            self.tallies[number].add(each, -1)

    def score_again(self, given: Given) -> None:
        """Take over what the other candidates of a host are worth after one was given there."""
        host = int(given.table.hosts[given.at])
        for table in self._tables.values():
            if table.answer.is_ordered:
                at = np.flatnonzero(table.hosts == host)
                table.scores[at] = table.answer.present_scores_at(at)

    def clear(self) -> None:
        """Take everything back, as it was in the beginning."""
        while self.given:
            self.give_back()
        for tally in self.tallies:
            tally.reset()
        self._tables = {kind: _fresh(table) for kind, table in self._first.items()}
        self._touched = {}
        self.version += 1

    def replay(self, given: Sequence[Given]) -> None:
        """Give what was given before, on a board that was cleared."""
        for each in given:
            self.give(each.kind, each.table, each.at)


def _fresh(table: Table) -> Table:
    """A copy that may be written to."""
    return replace(table, scores=table.scores.copy(), alive=np.ones(len(table.hosts), bool))


def _rows_of(answer: Answer) -> Rows | Indices:
    """The rows of the providers of each candidate, filled up with -1."""
    if not answer.splits:
        return answer.provider_rows
    return filled_up([sorted({draw.row for draw in answer.draws(at)}) for at in range(len(answer))])
