"""Candidates for many consumers of one call: each sees what consumers before it were promised.

Nothing is written here. What was promised is taken in a forest of the call's own, which began as the newest
one and which no other search sees. The claim decides whether it is really there (Claims). So a promise may
turn out to be void, but no consumer gets more than there is. A refusal means that there was no room when the
call began, or later.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heappop, heappush

from placement.allocations.candidates import CandidateSearch, SearchOptions, SearchResult, queries_of
from placement.engine.domain import groups
from placement.engine.domain.errors import Conflict
from placement.engine.domain.explanation import first_obstacle
from placement.engine.domain.groups import CandidateQuery
from placement.engine.domain.mappings import Mappings, settled
from placement.engine.forest.forest import Forest
from placement.engine.forest.inventories import Draw
from placement.engine.forest.simulation import SimulatedForest
from placement.engine.search.answer import Element
from placement.engine.search.ranking import ScoreCache
from placement.providers.statements.names import Names
from placement.providers.view import View

# How many candidates are looked at beyond the needed ones; clients that lost spread over equal ones.
_AHEAD = 16
_MOST_AT_ONCE = 1000

Resources = Mapping[str, Mapping[str, int]]
ProposalKey = frozenset[tuple[str, str, int]]


class NoCandidate(Conflict):
    """Nothing fits the query at present; the message says why."""

    code = "no_candidate"


class AllLost(Exception):
    """A signal that every candidate was lost to others before, and has become free again meanwhile."""


@dataclass(frozen=True, eq=False)
class ClaimQuery:
    """A query with its options; consumers with equal requests share one."""

    query: CandidateQuery
    options: SearchOptions

    @cached_property
    def kept(self) -> str:
        """Return what is kept of the wish with consumers that get what they ask for."""
        return groups.written(self.query, self.options.cluster_aggregate)

    @cached_property
    def kept_under_rules(self) -> str:
        """Return what is kept of the wish where rules between consumers were met, too."""
        return groups.written(self.query, self.options.cluster_aggregate, under_rules=True)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal: what a consumer would hold, and which group gets which providers."""

    resources: Resources
    mappings: Mappings

    @property
    def key(self) -> ProposalKey:
        """Return a key that is equal for proposals of equal amounts."""
        return frozenset(
            (uuid, name, amount) for uuid, held in self.resources.items() for name, amount in held.items()
        )


@dataclass(slots=True)
class Promises:
    """The view that promises of one call are made on; `forest` is its own, None where one is enough."""

    view: View
    forest: SimulatedForest | None = None

    @classmethod
    def of(cls, view: View, *, many: bool) -> Promises:
        """Return the promises on a view, for one consumer or for many."""
        if not many:
            return cls(view)
        forest = SimulatedForest(view.forest)
        return cls(replace(view, forest=forest), forest)

    def make(self, draws: Collection[Draw]) -> None:
        """Take the draws from the forest, if another promise may follow."""
        if self.forest is None:
            return
        if not self.forest.mark():
            # Scores of what is only promised are kept apart.
            self.view = replace(self.view, score_cache=ScoreCache())
        self.forest.take(draws)


class CandidateQueue:
    """The candidates for one wish, best first, each as often as it has room."""

    def __init__(
        self,
        candidates: CandidateSearch,
        promises: Promises,
        wish: ClaimQuery,
        count: int,
        lost: set[ProposalKey],
    ) -> None:
        """Set up a list for `count` consumers, without the candidates in `lost`."""
        self._candidates = candidates
        self._promises = promises
        self._wish = wish
        self._most = len(lost) + min(max(count, 1) - 1 + _AHEAD, _MOST_AT_ONCE)
        self._lost = lost
        # Why nothing is left; each consumer gets an exception of its own, which keeps its frames only.
        self._reason: str | None = None
        self._found: _Found | None = None

    def take(self, *, shuffled: bool = False) -> Proposal:
        """Return the best candidate that is left, and promise it.

        `shuffled`: any of the best. Raises NoCandidate, AllLost, and as Candidates.find does.
        """
        if self._reason is not None:
            raise NoCandidate(self._reason)
        while True:
            found = self._found
            at = None if found is None else found.best()
            if found is not None and at is not None:
                self._promises.make(found.draws(at))
                return found.proposal(at)
            self._found = self._searched(shuffled)

    def _searched(self, shuffled: bool) -> _Found:
        query = replace(self._wish.query, limit=self._most)
        search = self._candidates.find_in(self._promises.view, query, self._wish.options)
        if not len(search.answer):
            self._reason = f"no candidate: {reason_of(search)}"
            raise NoCandidate(self._reason)
        found = _Found(search, self._wish.query, self._most, self._promises.view.forest)
        if shuffled:
            found.shuffle()
        if self._lost and not found.leave_out(self._lost):
            raise AllLost
        return found


class _Found:
    """The result of one search of the forest; scores follow what is promised since."""

    def __init__(self, search: SearchResult, query: CandidateQuery, most: int, forest: Forest) -> None:
        self._search, self._query = search, query
        self._answer = search.answer
        self._scores = self._answer.present_scores().tolist()
        self._is_ordered = self._answer.is_ordered
        self._is_cut = len(self._scores) >= most
        self._worst = self._scores[-1]
        self._providers, self._has_room = forest.providers, forest.has_room
        self._seen = self._providers.stamp
        self._draws: dict[int, list[Draw]] = {}
        self._proposals: dict[int, Proposal] = {}
        self._by_root: dict[int, list[int]] = defaultdict(list)
        if self._is_ordered:
            for at in range(len(self._scores)):
                for root in {int(self._providers.root[draw.row]) for draw in self.draws(at)}:
                    self._by_root[root].append(at)
        self._ranks = self._unordered_ranks()
        # Best first; an entry with a score other than the present one does not count.
        self._heap = [(-score, self._ranks[at], at) for at, score in enumerate(self._scores)]
        heapify(self._heap)

    def _unordered_ranks(self) -> list[int]:
        """Return the ranks of the candidates among equals, as a search without order ranks them."""
        places = range(len(self._scores))
        if not self._is_ordered:
            return list(places)
        ids = self._providers.id
        turns = {
            at: (turn, int(ids[root]))
            for root, members in self._by_root.items()
            for turn, at in enumerate(members)
        }
        ranks = [0] * len(self._scores)
        for rank, at in enumerate(sorted(places, key=lambda at: turns.get(at, (0, 0)))):
            ranks[at] = rank
        return ranks

    def shuffle(self) -> None:
        """Put equal candidates in random order."""
        random.shuffle(self._ranks)
        self._heap = [(-self._scores[at], self._ranks[at], at) for _, _, at in self._heap]
        heapify(self._heap)

    def leave_out(self, lost: set[ProposalKey]) -> bool:
        """Drop candidates that were lost before; return whether any are left."""
        self._heap = [entry for entry in self._heap if self.proposal(entry[2]).key not in lost]
        heapify(self._heap)
        return bool(self._heap)

    def best(self) -> int | None:
        """Return the best candidate that has room; None where only another search can tell which that is."""
        if self._answer.splits and self._providers.stamp != self._seen:
            # How an amount is split depends on what is left.
            return None
        if self._is_ordered:
            self._score_again()
        while self._heap:
            score, _, at = self._heap[0]
            if -score != self._scores[at]:
                heappop(self._heap)
                continue
            if self._is_ordered and self._is_cut and self._scores[at] < self._worst:
                return None
            if self._has_room(self.draws(at)):
                return at
            heappop(self._heap)
            if self._is_ordered and self._is_cut:
                # Another candidate of the same tree may be the next.
                return None
        return None

    def _score_again(self) -> None:
        """Update the scores of candidates in trees from which something was promised since."""
        if self._providers.stamp == self._seen:
            return
        changed = self._providers.touched_since(self._by_root, self._seen)
        self._seen = self._providers.stamp
        for at in {at for root in changed for at in self._by_root[root]}:
            score = self._answer.present_score(at)
            if score != self._scores[at]:
                self._scores[at] = score
                heappush(self._heap, (-score, self._ranks[at], at))

    def draws(self, at: int) -> list[Draw]:
        """Return what a candidate takes."""
        if at not in self._draws:
            self._draws[at] = self._answer.draws(at)
        return self._draws[at]

    def proposal(self, at: int) -> Proposal:
        """Return a candidate by names."""
        if at not in self._proposals:
            element = self._answer.element(at)
            self._proposals[at] = proposal_of(element, self._search.names, self._query)
        return self._proposals[at]


def proposal_of(element: Element, names: Names, query: CandidateQuery) -> Proposal:
    """Return a candidate of a query by names."""
    classes = names.classes
    resources = {
        uuid: {classes[class_id]: amount for class_id, amount in amounts.items()}
        for uuid, amounts in element.amounts.items()
    }
    asked = queries_of(query)[element.turn]
    return Proposal(resources, settled(asked, element.mappings))


def reason_of(search: SearchResult) -> str:
    """Return why a search found nothing."""
    return "nothing fits" if search.explanation is None else first_obstacle(search.explanation)
