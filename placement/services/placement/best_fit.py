"""Search and claim in one call: a consumer gets the best candidate that is still there.

The search proposes and the claim decides (Claims): when another consumer was faster, the search runs again
and sees the other claim. Only a search that began after the call may answer that nothing fits.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from placement.domain.allocation import ConsumerClaim
from placement.domain.errors import (
    BadRequest,
    CapacityExceeded,
    ConcurrentUpdate,
    Conflict,
    Unavailable,
)
from placement.domain.groups import CandidateQuery, SplitRule
from placement.domain.mappings import Mappings, rebuilt, settled
from placement.explain.sentences import first_obstacle
from placement.search.answer import Element
from placement.services.placement.candidates import Candidates, Search, queries_of
from placement.services.placement.claims import Claims
from placement.services.placement.holdings import Holdings
from placement.services.placement.search_options import SearchOptions
from placement.services.transactions import Attempts, RetryPolicy
from placement.storage.statements.consumers import Consumer

# It is the decision that is repeated here; the transactions of a claim are by themselves.
_POLICY = RetryPolicy(patience_seconds=20.0, longest_pause_seconds=0.005)
# How many candidates are looked at beyond those already lost; clients that lost spread over equal ones.
_AHEAD = 16

Resources = Mapping[str, Mapping[str, int]]


class NoCandidate(Conflict):
    """Nothing fits the query at present; the message says why."""

    code = "no_candidate"


@dataclass(frozen=True, slots=True)
class Applicant:
    """Who claims; project, user and type are those of allocations."""

    consumer_uuid: str
    project_id: str
    user_id: str
    consumer_type: str


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a consumer holds: amounts by provider and class.

    `fresh` unless it held that before the call. `mappings` tells which group got which providers, None where
    the stored amounts leave several possibilities.
    """

    applicant: Applicant
    generation: int
    resources: Resources
    fresh: bool
    mappings: Mappings | None


@dataclass(frozen=True, slots=True)
class _Proposal:
    resources: Resources
    mappings: Mappings

    @property
    def key(self) -> frozenset[tuple[str, str, int]]:
        """Equal for equal proposals."""
        return frozenset(
            (uuid, name, amount) for uuid, held in self.resources.items() for name, amount in held.items()
        )


@dataclass(slots=True)
class _Contest:
    """The attempts of one call: what it lost to other writers, and how long it goes on."""

    attempts: Attempts = field(default_factory=_POLICY.begin)
    lost: set[frozenset[tuple[str, str, int]]] = field(default_factory=set)

    def lose(self, proposal: _Proposal) -> None:
        """Note that another consumer was faster. Raises Unavailable when the time is up."""
        self.lost.add(proposal.key)
        if not self.attempts.may_go_on():
            raise Unavailable(
                "Other consumers kept claiming the same candidates; nothing was claimed, try again later."
            )


class BestFit:
    """Claims the best candidate of a query."""

    def __init__(self, candidates: Candidates, claims: Claims, holdings: Holdings) -> None:
        self._candidates = candidates
        self._claims = claims
        self._holdings = holdings

    def claim(self, applicant: Applicant, query: CandidateQuery, options: SearchOptions) -> Fitted:
        """Let the consumer hold the best candidate.

        Repeating the call returns what the consumer holds, and changes nothing. Raises NoCandidate, Conflict
        if the consumer holds other amounts than the query asks for, BadRequest, Unavailable.
        """
        contest = _Contest()
        while True:
            held = self._held(applicant, query, options)
            if held is not None:
                return held
            try:
                proposal = self._propose(query, options, contest)
            except NoCandidate:
                # A twin of this very call may have taken the last one for the same consumer.
                held = self._held(applicant, query, options)
                if held is None:
                    raise
                return held
            generation = self._won(applicant, proposal)
            if generation is not None:
                return Fitted(applicant, generation, proposal.resources, True, proposal.mappings)
            contest.lose(proposal)

    def _held(self, applicant: Applicant, query: CandidateQuery, options: SearchOptions) -> Fitted | None:
        """What the consumer holds already, None if nothing. Raises Conflict if that is something else."""
        found = self._holdings.of_consumer(applicant.consumer_uuid)
        if found is None:
            return None
        consumer, rows = found
        resources: dict[str, dict[str, int]] = {}
        for row in rows:
            resources.setdefault(row.provider_uuid, {})[row.class_name] = row.amount
        query = self._candidates.asked_of(query, resources)
        # A caller who may ask about one cluster only is not told what the consumer has in another.
        if not _is_asked_for(resources, query) or not self._candidates.are_in_cluster(options, resources):
            raise Conflict(
                f"consumer_uuid: {applicant.consumer_uuid} already holds something else "
                "than the query asks for"
            )
        owner = replace(
            applicant,
            project_id=consumer.project_id,
            user_id=consumer.user_id,
            consumer_type=consumer.consumer_type or applicant.consumer_type,
        )
        return Fitted(owner, consumer.generation, resources, False, rebuilt(query, resources))

    def _propose(self, query: CandidateQuery, options: SearchOptions, contest: _Contest) -> _Proposal:
        """The best candidate not lost yet; after a loss any of the equally good ones."""
        wanted = replace(query, limit=len(contest.lost) + _AHEAD)
        while True:
            search = self._candidates.find(wanted, options)
            elements = list(search.answer.elements())
            proposals = [_proposal(element, search, query) for element in elements]
            if not elements:
                raise NoCandidate(_reason(search))
            left = [
                (element.score, proposal)
                for element, proposal in zip(elements, proposals, strict=True)
                if proposal.key not in contest.lost
            ]
            if left:
                equal = [proposal for score, proposal in left if score == left[0][0]]
                return random.choice(equal) if contest.lost else equal[0]
            # All candidates were lost before, and have become free again meanwhile.
            contest.lost.clear()
            contest.attempts.pause()

    def _won(self, applicant: Applicant, proposal: _Proposal) -> int | None:
        """The generation of the consumer that claimed the proposal; None if another one was faster."""
        try:
            try:
                return self._claim(applicant, proposal, None)
            except ConcurrentUpdate:
                idle = self._holdings.idle(applicant.consumer_uuid)
                if idle is None:
                    raise
                _check_owner(applicant, idle)
                return self._claim(applicant, proposal, idle.generation)
        except (CapacityExceeded, ConcurrentUpdate, BadRequest):
            # Taken, taken by a twin of this call, or deleted with its provider: the next look will tell.
            return None

    def _claim(self, applicant: Applicant, proposal: _Proposal, generation: int | None) -> int:
        """Claim for a consumer of this generation, None for a new one; its next generation."""
        claim = ConsumerClaim(
            consumer_uuid=applicant.consumer_uuid,
            resources=proposal.resources,
            project_id=applicant.project_id,
            user_id=applicant.user_id,
            generation=generation,
            consumer_type=applicant.consumer_type,
        )
        self._claims.replace([claim])
        return 1 if generation is None else generation + 1


def _check_owner(applicant: Applicant, consumer: Consumer) -> None:
    """Raises Conflict if the consumer exists and has another project or user."""
    if (consumer.project_id, consumer.user_id) != (applicant.project_id, applicant.user_id):
        raise Conflict(
            f"consumer_uuid: {applicant.consumer_uuid} exists and belongs to project {consumer.project_id} "
            f"and user {consumer.user_id}"
        )


def _proposal(element: Element, search: Search, query: CandidateQuery) -> _Proposal:
    classes = search.names.classes
    resources = {
        uuid: {classes[class_id]: amount for class_id, amount in amounts.items()}
        for uuid, amounts in element.amounts.items()
    }
    asked = queries_of(query)[element.turn]
    return _Proposal(resources, settled(asked, element.mappings))


def _reason(search: Search) -> str:
    if search.explanation is None:
        return "no candidate: nothing fits"
    return f"no candidate: {first_obstacle(search.explanation)}"


def _totals(resources: Resources) -> Counter[str]:
    total: Counter[str] = Counter()
    for amounts in resources.values():
        total.update(amounts)
    return total


def _is_asked_for(resources: Resources, query: CandidateQuery) -> bool:
    """Whether these are the amounts of the query.

    Of what `isolate` splits each provider is held as a whole and counts as one unit, so that it may be more;
    where nobody else asks for the class, as many providers have to give it.
    """
    held, wanted = _totals(resources), _wanted(query)
    rules: dict[str, set[SplitRule | None]] = {}
    for group in query.groups:
        for name in group.resources:
            rules.setdefault(name, set()).add(group.split_rule if name in group.split else None)
    givers = Counter(name for amounts in resources.values() for name in amounts)
    return held.keys() == wanted.keys() and all(
        held[name] == amount
        if SplitRule.ISOLATE not in rules[name]
        else held[name] >= amount and (len(rules[name]) > 1 or givers[name] == amount)
        for name, amount in wanted.items()
    )


def _wanted(query: CandidateQuery) -> Counter[str]:
    total: Counter[str] = Counter()
    for group in query.groups:
        total.update(group.resources)
    return total
