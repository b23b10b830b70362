"""The attempts of one claim: who still waits, and what became of the others; then what they take instead."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from placement.domain.errors import Conflict, PlacementError, SearchTimeout, Unavailable
from placement.domain.member_rules import MemberRule
from placement.services.placement.applications import Application, Fitted, Outcome
from placement.services.placement.claims import Terms
from placement.services.placement.ruled import Decision, Holding, RuleKept, Wanted
from placement.services.placement.shortlists import NoCandidate, Proposal, ProposalKey
from placement.services.placement.standing import Standing
from placement.services.transactions import Attempts, RetryPolicy

# It is the decision that is repeated here; the transactions of a claim are by themselves.
_POLICY = RetryPolicy(patience_seconds=20.0, longest_pause_seconds=0.005)


class NotAll(Conflict):
    """Some members of a claim for all or none got nothing, so nobody did; `refused`: why, by place."""

    def __init__(self, refused: Mapping[int, PlacementError]) -> None:
        super().__init__(f"nothing was claimed: {len(refused)} of the members could have nothing")
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Together:
    """What members of one call keep to: rules between them, and that so many get something or nobody does."""

    rules: tuple[MemberRule, ...] = ()
    minimum: int = 0


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of each; `proven`: it is certain that no more of them could have something."""

    outcomes: list[Outcome]
    proven: bool = True
    rules: tuple[RuleKept, ...] = ()


@dataclass(slots=True)
class Contest:
    """The attempts of one call: who still waits, what was lost to other writers, and how long it goes on."""

    applications: Sequence[Application]
    together: Together
    waiting: dict[int, Application] = field(init=False)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    # The generations of consumers that exist and hold nothing.
    generations: dict[str, int] = field(default_factory=dict)
    attempts: Attempts = field(default_factory=_POLICY.begin)
    lost: set[ProposalKey] = field(default_factory=set)
    was_lost: bool = False
    decision: Decision | None = None
    # Those that got nothing in one attempt are not decided on again in the next.
    proven: bool = True
    # Who was put into a group though it holds what it asks for already.
    joined: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.waiting = dict(enumerate(self.applications))

    @property
    def has_failed(self) -> bool:
        """Whether too many got nothing."""
        refused = sum(isinstance(each, PlacementError) for each in self.outcomes.values())
        return len(self.outcomes) + len(self.waiting) - refused < self.together.minimum

    def holding(self) -> list[Holding]:
        """Those who hold what they ask for already."""
        return [
            Holding(self.applications[place].name, each.applicant.consumer_uuid)
            for place, each in self.outcomes.items()
            if isinstance(each, Fitted)
        ]

    def promise(self, given: Sequence[Outcome]) -> list[Holding]:
        """Settle those who wait with what they were given before, though it is not written."""
        promised = {
            place: each
            for place, each in enumerate(given)
            if isinstance(each, Fitted) and place in self.waiting
        }
        self.settle(promised)
        return [
            Holding(self.applications[place].name, each.applicant.consumer_uuid, each.resources)
            for place, each in promised.items()
        ]

    def joining(self) -> dict[str, str]:
        """The groups of those who hold what they ask for already, by uuid, each told once."""
        found: dict[str, str] = {}
        for place, each in self.outcomes.items():
            group = self.applications[place].group
            if group is not None and isinstance(each, Fitted) and not each.fresh and place not in self.joined:
                self.joined.add(place)
                found[each.applicant.consumer_uuid] = group
        return found

    def decide(self, decision: Decision) -> None:
        """Note what was decided about those who wait."""
        self.decision = decision
        self.proven = self.proven and decision.proven

    def wanted(self) -> dict[int, Wanted]:
        """What those ask for who wait."""
        return {place: Wanted(each.wish, each.name) for place, each in self.waiting.items()}

    def settled(self) -> Settled:
        """What became of all. Raises NotAll if too many got nothing."""
        if self.has_failed:
            refused = {
                place: each for place, each in self.outcomes.items() if isinstance(each, PlacementError)
            }
            raise NotAll(dict(sorted(refused.items())))
        outcomes = [each for _, each in sorted(self.outcomes.items())]
        if self.decision is None:
            return Settled(outcomes)
        return Settled(outcomes, self.proven, self.decision.rules)

    def terms(self) -> Terms | None:
        """What must still be so when those who wait are given something; None if that is nothing."""
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
        standing = Standing() if self.decision is None else self.decision.standing
        if not (groups or cpus or standing.groups or standing.generations):
            return None
        return Terms(standing, groups, cpus)

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


def in_rounds(
    applications: Sequence[Application],
    settle: Callable[[Sequence[Application], Sequence[Outcome]], Settled],
) -> Settled:
    """Settle all; then once more with what those take instead who found nothing.

    `settle` is told what was given before. Once some have something the second round cannot fail.
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
        if settled is None or not any(isinstance(each, Fitted) for each in held):
            raise
        # It is written already, and nobody else knows the uuids of those that are new.
        return replace(settled, proven=False)
    # What was given first is as new as what was given now.
    outcomes = [
        first if isinstance(first, Fitted) else second for first, second in zip_longest(held, again.outcomes)
    ]
    return replace(again, outcomes=outcomes, proven=again.proven and (settled is None or settled.proven))


def _modest(applications: Sequence[Application], held: Sequence[Outcome]) -> list[Application] | None:
    """The same where those that found nothing take what they take instead; None if nobody is left to."""
    nothing = [not held or isinstance(held[place], NoCandidate) for place in range(len(applications))]
    if not any(is_so and each.fallback for is_so, each in zip(nothing, applications, strict=True)):
        return None
    return [
        replace(each, wish=each.fallback if is_so and each.fallback else each.wish, is_new=False)
        for is_so, each in zip(nothing, applications, strict=True)
    ]
