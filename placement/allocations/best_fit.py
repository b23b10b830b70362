"""Search and claim in one call: consumers get the best candidates that are still free.

The search proposes and the claim decides (Claims). If another consumer was faster, the search runs again
and sees the other claim. Only a search that began after the call may answer that nothing fits.

Many consumers are searched for one after another on one forest (Shortlist). They claim in one transaction,
which locks consumers and then providers in ascending order. Callers that ask at one time with one query,
each for one consumer, are gathered (LikeClaims). This never gives more than there is, nor half of a claim.
It decides on all that was committed when the search began. Gathered callers either all get something in
one statement, or each goes on as if it were alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from placement.allocations.applications import (
    ClaimApplication,
    ClaimedCandidate,
    Outcome,
    claim_of,
    fitted,
    held_already,
)
from placement.allocations.candidates import CandidateSearch
from placement.allocations.claims import Claims, Terms, count_refused, count_repeated, count_won
from placement.allocations.group_rules import (
    ConsumersSnapshot,
    Decision,
    GroupPlacer,
    MemberHolding,
    RuleKept,
    Wanted,
)
from placement.allocations.holdings import ConsumerHoldings, Holdings
from placement.allocations.like_claims import ClaimCoalescer
from placement.allocations.shortlists import (
    AllLost,
    CandidateQueue,
    ClaimQuery,
    NoCandidate,
    Promises,
    Proposal,
    ProposalKey,
)
from placement.allocations.world import WorldRequest, imagining
from placement.engine.domain.errors import (
    BadRequest,
    CapacityExceeded,
    ConcurrentUpdate,
    Conflict,
    PlacementError,
    SearchTimeout,
    Unavailable,
)
from placement.engine.domain.groups import MemberRule
from placement.engine.domain.identifiers import portions
from placement.providers import view as scoping
from placement.providers.view import View
from placement.storage.database import Attempts, RetryPolicy

# The attempts of one claim: consumers that still wait, the outcomes of the others, and then the fallbacks.


# This repeats the decision; `Claims` repeats its transactions by itself.
_POLICY = RetryPolicy(patience_seconds=20.0, longest_pause_seconds=0.005)


class NotAll(Conflict):
    """A refusal of a whole claim because too many members got nothing; `refused`: the reasons by place."""

    def __init__(self, refused: Mapping[int, PlacementError]) -> None:
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
    attempts: Attempts = field(default_factory=_POLICY.begin)
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
    def has_failed(self) -> bool:
        """Return whether too many consumers got nothing."""
        refused = sum(isinstance(each, PlacementError) for each in self.outcomes.values())
        return len(self.outcomes) + len(self.waiting) - refused < self.together.minimum

    def holding(self) -> list[MemberHolding]:
        """Return the members that hold what they ask for already."""
        return [
            MemberHolding(self.applications[place].name, each.applicant.consumer_uuid)
            for place, each in self.outcomes.items()
            if isinstance(each, ClaimedCandidate)
        ]

    def promise(self, given: Sequence[Outcome]) -> list[MemberHolding]:
        """Settle waiting members with what they were given before, though nothing is written; return them."""
        promised = {
            place: each
            for place, each in enumerate(given)
            if isinstance(each, ClaimedCandidate) and place in self.waiting
        }
        self.settle(promised)
        return [
            MemberHolding(self.applications[place].name, each.applicant.consumer_uuid, each.resources)
            for place, each in promised.items()
        ]

    def joining(self) -> dict[str, str]:
        """Return once, by uuid, the groups of consumers that hold what they ask for already."""
        found: dict[str, str] = {}
        for place, each in self.outcomes.items():
            group = self.applications[place].group
            if (
                group is not None
                and isinstance(each, ClaimedCandidate)
                and not each.fresh
                and place not in self.joined
            ):
                self.joined.add(place)
                found[each.applicant.consumer_uuid] = group
        return found

    def decide(self, decision: Decision) -> None:
        """Note what was decided about the waiting consumers."""
        self.decision = decision
        self.proven = self.proven and decision.proven

    def wanted(self) -> dict[int, Wanted]:
        """Return what the waiting consumers ask for, by place."""
        return {place: Wanted(each.wish, each.name) for place, each in self.waiting.items()}

    def settled(self) -> ClaimResults:
        """Return the outcomes of all consumers. Raises NotAll if too many got nothing."""
        if self.has_failed:
            refused = {
                place: each for place, each in self.outcomes.items() if isinstance(each, PlacementError)
            }
            raise NotAll(dict(sorted(refused.items())))
        outcomes = [each for _, each in sorted(self.outcomes.items())]
        if self.decision is None:
            return ClaimResults(outcomes)
        return ClaimResults(outcomes, self.proven, self.decision.rules)

    def terms(self) -> Terms | None:
        """Return the terms on which the waiting consumers may claim; None if there are none."""
        groups = {
            each.applicant.consumer_uuid: each.group
            for each in self.waiting.values()
            if each.group is not None
        }
        cpus = {
            each.applicant.consumer_uuid: each.dedicated_cpus
            for each in self.waiting.values()
            if each.dedicated_cpus
        }
        standing = ConsumersSnapshot() if self.decision is None else self.decision.standing
        if not (groups or cpus or standing.groups or standing.generations):
            return None
        return Terms(standing, groups, cpus)

    def settle(self, outcomes: Mapping[int, Outcome]) -> None:
        """Note the outcomes of some consumers."""
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


def in_rounds(
    applications: Sequence[ClaimApplication],
    settle: Callable[[Sequence[ClaimApplication], Sequence[Outcome]], ClaimResults],
) -> ClaimResults:
    """Settle all consumers, then once more with the fallbacks of consumers that found nothing.

    `settle` gets what was given before. Once some consumers hold something, the second round cannot fail.
    """
    try:
        settled = settle(applications, ())
    except NotAll:
        if all(each.fallback is None for each in applications):
            raise
        settled = None
    held = [] if settled is None else settled.outcomes
    modest = _modest(applications, held)
    if modest is None:
        assert settled is not None
        return settled
    try:
        again = settle(modest, held)
    except (NotAll, SearchTimeout, Unavailable):
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


def _modest(
    applications: Sequence[ClaimApplication], held: Sequence[Outcome]
) -> list[ClaimApplication] | None:
    """Return the applications with fallbacks where nothing was found; None if no fallback is left to try."""
    nothing = [not held or isinstance(held[place], NoCandidate) for place in range(len(applications))]
    if not any(is_so and each.fallback for is_so, each in zip(nothing, applications, strict=True)):
        return None
    return [
        replace(each, wish=each.fallback if is_so and each.fallback else each.wish, is_new=False)
        for is_so, each in zip(nothing, applications, strict=True)
    ]


_KIND = "consumer"
# The most consumers that claim in one transaction, unless they need all or nothing.
_AT_ONCE = 1000


class BestFit:
    """A use case that claims the best candidates of queries."""

    def __init__(
        self, candidates: CandidateSearch, claims: Claims, holdings: Holdings, ruled: GroupPlacer
    ) -> None:
        self._candidates = candidates
        self._claims = claims
        self._holdings = holdings
        self._ruled = ruled
        self._like_claims = ClaimCoalescer(candidates, claims, holdings)

    def claim(self, application: ClaimApplication) -> ClaimedCandidate:
        """Let the consumer hold the best candidate.

        Repeating the call returns what the consumer holds, and changes nothing. Raises NoCandidate, Conflict
        if the consumer holds other amounts than the query asks for, BadRequest, Unavailable.
        """

        outcome = self._like_claims.outcome(application, lambda: self.claim_each([application])[0])
        if isinstance(outcome, PlacementError):
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
            except PlacementError as error:
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
        with imagining(world):
            view = self._ruled.view(world)
            wanted, together = _in_groups(applications), _of_groups(together)
            return in_rounds(wanted, lambda some, given: self._previewed(some, together, view, given))

    def _previewed(
        self,
        applications: Sequence[ClaimApplication],
        together: MemberOptions,
        view: View,
        given: Sequence[Outcome],
    ) -> ClaimResults:
        """Return the outcomes that consumers would have on a view; some were given something before."""
        contest = ClaimAttempt(applications, together)
        self._look(contest)
        holding = contest.holding()
        holding += contest.promise(given)
        decision = self._ruled.decide(contest.wanted(), holding, together.rules, view)
        contest.decide(decision)
        contest.settle(
            {
                place: ClaimedCandidate(
                    applications[place].applicant, 0, proposal.resources, False, proposal.mappings
                )
                for place, proposal in decision.proposals.items()
            }
        )
        contest.settle(decision.refused)
        return contest.settled()

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
            contest.decide(self._ruled.decide({}, contest.holding(), together.rules))
        return contest

    def _join(self, contest: ClaimAttempt) -> None:
        """Put consumers that hold what they ask for already into their groups."""
        groups = contest.joining()
        if groups:
            self._claims.join_groups(groups)

    def _propose(self, contest: ClaimAttempt) -> tuple[dict[int, Proposal], dict[int, PlacementError]]:
        """Return what waiting consumers would get of the newest forest, and why others would get nothing."""
        if contest.together.rules:
            return self._propose_by_rules(contest)
        wishes = Counter(application.wish for application in contest.waiting.values())
        promises = Promises.of(self._candidates.view(), many=len(contest.waiting) > 1)
        shortlists = {
            wish: CandidateQueue(self._candidates, promises, wish, count, contest.lost)
            for wish, count in wishes.items()
        }
        proposals: dict[int, Proposal] = {}
        refused: dict[int, PlacementError] = {}
        for place, application in contest.waiting.items():
            try:
                shortlist = shortlists[application.wish]
                proposals[place] = shortlist.take(shuffled=contest.was_lost)
            except (NoCandidate, BadRequest, SearchTimeout) as error:
                refused[place] = error
        return proposals, refused

    def _propose_by_rules(
        self, contest: ClaimAttempt
    ) -> tuple[dict[int, Proposal], dict[int, PlacementError]]:
        decision = self._ruled.decide(contest.wanted(), contest.holding(), contest.together.rules)
        contest.decide(decision)
        return decision.proposals, decision.refused

    def _compete(self, contest: ClaimAttempt, proposals: Mapping[int, Proposal]) -> None:
        """Claim what was proposed to the waiting consumers, all or nothing. Raises Unavailable, Conflict."""
        wanted = {place: proposals[place] for place in contest.waiting}
        claims = {
            place: claim_of(
                contest.waiting[place],
                proposal,
                contest.generations,
                under_rules=bool(contest.together.rules),
            )
            for place, proposal in wanted.items()
        }
        try:
            self._claims.replace(list(claims.values()), terms=contest.terms())
        except (CapacityExceeded, ConcurrentUpdate, BadRequest) as error:
            # Taken by another call, by a repetition of this one, or deleted: the next look will tell.
            is_settled = False
            try:
                contest.lose(wanted.values())
                is_settled = self._look(contest)
            finally:
                # A consumer that holds it already has lost nothing.
                if not is_settled:
                    count_refused(_KIND, error)
        except PlacementError as error:
            # A Conflict means that some consumer may not claim.
            if not isinstance(error, Conflict) or not self._look(contest):
                count_refused(_KIND, error)
                raise
        else:
            count_won(_KIND, len(wanted))
            contest.settle(
                {
                    place: fitted(contest.waiting[place].applicant, claims[place], proposal)
                    for place, proposal in wanted.items()
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
                outcome = self._held(applications[place], held, inside)
                if outcome is not None:
                    settled[place] = outcome
        contest.settle(settled)
        return bool(settled)

    def _held(
        self, application: ClaimApplication, held: ConsumerHoldings, inside: Collection[str]
    ) -> Outcome | None:
        """Return what a consumer holds for its wish or fallback, or why it may not claim; None if it may."""
        outcome = held_already(self._candidates, application, held, inside)
        if not isinstance(outcome, Conflict) or application.fallback is None:
            return outcome
        modest = replace(application, wish=application.fallback)
        instead = held_already(self._candidates, modest, held, inside)
        return instead if isinstance(instead, ClaimedCandidate) else outcome


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
