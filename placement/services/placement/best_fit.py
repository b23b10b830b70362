"""Search and claim in one call: consumers get the best candidates that are still there.

The search proposes and the claim decides (Claims): when another consumer was faster, the search runs again
and sees the other claim. Only a search that began after the call may answer that nothing fits.

Many consumers are searched for one after another on one forest (Shortlist) and claim in one transaction,
which locks consumers and then providers in ascending order. However fast that is, it cannot give more than
there is, nor leave half of a claim, nor decide on less than what was committed when the search began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from placement.domain.allocation import ConsumerClaim
from placement.domain.errors import (
    BadRequest,
    CapacityExceeded,
    ConcurrentUpdate,
    Conflict,
    PlacementError,
    SearchTimeout,
    Unavailable,
)
from placement.domain.groups import CandidateQuery, SplitRule
from placement.domain.mappings import Mappings, rebuilt
from placement.domain.portions import portions
from placement.services.placement.candidates import Candidates
from placement.services.placement.claims import Claims
from placement.services.placement.holdings import ConsumerHoldings, Holdings
from placement.services.placement.shortlists import (
    AllLost,
    NoCandidate,
    PromisedForest,
    Proposal,
    ProposalKey,
    Resources,
    Shortlist,
    Wish,
)
from placement.services.transactions import Attempts, RetryPolicy
from placement.storage.statements.consumers import pod_conflict

# It is the decision that is repeated here; the transactions of a claim are by themselves.
_POLICY = RetryPolicy(patience_seconds=20.0, longest_pause_seconds=0.005)
# So many consumers that need not have all or nothing claim in one transaction.
_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Applicant:
    """Who claims; project, user and type are those of allocations."""

    consumer_uuid: str
    project_id: str
    user_id: str
    consumer_type: str


@dataclass(frozen=True, slots=True)
class Application:
    """Who claims what."""

    applicant: Applicant
    wish: Wish


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


Outcome = Fitted | PlacementError
"""What a consumer holds, or why it got nothing."""


class NotAll(Conflict):
    """Some members of a claim for all or none got nothing, so nobody did; `refused`: why, by place."""

    def __init__(self, refused: Mapping[int, PlacementError]) -> None:
        super().__init__(f"nothing was claimed: {len(refused)} of the members could have nothing")
        self.refused = refused


@dataclass(slots=True)
class _Contest:
    """The attempts of one call: who still waits, what was lost to other writers, and how long it goes on."""

    waiting: dict[int, Application]
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    # The generations of consumers that exist and hold nothing.
    generations: dict[str, int] = field(default_factory=dict)
    attempts: Attempts = field(default_factory=_POLICY.begin)
    lost: set[ProposalKey] = field(default_factory=set)
    was_lost: bool = False

    @property
    def has_refused(self) -> bool:
        """Whether somebody got nothing."""
        return any(isinstance(each, PlacementError) for each in self.outcomes.values())

    def settle(self, outcomes: Mapping[int, Outcome]) -> None:
        """Note what became of some."""
        self.outcomes.update(outcomes)
        for place in outcomes:
            del self.waiting[place]

    def lose(self, proposals: Collection[Proposal]) -> None:
        """Note that another consumer was faster. Raises Unavailable when the time is up."""
        self.was_lost = True
        if len(proposals) == 1:
            self.lost.update(proposal.key for proposal in proposals)
        if not self.attempts.may_go_on():
            raise Unavailable(
                "Other consumers kept claiming the same candidates; nothing was claimed, try again later."
            )
        if len(proposals) > 1:
            self.attempts.pause()


class BestFit:
    """Claims the best candidates of queries."""

    def __init__(self, candidates: Candidates, claims: Claims, holdings: Holdings) -> None:
        self._candidates = candidates
        self._claims = claims
        self._holdings = holdings

    def claim(self, application: Application) -> Fitted:
        """Let the consumer hold the best candidate.

        Repeating the call returns what the consumer holds, and changes nothing. Raises NoCandidate, Conflict
        if the consumer holds other amounts than the query asks for, BadRequest, Unavailable.
        """
        (outcome,) = self.claim_each([application])
        if isinstance(outcome, PlacementError):
            raise outcome
        return outcome

    def claim_each(self, applications: Sequence[Application]) -> list[Outcome]:
        """Let each consumer, one after another, hold the best candidate; what became of each.

        Some hundreds at a time claim in one transaction. Repeating the call changes nothing for those that
        got what they asked for. Raises Unavailable, after which repeating it settles everything.
        """
        found: list[Outcome] = []
        for some in portions(applications, _AT_ONCE):
            outcomes = self._settled(some, all_or_none=False)
            found += [outcomes[place] for place in range(len(some))]
        return found

    def claim_all(self, applications: Sequence[Application]) -> list[Fitted]:
        """The same in one transaction, for all consumers or for none. Raises NotAll, Unavailable."""
        outcomes = self._settled(applications, all_or_none=True)
        refused = {place: each for place, each in outcomes.items() if isinstance(each, PlacementError)}
        if refused:
            raise NotAll(dict(sorted(refused.items())))
        return [each for _, each in sorted(outcomes.items()) if isinstance(each, Fitted)]

    def _settled(self, applications: Sequence[Application], *, all_or_none: bool) -> dict[int, Outcome]:
        """What became of each, by place; with `all_or_none` of some only, if one of them got nothing."""
        contest = _Contest(dict(enumerate(applications)))
        while contest.waiting and not (all_or_none and contest.has_refused):
            try:
                proposals, refused = self._propose(contest)
            except AllLost:
                contest.lost.clear()
                contest.attempts.pause()
                continue
            if refused:
                # Twins of this very call may hold what seems to be missing, also for the same consumer.
                if self._look(contest):
                    continue
                contest.settle(refused)
            if contest.waiting and not (all_or_none and refused):
                self._compete(contest, proposals)
        return contest.outcomes

    def _propose(self, contest: _Contest) -> tuple[dict[int, Proposal], dict[int, PlacementError]]:
        """What those who wait would get of the newest forest, and why others would get nothing."""
        wishes = Counter(application.wish for application in contest.waiting.values())
        many = len(contest.waiting) > 1
        forest = PromisedForest.of(self._candidates.view(), many=many)
        shortlists = {
            wish: Shortlist(self._candidates, forest, wish, count, contest.lost)
            for wish, count in wishes.items()
        }
        proposals: dict[int, Proposal] = {}
        refused: dict[int, PlacementError] = {}
        for place, application in contest.waiting.items():
            try:
                shortlist = shortlists[application.wish]
                proposals[place] = shortlist.take(last=not many, shuffled=contest.was_lost)
            except (NoCandidate, BadRequest, SearchTimeout) as error:
                refused[place] = error
        return proposals, refused

    def _compete(self, contest: _Contest, proposals: Mapping[int, Proposal]) -> None:
        """Claim what was proposed to those who wait, all of it or nothing. Raises Unavailable, Conflict."""
        wanted = {place: proposals[place] for place in contest.waiting}
        claims = {
            place: _claim(contest.waiting[place], proposal, contest.generations)
            for place, proposal in wanted.items()
        }
        try:
            self._claims.replace(list(claims.values()))
        except (CapacityExceeded, ConcurrentUpdate, BadRequest):
            # Taken, taken by a twin of this call, or deleted with its provider: the next look will tell.
            contest.lose(wanted.values())
            self._look(contest)
        except Conflict:
            # Some consumer is not one that may claim.
            if not self._look(contest):
                raise
        else:
            contest.settle(
                {
                    place: _fitted(contest.waiting[place].applicant, claims[place], proposal)
                    for place, proposal in wanted.items()
                }
            )

    def _look(self, contest: _Contest) -> bool:
        """Settle those who wait and hold something already, or never may; whether there are any."""
        applications = contest.waiting
        known = self._holdings.of_consumers(
            [application.applicant.consumer_uuid for application in applications.values()]
        )
        contest.generations = {
            uuid: held.consumer.generation for uuid, held in known.items() if not held.resources
        }
        asking: dict[Wish, dict[int, ConsumerHoldings]] = {}
        for place, application in applications.items():
            held = known.get(application.applicant.consumer_uuid)
            if held is not None:
                asking.setdefault(application.wish, {})[place] = held
        settled: dict[int, Outcome] = {}
        for wish, holders in asking.items():
            inside = self._candidates.inside_cluster(
                wish.options, {uuid for held in holders.values() for uuid in held.resources}
            )
            for place, held in holders.items():
                outcome = self._held(applications[place], held, inside)
                if outcome is not None:
                    settled[place] = outcome
        contest.settle(settled)
        return bool(settled)

    def _held(
        self, application: Application, held: ConsumerHoldings, inside: Collection[str]
    ) -> Outcome | None:
        """What an existing consumer holds, or why it may not claim; None if it may."""
        applicant, resources = application.applicant, held.resources
        if not resources:
            return _refusal(applicant, held)
        query = self._candidates.asked_of(application.wish.query, resources)
        # A caller who may ask about one cluster only is not told what the consumer has in another.
        if not _is_asked_for(resources, query) or not resources.keys() <= set(inside):
            return Conflict(
                f"consumer_uuid: {applicant.consumer_uuid} already holds something else "
                "than the query asks for"
            )
        consumer = held.consumer
        owner = replace(
            applicant,
            project_id=consumer.project_id,
            user_id=consumer.user_id,
            consumer_type=consumer.consumer_type or applicant.consumer_type,
        )
        return Fitted(owner, consumer.generation, resources, False, rebuilt(query, resources))


def _claim(application: Application, proposal: Proposal, generations: Mapping[str, int]) -> ConsumerClaim:
    """The claim of a consumer that is new, or holds nothing and has one of these generations."""
    applicant = application.applicant
    return ConsumerClaim(
        consumer_uuid=applicant.consumer_uuid,
        resources=proposal.resources,
        project_id=applicant.project_id,
        user_id=applicant.user_id,
        generation=generations.get(applicant.consumer_uuid),
        consumer_type=applicant.consumer_type,
        request=application.wish.kept,
    )


def _fitted(applicant: Applicant, claim: ConsumerClaim, proposal: Proposal) -> Fitted:
    generation = claim.generation + 1 if isinstance(claim.generation, int) else 1
    return Fitted(applicant, generation, proposal.resources, True, proposal.mappings)


def _refusal(applicant: Applicant, idle: ConsumerHoldings) -> Conflict | None:
    """Why a consumer that holds nothing may not claim: it is a pod, or has another project or user."""
    consumer = idle.consumer
    if idle.is_pod:
        return pod_conflict(consumer.uuid)
    if (consumer.project_id, consumer.user_id) == (applicant.project_id, applicant.user_id):
        return None
    return Conflict(
        f"consumer_uuid: {applicant.consumer_uuid} exists and belongs to project {consumer.project_id} "
        f"and user {consumer.user_id}"
    )


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
