"""The state of a decision: the candidates of members so far, in forest and tallies, and the rest by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows
from placement.engine.forest.inventories import Draw
from placement.engine.forest.simulation import SimulatedForest
from placement.engine.search.answer import Answer
from placement.engine.search.filters import flags_of
from placement.engine.search.members.places import filled_up, hosts_of
from placement.engine.search.members.tallies import ResolvedRule, Tally


class PlacementState:
    """The state of a decision; candidates that are given to members are taken from its forest."""

    def __init__(self, forest: SimulatedForest, sharers: Mask, rules: Sequence[ResolvedRule]) -> None:
        self.forest = forest
        self._sharers = sharers
        self.tallies = [Tally(rule) for rule in rules]
        self._first: dict[MemberKind, CandidateTable] = {}
        self._tables: dict[MemberKind, CandidateTable] = {}
        self.candidates: list[AssignedCandidate] = []
        self._marks: list[int] = []
        self.version = 0
        self._touched: dict[int, int] = {}

    # -- candidates ---------------------------------------------------------------------------------

    def table(self, kind: MemberKind) -> CandidateTable:
        """Return the candidates of a kind."""
        if kind not in self._tables:
            assert not self.candidates, "tables are made before anything is given"
            self._first[kind] = self.searched(kind)
            self._tables[kind] = _fresh(self._first[kind])
        return self._tables[kind]

    def first_table(self, kind: MemberKind) -> CandidateTable:
        """Return the candidates of a kind before anything was given."""
        self.table(kind)
        return self._first[kind]

    def search_again(self, kind: MemberKind) -> CandidateTable:
        """Search the candidates of a kind again, on the amounts left, at hosts that the rules allow."""
        roots = self.forest.roots.astype(np.intp)
        allowed = flags_of(self.forest.count, roots)
        for tally in self.hard_on_hosts(kind):
            allowed[roots] &= tally.allowed(tally.rule.places.of(roots[:, None]))
        self._tables[kind] = self.searched(kind, allowed)
        return self._tables[kind]

    def searched(self, kind: MemberKind, among: Mask | None = None) -> CandidateTable:
        """Return the candidates of a kind on the amounts left, at all roots or some, under no rule."""
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
        """Return the rules of a kind that must hold and depend on the host alone."""
        return [tally for _, tally in self.hard(kind) if tally.rule.on_hosts]

    def touched_since(self, host: int, version: int) -> bool:
        """Return whether a candidate was given on a host at or after a version of the state."""
        return self._touched.get(host, -1) >= version

    def excess(self, number: int) -> int:
        """Return by how many members a rule is broken; 0 if it holds."""
        tally = self.tallies[number]
        places = [each.places[number] for each in self.candidates if number in each.places]
        return tally.excess(filled_up([*places, *tally.rule.held.tolist()]))

    # -- giving -------------------------------------------------------------------------------------

    def give(self, kind: MemberKind, table: CandidateTable, at: int) -> None:
        """Give a candidate to a member of the kind."""
        places = {number: table.places[number][at].tolist() for number in kind.rules}
        candidate = AssignedCandidate(kind, table, at, table.draws(at), places)
        self._marks.append(self.forest.mark())
        self.forest.take(candidate.draws)
        for number, each in places.items():
            self.tallies[number].add(each)
        self._touched[int(table.hosts[at])] = self.version
        self.version += 1
        self.candidates.append(candidate)

    def give_back(self) -> None:
        """Take back the candidate that was given last."""
        last = self.candidates.pop()
        self.forest.back(self._marks.pop())
        for number, each in last.places.items():
            self.tallies[number].add(each, -1)

    def score_again(self, candidate: AssignedCandidate) -> None:
        """Update the scores of the other candidates of a host after this one was given there."""
        host = int(candidate.table.hosts[candidate.at])
        for table in self._tables.values():
            if table.answer.is_ordered:
                at = np.flatnonzero(table.hosts == host)
                table.scores[at] = table.answer.present_scores(at)

    def clear(self) -> None:
        """Take everything back, so that the state is as at the start."""
        while self.candidates:
            self.give_back()
        for tally in self.tallies:
            tally.reset()
        self._tables = {kind: _fresh(table) for kind, table in self._first.items()}
        self._touched = {}
        self.version += 1


FindMore = Callable[[Mask | None], tuple[Answer, bool]]
"""A search at some of the rows as roots, or at all: the answer, and whether it was cut."""


@dataclass(frozen=True, eq=False, slots=True)
class MemberKind:
    """A kind: members that ask for the same under the same rules, by the numbers of the rules.

    `room` returns for each row of the forest how many fit at most below it, as a root.
    """

    find: FindMore
    room: Callable[[], Amounts]
    rules: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class CandidateTable:
    """A table of the candidates of a kind, best first, with their hosts and their places by rule.

    `is_cut`: there may be more. `at_version`: the version of the state at the search. `narrowed`: only hosts
    that hard rules allowed then. `drawn`: the draws of candidates, as far as requested.
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
        """Return the draws of a candidate."""
        if at not in self.drawn:
            self.drawn[at] = self.answer.draws(at)
        return self.drawn[at]


@dataclass(frozen=True, eq=False, slots=True)
class AssignedCandidate:
    """A candidate that a member was given: its table and number, its draws, its places by rule."""

    kind: MemberKind
    table: CandidateTable
    at: int
    draws: Sequence[Draw]
    places: Mapping[int, list[int]]


def _fresh(table: CandidateTable) -> CandidateTable:
    """Return a copy that may be written to."""
    return replace(table, scores=table.scores.copy(), alive=np.ones(len(table.hosts), bool))
