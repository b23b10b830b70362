"""Applications: which consumer claims what, and the outcome for consumers that hold something already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from placement.allocations.candidates import CandidateSearch
from placement.allocations.claims import generation_after
from placement.allocations.holdings import ConsumerHoldings
from placement.allocations.shortlists import ClaimQuery, Proposal, Resources
from placement.allocations.statements.consumers import pod_conflict
from placement.engine.domain.errors import Conflict, PlacementError
from placement.engine.domain.groups import CandidateQuery, SplitRule
from placement.engine.domain.inventories import ConsumerClaim
from placement.engine.domain.mappings import Mappings, rebuilt
from placement.providers import view


@dataclass(frozen=True, slots=True)
class Claimant:
    """A consumer that claims; project, user and type mean what they mean in allocations."""

    consumer_uuid: str
    project_id: str
    user_id: str
    consumer_type: str


@dataclass(frozen=True, slots=True)
class ClaimApplication:
    """An applicant and its wish, with the details of its claim.

    `name` is the applicant's name in rules, `group` the group that it joins. `is_new`: its uuid was made for
    this call, so it holds nothing. `fallback`: what it takes where the wish finds nothing. `dedicated_cpus`:
    the dedicated CPUs of the guest that its flavor describes, None without a flavor. `place`: its place in
    what the caller sent.
    """

    applicant: Claimant
    wish: ClaimQuery
    name: str | None = None
    group: str | None = None
    is_new: bool = False
    fallback: ClaimQuery | None = None
    dedicated_cpus: str | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class ClaimedCandidate:
    """A success: what a consumer holds, in amounts by provider and class.

    `fresh`: it did not hold that before the call. `mappings`: which group got which providers, None where
    the stored amounts leave several possibilities.
    """

    applicant: Claimant
    generation: int
    resources: Resources
    fresh: bool
    mappings: Mappings | None


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
    applicant = application.applicant
    return ConsumerClaim(
        consumer_uuid=applicant.consumer_uuid,
        resources=proposal.resources,
        project_id=applicant.project_id,
        user_id=applicant.user_id,
        generation=generations.get(applicant.consumer_uuid),
        consumer_type=applicant.consumer_type,
        request=application.wish.kept_under_rules if under_rules else application.wish.kept,
    )


def fitted(applicant: Claimant, claim: ConsumerClaim, proposal: Proposal) -> ClaimedCandidate:
    """Return what a consumer holds once its claim for a proposal is written."""
    return ClaimedCandidate(applicant, generation_after(claim), proposal.resources, True, proposal.mappings)


def held_already(
    candidates: CandidateSearch,
    application: ClaimApplication,
    held: ConsumerHoldings,
    inside: Collection[str],
) -> Outcome | None:
    """Return what an existing consumer holds, or why it may not claim; None if it may.

    `inside`: the providers that may be shown to a caller that asks about one cluster.
    """
    applicant, resources = application.applicant, held.resources
    if not resources:
        reason = _refusal(applicant, held)
        return None if reason is None else view.refusal(applicant.consumer_uuid, reason)
    query = candidates.asked_of(application.wish.query, resources)
    # A caller that may ask about one cluster only must not learn what the consumer has in another.
    if not _is_asked_for(resources, query) or not resources.keys() <= set(inside):
        return view.taken(applicant.consumer_uuid)
    consumer = held.consumer
    owner = replace(
        applicant,
        project_id=consumer.project_id,
        user_id=consumer.user_id,
        consumer_type=consumer.consumer_type or applicant.consumer_type,
    )
    return ClaimedCandidate(owner, consumer.generation, resources, False, rebuilt(query, resources))


def _refusal(applicant: Claimant, idle: ConsumerHoldings) -> Conflict | None:
    """Return why a consumer that holds nothing may not claim: it is a pod, or its project or user differs."""
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
    """Return whether these are the amounts of the query.

    Of a class that `isolate` splits, each provider is held as a whole and counts as one unit, so more may be
    held. If no group asks for the class otherwise, the number of its providers must equal the amount.
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
