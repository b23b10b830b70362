"""Search and claim in one call: consumers get the best candidates that are still free.

The search proposes and the claim decides (Claims). If another consumer was faster, the search runs again
and sees the other claim. Only a search that began after the call may answer that nothing fits.

Many consumers are searched for one after another on one forest (CandidateQueue). They claim in one
transaction, which locks consumers and then providers in ascending order. Callers that ask at one time with
one query, each for one consumer, are coalesced: they cost one look, one search and one statement. This never
gives more than there is, nor half of a claim. It decides on all that was committed when the search began.
Coalesced callers either all get something in one statement, or each goes on as if it were alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from placement.allocations.applications import (
    AllLost,
    CandidateQueue,
    ClaimApplication,
    ClaimedCandidate,
    ClaimQuery,
    NoCandidate,
    Outcome,
    Promises,
    Proposal,
    ProposalKey,
    claim_of,
    fitted,
    held_already,
)
from placement.allocations.candidates import CandidateSearch
from placement.allocations.claim_metrics import count_refused
from placement.allocations.claims import Claims, ClaimTerms
from placement.allocations.coalescing import RequestCoalescer
from placement.allocations.consumers_snapshot import ConsumersSnapshot
from placement.allocations.group_rules import Decision, GroupPlacer, MemberHolding, RuleKept
from placement.allocations.holdings import ConsumerHoldings, Holdings
from placement.allocations.world import WorldRequest, imagining
from placement.engine.domain import errors, request_scope
from placement.engine.domain.member_rules import MemberRule
from placement.engine.domain.portions import portions
from placement.engine.domain.request_scope import Initiator, initiator
from placement.metrics.catalog import CLAIMS
from placement.providers.view import View, stored_group
from placement.storage.database import Attempts

_KIND = "consumer"
# The most consumers that claim in one transaction, unless they need all or nothing.
_AT_ONCE = 1000
# This repeats the decision; `Claims` repeats its transactions by itself.
_begin = partial(Attempts, patience_seconds=20.0, longest_pause_seconds=0.005)
# The most callers that one of them serves, and how long a caller waits for its turn.
_MOST_GATHERED = 32
_PATIENCE_SECONDS = 0.05
# If the common work takes longer, each caller works for itself, at the same time as the others.
_COMMON_SECONDS = 1.0

Gathered = Sequence[tuple[ClaimApplication, Initiator]]
Rounds = Callable[[Sequence[ClaimApplication], Sequence[Outcome]], "ClaimResults"]
"""Settles all consumers, of which some were given something before."""


class NotAll(errors.Conflict):
    """A refusal of a whole claim because too many members got nothing; `refused`: the reasons by place."""

    def __init__(self, refused: Mapping[int, errors.PlacementError]) -> None:
        super().__init__(f"nothing was claimed: {len(refused)} of the members fit nowhere")
        self.refused = refused


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """Conditions on members of one call: rules between them, and a minimum of members that get something."""

    rules: tuple[MemberRule, ...] = ()
    minimum: int = 0


@dataclass(frozen=True, slots=True)
class ClaimResults:
    """The outcomes of one call; `proven`: it is certain that no more of the members could get something."""

    outcomes: list[Outcome]
    proven: bool = True
    rules: tuple[RuleKept, ...] = ()


@dataclass(slots=True)
class ClaimAttempt:
    """The attempts of one call: consumers that wait, candidates lost to other writers, and the time limit."""

    applications: Sequence[ClaimApplication]
    options: MemberOptions
    waiting: dict[int, ClaimApplication] = field(init=False)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    # The generations of consumers that exist and hold nothing.
    generations: dict[str, int] = field(default_factory=dict)
    attempts: Attempts = field(default_factory=_begin)
    lost: set[ProposalKey] = field(default_factory=set)
    was_lost: bool = False
    decision: Decision | None = None
    # Of all attempts: a consumer that got nothing in one is not decided on again in the next.
    proven: bool = True
    # The places of consumers that joined their group although they already held what they ask for.
    joined: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.waiting = dict(enumerate(self.applications))

    @property
    def refused(self) -> dict[int, errors.PlacementError]:
        """Return why consumers got nothing, by place."""
        found = sorted(self.outcomes.items())
        return {place: each for place, each in found if isinstance(each, errors.PlacementError)}

    @property
    def has_failed(self) -> bool:
        """Return whether too many consumers got nothing."""
        return len(self.outcomes) + len(self.waiting) - len(self.refused) < self.options.minimum

    def settle(self, outcomes: Mapping[int, Outcome]) -> None:
        """Note the outcomes of some consumers."""
        self.outcomes.update(outcomes)
        for place in outcomes:
            del self.waiting[place]

    def decide(self, placer: GroupPlacer, view: View | None, promised: Mapping[int, Outcome]) -> Decision:
        """Decide about the waiting consumers under the rules, and note that.

        `promised`: what others would hold, though nothing is written.
        """
        holding = [
            MemberHolding(
                self.applications[place].name,
                each.claimant.consumer_uuid,
                each.resources if place in promised else None,
            )
            for place, each in self.outcomes.items()
            if isinstance(each, ClaimedCandidate)
        ]
        self.decision = placer.decide(dict(self.waiting), holding, self.options.rules, view)
        self.proven = self.proven and self.decision.proven
        return self.decision

    def settled(self) -> ClaimResults:
        """Return the outcomes of all consumers. Raises NotAll if too many got nothing."""
        if self.has_failed:
            raise NotAll(self.refused)
        outcomes = [each for _, each in sorted(self.outcomes.items())]
        if self.decision is None:
            return ClaimResults(outcomes)
        return ClaimResults(outcomes, self.proven, self.decision.rules)

    def terms(self) -> ClaimTerms | None:
        """Return the terms on which the waiting consumers may claim; None if there are none."""
        some = [(each.claimant.consumer_uuid, each) for each in self.waiting.values()]
        groups = {uuid: each.group for uuid, each in some if each.group is not None}
        cpus = {uuid: each.dedicated_cpus for uuid, each in some if each.dedicated_cpus}
        snapshot = ConsumersSnapshot() if self.decision is None else self.decision.snapshot
        if not (groups or cpus or snapshot.groups or snapshot.generations):
            return None
        return ClaimTerms(snapshot, groups, cpus)


def in_rounds(applications: Sequence[ClaimApplication], settle: Rounds) -> ClaimResults:
    """Settle all consumers, then once more with the fallbacks of consumers that found nothing.

    Once some consumers hold something, the second round cannot fail.
    """
    first = _first_round(applications, settle)
    held = [] if first is None else first.outcomes
    fallbacks = _fallbacks(applications, held)
    if first is not None and not any(fallbacks):
        return first
    modest = [
        replace(each, claim_query=fallback or each.claim_query, is_new=False)
        for each, fallback in zip(applications, fallbacks, strict=True)
    ]
    try:
        second = settle(modest, held)
    except (NotAll, errors.SearchTimeout, errors.Unavailable):
        if first is None or not any(isinstance(each, ClaimedCandidate) for each in held):
            raise
        # The first round is written, and only this answer can tell the uuids of new consumers.
        return replace(first, proven=False)
    return second if first is None else _joined(first, second)


def _first_round(applications: Sequence[ClaimApplication], settle: Rounds) -> ClaimResults | None:
    """Return the results of the first round; None if too few got something, and some have a fallback."""
    try:
        return settle(applications, ())
    except NotAll:
        if all(each.fallback is None for each in applications):
            raise
        return None


def _fallbacks(applications: Sequence[ClaimApplication], held: Sequence[Outcome]) -> list[ClaimQuery | None]:
    """Return the fallback of each consumer that found nothing; of all if nothing was written."""
    return [
        None if held and not isinstance(held[place], NoCandidate) else each.fallback
        for place, each in enumerate(applications)
    ]


def _joined(first_results: ClaimResults, second_results: ClaimResults) -> ClaimResults:
    """Return the results of both rounds.

    The second round finds what was given first as held, but it is fresh in this call.
    """
    outcomes = [
        given if isinstance(given, ClaimedCandidate) else later
        for given, later in zip(first_results.outcomes, second_results.outcomes, strict=True)
    ]
    return replace(second_results, outcomes=outcomes, proven=first_results.proven and second_results.proven)


class BestFit:
    """A use case that claims the best candidates of queries."""

    for_bound_callers = True

    def __init__(
        self, candidates: CandidateSearch, claims: Claims, holdings: Holdings, placer: GroupPlacer
    ) -> None:
        self._candidates = candidates
        self._claims = claims
        self._holdings = holdings
        self._placer = placer
        self._coalescer: RequestCoalescer[tuple[ClaimApplication, Initiator], Outcome] = RequestCoalescer(
            self._served_together, most=_MOST_GATHERED, patience_seconds=_PATIENCE_SECONDS
        )

    def claim(self, application: ClaimApplication) -> ClaimedCandidate:
        """Let the consumer hold the best candidate.

        Repeating the call returns what the consumer holds, and changes nothing. Raises NoCandidate, Conflict
        if the consumer holds other amounts than the query asks for, BadRequest, Unavailable.
        """

        def alone() -> Outcome:
            return self.claim_each([application])[0]

        claim_query = application.claim_query
        # A claim that says more, as a member of many may, is served by itself.
        is_plain = application == ClaimApplication(application.claimant, claim_query)
        if is_plain:
            # One caller searches for all and sees what it may see itself, so the scope is in the key.
            key = claim_query.query.identity, claim_query.options, request_scope.visible_clusters()
            outcome = self._coalescer.ask(key, (application, initiator()), alone)
        else:
            outcome = alone()
        if isinstance(outcome, errors.PlacementError):
            raise outcome
        return outcome

    def claim_each(self, applications: Sequence[ClaimApplication]) -> list[Outcome]:
        """Let each consumer, one after another, hold the best candidate; return the outcomes.

        Up to 1000 consumers claim in one transaction. Repeating the call changes nothing for consumers that
        got what they asked for. Raises Unavailable, after which repeating it settles everything.
        """
        found: list[Outcome] = []
        applications = _in_groups(applications)
        for some in portions(applications, _AT_ONCE):
            try:
                outcomes = self._settled(some, MemberOptions()).outcomes
            except errors.PlacementError as error:
                if not found:
                    raise
                # What the others got is written, and only this answer can tell the uuids of new consumers.
                return [*found, *[error] * (len(applications) - len(found))]
            some_found = [outcomes[place] for place in range(len(some))]
            _count_repeated(some_found)
            found += some_found
        return found

    def claim_together(
        self, applications: Sequence[ClaimApplication], options: MemberOptions
    ) -> ClaimResults:
        """Claim in one transaction, under rules, for the least number of consumers at least, or for none.

        Consumers that get nothing may get their fallback. Raises NotAll, BadRequest naming the place in a
        rule, Unavailable, SearchTimeout.
        """
        applications, options = _in_groups(applications), _of_groups(options)
        settled = in_rounds(applications, lambda some, _: self._settled(some, options).settled())
        _count_repeated(settled.outcomes)
        return settled

    def preview(
        self, applications: Sequence[ClaimApplication], options: MemberOptions, world: WorldRequest
    ) -> ClaimResults:
        """Return the results of `claim_together` in such a world; write nothing. Raises as it does."""
        options = _of_groups(options)
        with imagining(world):
            view = self._placer.view(world)

            def previewed(applications: Sequence[ClaimApplication], given: Sequence[Outcome]) -> ClaimResults:
                attempt = ClaimAttempt(applications, options)
                self._look(attempt)
                promised = {
                    place: each
                    for place, each in enumerate(given)
                    if isinstance(each, ClaimedCandidate) and place in attempt.waiting
                }
                attempt.settle(promised)
                decision = attempt.decide(self._placer, view, promised)
                for place, proposal in decision.proposals.items():
                    claimant, resources = applications[place].claimant, proposal.resources
                    claimed = ClaimedCandidate(claimant, 0, resources, False, proposal.mappings)
                    attempt.settle({place: claimed})
                attempt.settle(decision.refused)
                return attempt.settled()

            return in_rounds(_in_groups(applications), previewed)

    # -- callers that are coalesced -----------------------------------------------------------------

    def _served_together(self, asked: Gathered) -> Sequence[Outcome | None]:
        """Return the outcome of each caller, None where it is in doubt.

        They see all that was committed when the last of them asked, for the search begins after that.
        """
        try:
            with request_scope.within(_COMMON_SECONDS):
                view = self._candidates.view()
                promises = Promises(view, many=True)
                queue = CandidateQueue(self._candidates, promises, asked[0][0].claim_query, len(asked), set())
                proposals: list[Proposal] = []
                refused: Sequence[Outcome | None] = ()
                try:
                    for _ in asked:
                        proposals.append(queue.take())
                except NoCandidate as refusal:
                    others = [each.claimant.consumer_uuid for each, _ in asked[len(proposals) :]]
                    # A consumer that exists may hold it already.
                    known = self._holdings.of_consumers(others)
                    refused = [None if uuid in known else NoCandidate(str(refusal)) for uuid in others]
                served = [(each, actor) for (each, actor), _ in zip(asked, proposals, strict=False)]
                claims = [
                    claim_of(each, proposal, {})
                    for (each, _), proposal in zip(served, proposals, strict=True)
                ]
                if claims and not self._claims.put_new(claims, [actor for _, actor in served]):
                    return [None] * len(asked)
        except errors.PlacementError:
            # Each caller meets the error itself, or finds what was written although the outcome was unknown.
            return [None] * len(asked)
        given = [
            fitted(each.claimant, claim, proposal)
            for (each, _), claim, proposal in zip(served, claims, proposals, strict=True)
        ]
        return [*given, *refused]

    # -- attempts -----------------------------------------------------------------------------------

    def _settled(self, applications: Sequence[ClaimApplication], options: MemberOptions) -> ClaimAttempt:
        """Return the attempt with all outcomes, or with some of them if too many consumers got nothing."""
        attempt = ClaimAttempt(applications, options)
        if options.rules and not all(each.is_new for each in applications):
            # Consumers that hold something already count in the rules.
            self._look(attempt)
        while attempt.waiting and not attempt.has_failed:
            self._join(attempt)
            try:
                proposals, refused = self._propose(attempt)
            except AllLost:
                attempt.lost.clear()
                attempt.attempts.pause()
                continue
            if refused:
                # A repetition of this call may hold what seems to be missing, even for the same consumer.
                if self._look(attempt):
                    continue
                attempt.settle(refused)
            if attempt.waiting and not attempt.has_failed:
                self._compete(attempt, proposals)
        if not attempt.has_failed:
            self._join(attempt)
            if options.rules and attempt.decision is None:
                # All hold what they ask for, but the answer still has to tell whether the rules are kept.
                attempt.decide(self._placer, None, {})
        return attempt

    def _join(self, attempt: ClaimAttempt) -> None:
        """Put consumers that already hold what they ask for into their groups, each once."""
        groups: dict[str, str] = {}
        for place, each in attempt.outcomes.items():
            group = attempt.applications[place].group
            is_held = isinstance(each, ClaimedCandidate) and not each.fresh
            if group is not None and is_held and place not in attempt.joined:
                attempt.joined.add(place)
                groups[attempt.applications[place].claimant.consumer_uuid] = group
        if groups:
            self._claims.join_groups(groups)

    def _propose(self, attempt: ClaimAttempt) -> tuple[dict[int, Proposal], dict[int, errors.PlacementError]]:
        """Return proposals from the newest forest for waiting consumers, and refusals of the others."""
        if attempt.options.rules:
            decision = attempt.decide(self._placer, None, {})
            return decision.proposals, decision.refused
        claim_queries = Counter(application.claim_query for application in attempt.waiting.values())
        promises = Promises(self._candidates.view(), many=len(attempt.waiting) > 1)
        queues = {
            claim_query: CandidateQueue(self._candidates, promises, claim_query, count, attempt.lost)
            for claim_query, count in claim_queries.items()
        }
        proposals: dict[int, Proposal] = {}
        refused: dict[int, errors.PlacementError] = {}
        for place, application in attempt.waiting.items():
            try:
                queue = queues[application.claim_query]
                proposals[place] = queue.take(shuffled=attempt.was_lost)
            except (NoCandidate, errors.BadRequest, errors.SearchTimeout) as error:
                refused[place] = error
        return proposals, refused

    def _compete(self, attempt: ClaimAttempt, proposals: Mapping[int, Proposal]) -> None:
        """Claim the proposals for the waiting consumers, all or nothing. Raises Unavailable, Conflict."""
        wanted = {place: (each, proposals[place]) for place, each in attempt.waiting.items()}
        under_rules = bool(attempt.options.rules)
        claims = {
            place: claim_of(each, proposal, attempt.generations, under_rules=under_rules)
            for place, (each, proposal) in wanted.items()
        }
        try:
            self._claims.put(list(claims.values()), terms=attempt.terms(), is_counted=False)
        except (errors.CapacityExceeded, errors.ConcurrentUpdate, errors.BadRequest) as error:
            # Taken by another call, by a repetition of this one, or deleted: the next look will tell.
            is_settled = False
            try:
                attempt.was_lost = True
                if not attempt.attempts.may_go_on():
                    raise errors.Unavailable(
                        "Other consumers kept claiming the same candidates; nothing was claimed, "
                        "try again later."
                    )
                if len(wanted) > 1:
                    attempt.attempts.pause()
                else:
                    attempt.lost.update(proposal.key for _, proposal in wanted.values())
                is_settled = self._look(attempt)
            finally:
                # A consumer that holds it already has lost nothing.
                if not is_settled:
                    count_refused(_KIND, error)
        except errors.PlacementError as error:
            # A Conflict means that some consumer may not claim.
            if not isinstance(error, errors.Conflict) or not self._look(attempt):
                count_refused(_KIND, error)
                raise
        else:
            CLAIMS.labels(_KIND, "won").inc(len(wanted))
            attempt.settle(
                {
                    place: fitted(each.claimant, claims[place], proposal)
                    for place, (each, proposal) in wanted.items()
                }
            )

    def _look(self, attempt: ClaimAttempt) -> bool:
        """Settle waiting consumers that hold something already or may never claim; return whether any do."""
        applications = attempt.waiting
        known = self._holdings.of_consumers(
            [application.claimant.consumer_uuid for application in applications.values()]
        )
        attempt.generations = {
            uuid: held.consumer.generation for uuid, held in known.items() if not held.resources
        }
        asking: dict[ClaimQuery, dict[int, ConsumerHoldings]] = {}
        for place, application in applications.items():
            held = known.get(application.claimant.consumer_uuid)
            if held is not None:
                asking.setdefault(application.claim_query, {})[place] = held
        settled: dict[int, Outcome] = {}
        for claim_query, holders in asking.items():
            inside = self._candidates.inside_cluster(
                claim_query.options, {uuid for held in holders.values() for uuid in held.resources}
            )
            for place, held in holders.items():
                application = applications[place]
                outcome = held_already(self._candidates, application, held, inside)
                if isinstance(outcome, errors.Conflict) and application.fallback is not None:
                    modest = replace(application, claim_query=application.fallback)
                    instead = held_already(self._candidates, modest, held, inside)
                    outcome = instead if isinstance(instead, ClaimedCandidate) else outcome
                if outcome is not None:
                    settled[place] = outcome
        attempt.settle(settled)
        return bool(settled)


def _in_groups(applications: Sequence[ClaimApplication]) -> Sequence[ClaimApplication]:
    """Return the applications with the names under which their groups are stored."""
    return [
        each if each.group is None else replace(each, group=stored_group(each.group)) for each in applications
    ]


def _of_groups(options: MemberOptions) -> MemberOptions:
    """Return the conditions with the names under which the groups in rules are stored."""
    rules = (
        replace(rule, groups=tuple(stored_group(name) for name in rule.groups)) for rule in options.rules
    )
    return replace(options, rules=tuple(rules))


def _count_repeated(outcomes: Sequence[Outcome]) -> None:
    """Count the consumers that held what they asked for before the call."""
    held = sum(isinstance(each, ClaimedCandidate) and not each.fresh for each in outcomes)
    if held:
        CLAIMS.labels(_KIND, "repeated").inc(held)
