"""Applications: the claims of consumers by query, their candidates, and their present holdings.

Each consumer of one call sees what consumers before it were promised. Nothing is written here. What was
promised is taken in a forest of the call's own, which began as the newest one and which no other search sees.
The claim decides whether it is really there (Claims). So a promise may turn out to be void, but no consumer
gets more than there is. A refusal means that there was no room when the call began, or later.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from heapq import heapify, heappop, heappush

from placement.allocations.candidates import CandidateSearch, SearchOptions, SearchResult, queries_of
from placement.allocations.holdings import ConsumerHoldings
from placement.allocations.statements.consumers import pod_conflict
from placement.engine.domain import stored_requests
from placement.engine.domain.claims import AmountsByProvider, ConsumerClaim
from placement.engine.domain.errors import BODY, Conflict, PlacementError, RequestPlace
from placement.engine.domain.group_mappings import GroupMappings, rebuilt, settled
from placement.engine.domain.groups import CandidateQuery, SplitRule
from placement.engine.forest.inventories import Draw
from placement.engine.forest.simulation import SimulatedForest
from placement.engine.search.answer import Answer, Element
from placement.engine.search.ranking import ScoreCache
from placement.providers import view as providers_view
from placement.providers.statements.names import Names

# How many candidates are looked at beyond the needed ones; clients that lost spread over equal ones.
_AHEAD = 16
_MOST_AT_ONCE = 1000

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
        """Return the query as it is stored with consumers that get what they ask for."""
        return stored_requests.written(self.query, self.options.cluster_aggregate)

    @cached_property
    def kept_under_rules(self) -> str:
        """Return the query as it is stored where rules between consumers were met as well."""
        return stored_requests.written(self.query, self.options.cluster_aggregate, under_rules=True)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal: the resources that a consumer would hold, and the providers of each group."""

    resources: AmountsByProvider
    mappings: GroupMappings

    @property
    def key(self) -> ProposalKey:
        """Return a key that is equal for proposals of equal amounts."""
        return frozenset(
            (uuid, name, amount) for uuid, held in self.resources.items() for name, amount in held.items()
        )


@dataclass(frozen=True, slots=True)
class Claimant:
    """A consumer that claims, with its project, user and type as in allocations."""

    consumer_uuid: str
    project_id: str
    user_id: str
    consumer_type: str


@dataclass(frozen=True, slots=True)
class ClaimApplication:
    """A claimant and its query, with the details of its claim.

    `name` is the claimant's name in rules, `group` the group that it joins. `is_new`: its uuid was made for
    this call, so it holds nothing. `fallback`: the query that counts where the first one finds nothing.
    `dedicated_cpus`: the dedicated CPUs of the guest that its flavor describes, None without a flavor.
    `place`: its place in what the caller sent, `is_listed` if that is its uuid.
    """

    claimant: Claimant
    claim_query: ClaimQuery
    name: str | None = None
    group: str | None = None
    is_new: bool = False
    fallback: ClaimQuery | None = None
    dedicated_cpus: str | None = None
    place: RequestPlace = BODY
    is_listed: bool = False


@dataclass(frozen=True, slots=True)
class ClaimedCandidate:
    """A success: the resources of a consumer, in amounts by provider and class.

    `fresh`: it did not hold that before the call. `mappings`: which group got which providers, None where
    the stored amounts leave several possibilities.
    """

    claimant: Claimant
    generation: int
    resources: AmountsByProvider
    fresh: bool
    mappings: GroupMappings | None


Outcome = ClaimedCandidate | PlacementError
"""What a consumer holds, or why it got nothing."""


def claim_of(
    application: ClaimApplication,
    proposal: Proposal,
    generations: Mapping[str, int],
    *,
    under_rules: bool = False,
) -> ConsumerClaim:
    """Return the claim of a consumer that is new, or that holds nothing and has one of these generations."""
    claimant = application.claimant
    return ConsumerClaim(
        consumer_uuid=claimant.consumer_uuid,
        resources=proposal.resources,
        project_id=claimant.project_id,
        user_id=claimant.user_id,
        generation=generations.get(claimant.consumer_uuid),
        consumer_type=claimant.consumer_type,
        request=application.claim_query.kept_under_rules if under_rules else application.claim_query.kept,
    )


def fitted(claimant: Claimant, claim: ConsumerClaim, proposal: Proposal) -> ClaimedCandidate:
    """Return the resources of a consumer once its claim for a proposal is written."""
    generation = claim.generation + 1 if isinstance(claim.generation, int) else 1
    return ClaimedCandidate(claimant, generation, proposal.resources, True, proposal.mappings)


def held_already(
    candidates: CandidateSearch,
    application: ClaimApplication,
    holdings: ConsumerHoldings,
    inside: Collection[str],
) -> Outcome | None:
    """Return the resources of an existing consumer, or why it may not claim; None if it may.

    `inside`: the providers that may be shown to a caller that asks about one cluster.
    """
    claimant, resources, consumer = application.claimant, holdings.resources, holdings.consumer
    if not resources:
        conflict: Conflict | None = None
        if holdings.is_pod:
            conflict = pod_conflict(consumer.uuid)
        elif (consumer.project_id, consumer.user_id) != (claimant.project_id, claimant.user_id):
            conflict = Conflict(
                f"{claimant.consumer_uuid} exists and belongs to project "
                f"{consumer.project_id} and user {consumer.user_id}",
                place=BODY / "consumer_uuid",
            )
        return None if conflict is None else providers_view.refusal(claimant.consumer_uuid, conflict)
    query = candidates.asked_of(application.claim_query.query, resources)
    # A caller that may ask about one cluster only must not learn what the consumer has in another.
    if not _is_asked_for(resources, query) or not resources.keys() <= set(inside):
        return providers_view.taken(claimant.consumer_uuid)
    owner = replace(
        claimant,
        project_id=consumer.project_id,
        user_id=consumer.user_id,
        consumer_type=consumer.consumer_type or claimant.consumer_type,
    )
    return ClaimedCandidate(owner, consumer.generation, resources, False, rebuilt(query, resources))


def _is_asked_for(resources: AmountsByProvider, query: CandidateQuery) -> bool:
    """Return whether these are the amounts of the query.

    Of a class that `isolate` splits, each provider is held as a whole and counts as one unit, so more may be
    held. If no group asks for the class otherwise, the number of its providers must equal the amount.
    """
    held, wanted = Counter[str](), Counter[str]()
    for amounts in resources.values():
        held.update(amounts)
    rules: dict[str, set[SplitRule | None]] = {}
    for group in query.groups:
        wanted.update(group.resources)
        for name in group.resources:
            rules.setdefault(name, set()).add(group.split_rule if name in group.split else None)
    givers = Counter(name for amounts in resources.values() for name in amounts)
    return held.keys() == wanted.keys() and all(
        held[name] == amount
        if SplitRule.ISOLATE not in rules[name]
        else held[name] >= amount and (len(rules[name]) > 1 or givers[name] == amount)
        for name, amount in wanted.items()
    )


# Candidates for many consumers of one call.


class Promises:
    """The view that promises of one call are made on; `forest` is its own, None where one is enough."""

    def __init__(self, view: providers_view.View, *, many: bool) -> None:
        """Take a view, for one consumer or for many."""
        self.forest = SimulatedForest(view.forest) if many else None
        self.view = view if self.forest is None else replace(view, forest=self.forest)

    def make(self, draws: Collection[Draw]) -> None:
        """Take the draws from the forest, if another promise may follow."""
        if self.forest is None:
            return
        if not self.forest.mark():
            # Scores of what is only promised are kept apart.
            self.view = replace(self.view, score_cache=ScoreCache())
        self.forest.take(draws)


class CandidateQueue:
    """The candidates for one query, best first, each as often as it has room."""

    def __init__(
        self,
        candidates: CandidateSearch,
        promises: Promises,
        claim_query: ClaimQuery,
        count: int,
        lost: set[ProposalKey],
    ) -> None:
        """Set up a list for `count` consumers, without the candidates in `lost`."""
        self._candidates = candidates
        self._promises = promises
        self._claim_query = claim_query
        self._most = len(lost) + min(max(count, 1) - 1 + _AHEAD, _MOST_AT_ONCE)
        self._lost = lost
        # Why nothing is left; each consumer gets an exception of its own, which keeps its frames only.
        self._reason: str | None = None
        self._answer: Answer | None = None

    def take(self, *, shuffled: bool = False) -> Proposal:
        """Return the best candidate that is left, and promise it.

        `shuffled`: any of the best. Raises NoCandidate, AllLost, and as CandidateSearch.find does.
        """
        if self._reason is not None:
            raise NoCandidate(self._reason)
        while True:
            at = None if self._answer is None else self._best(self._answer)
            if at is not None:
                self._promises.make(self._draws(at))
                return self._proposal(at)
            query = replace(self._claim_query.query, limit=self._most)
            search = self._candidates.find_in(self._promises.view, query, self._claim_query.options)
            if not len(search.answer):
                self._reason = f"no candidate: {self._candidates.reason_of(search)}"
                raise NoCandidate(self._reason)
            self._begin(search, shuffled=shuffled)
            if self._lost and not self._heap:
                self._answer = None
                raise AllLost

    def _begin(self, search: SearchResult, *, shuffled: bool) -> None:
        """Begin with the result of a search; scores follow what is promised since.

        `shuffled`: equal candidates come in random order.
        """
        answer, query = search.answer, self._claim_query.query
        self._answer = answer
        self._draws: Callable[[int], list[Draw]] = cache(answer.draws)
        self._proposal: Callable[[int], Proposal] = cache(
            lambda at: proposal_of(answer.element(at), search.names, query)
        )
        self._scores = answer.present_scores().tolist()
        self._is_ordered = answer.is_ordered
        self._is_cut = len(self._scores) >= self._most
        self._worst = self._scores[-1]
        self._forest = self._promises.view.forest
        providers, places = self._forest.providers, range(len(self._scores))
        self._seen = providers.stamp
        self._by_root: dict[int, list[int]] = defaultdict(list)
        # The ranks of the candidates among equals, as a search without order ranks them.
        self._ranks = list(places)
        if self._is_ordered:
            for at in places:
                for root in {int(providers.root[draw.row]) for draw in self._draws(at)}:
                    self._by_root[root].append(at)
            turns = {
                at: (turn, int(providers.id[root]))
                for root, members in self._by_root.items()
                for turn, at in enumerate(members)
            }
            for rank, at in enumerate(sorted(places, key=lambda at: turns.get(at, (0, 0)))):
                self._ranks[at] = rank
        if shuffled:
            random.shuffle(self._ranks)
        # Best first; an entry with a score other than the present one does not count.
        self._heap = [
            (-score, self._ranks[at], at)
            for at, score in enumerate(self._scores)
            if not self._lost or self._proposal(at).key not in self._lost
        ]
        heapify(self._heap)

    def _best(self, answer: Answer) -> int | None:
        """Return the best candidate that has room; None where only another search can tell which that is."""
        providers = self._forest.providers
        if providers.stamp != self._seen:
            if answer.splits:
                # How an amount is split depends on what is left.
                return None
            if self._is_ordered:
                self._score_again(answer)
        while self._heap:
            score, _, at = self._heap[0]
            if -score != self._scores[at]:
                heappop(self._heap)
                continue
            if self._is_ordered and self._is_cut and self._scores[at] < self._worst:
                return None
            if self._forest.has_room(self._draws(at)):
                return at
            heappop(self._heap)
            if self._is_ordered and self._is_cut:
                # Another candidate of the same tree may be the next.
                return None
        return None

    def _score_again(self, answer: Answer) -> None:
        """Score the candidates in trees from which something was promised since the last time."""
        providers = self._forest.providers
        changed = providers.touched_since(self._by_root, self._seen)
        self._seen = providers.stamp
        for at in {at for root in changed for at in self._by_root[root]}:
            score = answer.present_score(at)
            if score != self._scores[at]:
                self._scores[at] = score
                heappush(self._heap, (-score, self._ranks[at], at))


def proposal_of(element: Element, names: Names, query: CandidateQuery) -> Proposal:
    """Return a candidate of a query by names."""
    classes = names.classes
    resources = {
        uuid: {classes[class_id]: amount for class_id, amount in amounts.items()}
        for uuid, amounts in element.amounts.items()
    }
    asked = queries_of(query)[element.turn]
    return Proposal(resources, settled(asked, element.mappings))
