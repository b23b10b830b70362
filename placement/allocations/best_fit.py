"""Search and claim in one call: consumers get the best candidates that are still free.

The search proposes and the claim decides (Claims). If another consumer was faster, the search runs again
and sees the other claim. Only a search that began after the call may answer that nothing fits.

Many consumers are searched for one after another on one forest (CandidateQueue). They claim in one
transaction, which locks consumers and then providers in ascending order. Callers that ask at one time with
one query, each for one consumer, are gathered: they cost one look, one search and one statement. This never
gives more than there is, nor half of a claim. It decides on all that was committed when the search began.
Gathered callers either all get something in one statement, or each goes on as if it were alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest

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
from placement.allocations.claims import Claims, Terms, count_refused, count_repeated, count_won
from placement.allocations.coalescing import RequestCoalescer
from placement.allocations.group_rules import (
    ConsumersSnapshot,
    Decision,
    GroupPlacer,
    MemberHolding,
    RuleKept,
)
from placement.allocations.holdings import ConsumerHoldings, Holdings
from placement.allocations.world import WorldRequest, imagining
from placement.engine.domain import errors, request_scope
from placement.engine.domain.groups import MemberRule
from placement.engine.domain.identifiers import portions
from placement.engine.domain.request_scope import Initiator, initiator
from placement.providers import view as scoping
from placement.providers.view import View
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
        super().__init__(f"nothing was claimed: {len(refused)} of the members could have nothing")
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
    together: MemberOptions
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
        return len(self.outcomes) + len(self.waiting) - len(self.refused) < self.together.minimum

    def settle(self, outcomes: Mapping[int, Outcome]) -> None:
        """Note the outcomes of some consumers."""
        self.outcomes.update(outcomes)
        for place in outcomes:
            del self.waiting[place]

    def decide(self, ruled: GroupPlacer, view: View | None, promised: Mapping[int, Outcome]) -> Decision:
        """Decide about the waiting consumers under the rules, and note that.

        `promised`: what others would hold, though nothing is written.
        """
        holding = [
            MemberHolding(
                self.applications[place].name,
                each.applicant.consumer_uuid,
                each.resources if place in promised else None,
            )
            for place, each in self.outcomes.items()
            if isinstance(each, ClaimedCandidate)
        ]
        self.decision = ruled.decide(dict(self.waiting), holding, self.together.rules, view)
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

    def terms(self) -> Terms | None:
        """Return the terms on which the waiting consumers may claim; None if there are none."""
        some = [(each.applicant.consumer_uuid, each) for each in self.waiting.values()]
        groups = {uuid: each.group for uuid, each in some if each.group is not None}
        cpus = {uuid: each.dedicated_cpus for uuid, each in some if each.dedicated_cpus}
        standing = ConsumersSnapshot() if self.decision is None else self.decision.standing
        if not (groups or cpus or standing.groups or standing.generations):
            return None
        return Terms(standing, groups, cpus)


def in_rounds(applications: Sequence[ClaimApplication], settle: Rounds) -> ClaimResults:
    """Settle all consumers, then once more with the fallbacks of consumers that found nothing.

    Once some consumers hold something, the second round cannot fail.
    """
    try:
        settled = settle(applications, ())
    except NotAll:
        if all(each.fallback is None for each in applications):
            raise
        settled = None
    held = [] if settled is None else settled.outcomes
    fallbacks = [
        None if held and not isinstance(held[place], NoCandidate) else each.fallback
        for place, each in enumerate(applications)
    ]
    if settled is not None and not any(fallbacks):
        return settled
    modest = [
        replace(each, wish=fallback or each.wish, is_new=False)
        for each, fallback in zip(applications, fallbacks, strict=True)
    ]
    try:
        again = settle(modest, held)
    except (NotAll, errors.SearchTimeout, errors.Unavailable):
        if settled is None or not any(isinstance(each, ClaimedCandidate) for each in held):
            raise
        # The first round is written, and only this answer can tell the uuids of new consumers.
        return replace(settled, proven=False)
    # The second round finds what was given first as held, but it is fresh in this call.
    outcomes = [
        first if isinstance(first, ClaimedCandidate) else second
        for first, second in zip_longest(held, again.outcomes)
    ]
    return replace(again, outcomes=outcomes, proven=again.proven and (settled is None or settled.proven))


class BestFit:
    """A use case that claims the best candidates of queries."""

    def __init__(
        self, candidates: CandidateSearch, claims: Claims, holdings: Holdings, ruled: GroupPlacer
    ) -> None:
        self._candidates = candidates
        self._claims = claims
        self._holdings = holdings
        self._ruled = ruled
        self._gathering: RequestCoalescer[tuple[ClaimApplication, Initiator], Outcome] = RequestCoalescer(
            self._served_together, most=_MOST_GATHERED, patience_seconds=_PATIENCE_SECONDS
        )

    def claim(self, application: ClaimApplication) -> ClaimedCandidate:
        """Let the consumer hold the best candidate.

        Repeating the call returns what the consumer holds, and changes nothing. Raises NoCandidate, Conflict
        if the consumer holds other amounts than the query asks for, BadRequest, Unavailable.
        """

        def alone() -> Outcome:
            return self.claim_each([application])[0]

        wish = application.wish
        # A claim that says more, as a member of many may, is served by itself.
        is_plain = application == ClaimApplication(application.applicant, wish)
        if is_plain and self._claims.can_batch:
            # One caller searches for all and sees what it may see itself, so the scope is in the key.
            key = wish.query.identity, wish.options, request_scope.visible_clusters()
            outcome = self._gathering.ask(key, (application, initiator()), alone)
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
        self, applications: Sequence[ClaimApplication], together: MemberOptions
    ) -> ClaimResults:
        """Claim in one transaction, for at least so many consumers or for none, under rules between them.

        Consumers that get nothing may get their fallback. Raises NotAll, BadRequest naming the place in a
        rule, Unavailable, SearchTimeout.
        """
        wanted, together = _in_groups(applications), _of_groups(together)
        settled = in_rounds(wanted, lambda some, _: self._settled(some, together).settled())
        _count_repeated(settled.outcomes)
        return settled

    def preview(
        self, applications: Sequence[ClaimApplication], together: MemberOptions, world: WorldRequest
    ) -> ClaimResults:
        """Return what `claim_together` would give in such a world; nothing is written. Raises as it does."""
        together = _of_groups(together)
        with imagining(world):
            view = self._ruled.view(world)

            def previewed(some: Sequence[ClaimApplication], given: Sequence[Outcome]) -> ClaimResults:
                contest = ClaimAttempt(some, together)
                self._look(contest)
                promised = {
                    place: each
                    for place, each in enumerate(given)
                    if isinstance(each, ClaimedCandidate) and place in contest.waiting
                }
                contest.settle(promised)
                decision = contest.decide(self._ruled, view, promised)
                for place, proposal in decision.proposals.items():
                    applicant, resources = some[place].applicant, proposal.resources
                    claimed = ClaimedCandidate(applicant, 0, resources, False, proposal.mappings)
                    contest.settle({place: claimed})
                contest.settle(decision.refused)
                return contest.settled()

            return in_rounds(_in_groups(applications), previewed)

    # -- callers that are gathered ------------------------------------------------------------------

    def _served_together(self, asked: Gathered) -> Sequence[Outcome | None]:
        """Return the outcome of each caller, None where it is in doubt.

        They see all that was committed when the last of them asked, for the search begins after that.
        """
        try:
            with request_scope.within(_COMMON_SECONDS):
                view = self._candidates.view()
                promises = Promises(view, many=True)
                shortlist = CandidateQueue(self._candidates, promises, asked[0][0].wish, len(asked), set())
                proposals: list[Proposal] = []
                refused: Sequence[Outcome | None] = ()
                try:
                    for _ in asked:
                        proposals.append(shortlist.take())
                except NoCandidate as refusal:
                    others = [each.applicant.consumer_uuid for each, _ in asked[len(proposals) :]]
                    # A consumer that exists may hold it already.
                    known = self._holdings.of_consumers(others)
                    refused = [None if uuid in known else NoCandidate(str(refusal)) for uuid in others]
                served = [(each, actor) for (each, actor), _ in zip(asked, proposals, strict=False)]
                claims = [
                    claim_of(each, proposal, {})
                    for (each, _), proposal in zip(served, proposals, strict=True)
                ]
                if claims and not self._claims.claim_together(claims, [actor for _, actor in served]):
                    return [None] * len(asked)
        except errors.PlacementError:
            # Each caller meets the error itself, or finds what was written although the outcome was unknown.
            return [None] * len(asked)
        given = [
            fitted(each.applicant, claim, proposal)
            for (each, _), claim, proposal in zip(served, claims, proposals, strict=True)
        ]
        return [*given, *refused]

    # -- attempts -----------------------------------------------------------------------------------

    def _settled(self, applications: Sequence[ClaimApplication], together: MemberOptions) -> ClaimAttempt:
        """Return the contest with all outcomes, or with some of them if too many consumers got nothing."""
        contest = ClaimAttempt(applications, together)
        if together.rules and not all(each.is_new for each in applications):
            # Consumers that hold something already count in the rules.
            self._look(contest)
        while contest.waiting and not contest.has_failed:
            self._join(contest)
            try:
                proposals, refused = self._propose(contest)
            except AllLost:
                contest.lost.clear()
                contest.attempts.pause()
                continue
            if refused:
                # A repetition of this call may hold what seems to be missing, even for the same consumer.
                if self._look(contest):
                    continue
                contest.settle(refused)
            if contest.waiting and not contest.has_failed:
                self._compete(contest, proposals)
        if not contest.has_failed:
            self._join(contest)
            if together.rules and contest.decision is None:
                # All hold what they ask for, but the answer still has to tell whether the rules are kept.
                contest.decide(self._ruled, None, {})
        return contest

    def _join(self, contest: ClaimAttempt) -> None:
        """Put consumers that hold what they ask for already into their groups, each once."""
        groups: dict[str, str] = {}
        for place, each in contest.outcomes.items():
            group = contest.applications[place].group
            is_held = isinstance(each, ClaimedCandidate) and not each.fresh
            if group is not None and is_held and place not in contest.joined:
                contest.joined.add(place)
                groups[contest.applications[place].applicant.consumer_uuid] = group
        if groups:
            self._claims.join_groups(groups)

    def _propose(self, contest: ClaimAttempt) -> tuple[dict[int, Proposal], dict[int, errors.PlacementError]]:
        """Return what waiting consumers would get of the newest forest, and why others would get nothing."""
        if contest.together.rules:
            decision = contest.decide(self._ruled, None, {})
            return decision.proposals, decision.refused
        wishes = Counter(application.wish for application in contest.waiting.values())
        promises = Promises(self._candidates.view(), many=len(contest.waiting) > 1)
        shortlists = {
            wish: CandidateQueue(self._candidates, promises, wish, count, contest.lost)
            for wish, count in wishes.items()
        }
        proposals: dict[int, Proposal] = {}
        refused: dict[int, errors.PlacementError] = {}
        for place, application in contest.waiting.items():
            try:
                shortlist = shortlists[application.wish]
                proposals[place] = shortlist.take(shuffled=contest.was_lost)
            except (NoCandidate, errors.BadRequest, errors.SearchTimeout) as error:
                refused[place] = error
        return proposals, refused

    def _compete(self, contest: ClaimAttempt, proposals: Mapping[int, Proposal]) -> None:
        """Claim what was proposed to the waiting consumers, all or nothing. Raises Unavailable, Conflict."""
        wanted = {place: (each, proposals[place]) for place, each in contest.waiting.items()}
        under_rules = bool(contest.together.rules)
        claims = {
            place: claim_of(each, proposal, contest.generations, under_rules=under_rules)
            for place, (each, proposal) in wanted.items()
        }
        try:
            self._claims.replace(list(claims.values()), terms=contest.terms())
        except (errors.CapacityExceeded, errors.ConcurrentUpdate, errors.BadRequest) as error:
            # Taken by another call, by a repetition of this one, or deleted: the next look will tell.
            is_settled = False
            try:
                contest.was_lost = True
                if not contest.attempts.may_go_on():
                    raise errors.Unavailable(
                        "Other consumers kept claiming the same candidates; nothing was claimed, "
                        "try again later."
                    )
                if len(wanted) > 1:
                    contest.attempts.pause()
                else:
                    contest.lost.update(proposal.key for _, proposal in wanted.values())
                is_settled = self._look(contest)
            finally:
                # A consumer that holds it already has lost nothing.
                if not is_settled:
                    count_refused(_KIND, error)
        except errors.PlacementError as error:
            # A Conflict means that some consumer may not claim.
            if not isinstance(error, errors.Conflict) or not self._look(contest):
                count_refused(_KIND, error)
                raise
        else:
            count_won(_KIND, len(wanted))
            contest.settle(
                {
                    place: fitted(each.applicant, claims[place], proposal)
                    for place, (each, proposal) in wanted.items()
                }
            )

    def _look(self, contest: ClaimAttempt) -> bool:
        """Settle waiting consumers that hold something already or may never claim; return whether any do."""
        applications = contest.waiting
        known = self._holdings.of_consumers(
            [application.applicant.consumer_uuid for application in applications.values()]
        )
        contest.generations = {
            uuid: held.consumer.generation for uuid, held in known.items() if not held.resources
        }
        asking: dict[ClaimQuery, dict[int, ConsumerHoldings]] = {}
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
                application = applications[place]
                outcome = held_already(self._candidates, application, held, inside)
                if isinstance(outcome, errors.Conflict) and application.fallback is not None:
                    modest = replace(application, wish=application.fallback)
                    instead = held_already(self._candidates, modest, held, inside)
                    outcome = instead if isinstance(instead, ClaimedCandidate) else outcome
                if outcome is not None:
                    settled[place] = outcome
        contest.settle(settled)
        return bool(settled)


def _in_groups(applications: Sequence[ClaimApplication]) -> Sequence[ClaimApplication]:
    """Return the applications with the names under which their groups are stored."""
    return [
        each if each.group is None else replace(each, group=scoping.group(each.group))
        for each in applications
    ]


def _of_groups(together: MemberOptions) -> MemberOptions:
    """Return the conditions with the names under which the groups in rules are stored."""
    rules = (
        replace(rule, groups=tuple(scoping.group(name) for name in rule.groups)) for rule in together.rules
    )
    return replace(together, rules=tuple(rules))


def _count_repeated(outcomes: Sequence[Outcome]) -> None:
    """Count the consumers that held what they asked for before the call."""
    held = sum(isinstance(each, ClaimedCandidate) and not each.fresh for each in outcomes)
    if held:
        count_repeated(_KIND, held)
