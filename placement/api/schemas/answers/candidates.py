"""Answers about allocation candidates, and explanations."""

from placement.api.microversions import Feature
from placement.api.schemas import patterns
from placement.api.schemas.answers.allocations import Amounts
from placement.api.schemas.answers.base import OPTIONAL, Answer, amounts, since, texts
from placement.api.schemas.fields import (
    Boolean,
    Choice,
    Given,
    Integer,
    Mapping,
    NullableUuid,
    Number,
    Object,
    Sequence,
    String,
    Uuid,
)
from placement.domain.explanation import Counted, Kind, Reason

# What a strategy says of one class: figures, or why it does not count.
_FIGURES = Given({"type": "object", "additionalProperties": {"type": ["number", "string"]}})


class CapacityUsed(Answer):
    """What there is of a class at a provider, and what of that is used."""

    capacity = Integer()
    used = Integer()


class ProviderSummary(Answer):
    """A provider of a candidate, or of its tree."""

    resources = Mapping(patterns.NAME, Object(CapacityUsed))
    traits = texts(metadata=since(Feature.CANDIDATES_TRAITS))
    parent_provider_uuid = NullableUuid(metadata=since(Feature.NESTED_CANDIDATES))
    root_provider_uuid = Uuid(metadata=since(Feature.NESTED_CANDIDATES))


class _Reference(Answer):
    uuid = Uuid()


class ListedAmount(Answer):
    """Amounts of one provider."""

    resource_provider = Object(_Reference)
    resources = amounts()


class ListedCandidate(Answer):
    """A candidate before 1.12."""

    allocations = Sequence(Object(ListedAmount))


class Candidate(Answer):
    """What a consumer could hold."""

    allocations = Mapping(patterns.UUID, Object(Amounts))
    mappings = Mapping(patterns.SUFFIX, Sequence(Uuid()), metadata=since(Feature.MAPPINGS))


class ListedCandidates(Answer):
    """Candidates before 1.12."""

    allocation_requests = Sequence(Object(ListedCandidate))
    provider_summaries = Mapping(patterns.UUID, Object(ProviderSummary))


class Candidates(Answer):
    """Candidates, and the providers in question."""

    allocation_requests = Sequence(Object(Candidate))
    provider_summaries = Mapping(patterns.UUID, Object(ProviderSummary))


class ScorePart(Answer):
    """What one strategy, or one preference, adds to a score."""

    type = String(metadata=OPTIONAL)
    score = Number(metadata=OPTIONAL)
    max_score = Integer(metadata=OPTIONAL)
    resources = Mapping(patterns.NAME, _FIGURES, metadata=OPTIONAL)
    weight = Integer()
    prefer = String(metadata=OPTIONAL)
    met = Boolean(metadata=OPTIONAL)


class ScoredCandidate(Candidate):
    """A candidate with its score, where an order was asked for."""

    score = Number(metadata=OPTIONAL)
    max_score = Integer(metadata=OPTIONAL)
    score_parts = Sequence(Object(ScorePart), metadata=OPTIONAL)


class NamedProvider(Answer):
    """A provider by uuid and name."""

    uuid = Uuid()
    name = String(nullable=True)


class ConditionShown(Answer):
    """What is asked for."""

    kind = Choice(list(Kind))
    resource_class = String(metadata=OPTIONAL)
    wanted = Integer(metadata=OPTIONAL)
    required = Sequence(texts(), metadata=OPTIONAL)
    forbidden = texts(metadata=OPTIONAL)


class StageShown(ConditionShown):
    """How many met a condition."""

    group = String(nullable=True)
    condition = String()
    counted = Choice(list(Counted))
    came = Integer()
    providers = Integer(nullable=True)
    trees = Integer()
    sentence = String()


class ShortageShown(Answer):
    """What keeps somebody from serving."""

    reason = Choice(list(Reason))
    groups = texts()
    resource_provider = Object(NamedProvider, metadata=OPTIONAL)
    resource_class = String(metadata=OPTIONAL)
    wanted = Integer(metadata=OPTIONAL)
    free = Integer(metadata=OPTIONAL)
    missing = Integer(metadata=OPTIONAL)
    condition = Object(ConditionShown, metadata=OPTIONAL)


class NearMiss(Answer):
    """Who came closest, and what is in the way."""

    resource_provider = Object(NamedProvider)
    resource_class = String(nullable=True, metadata=OPTIONAL)
    wanted = Integer(metadata=OPTIONAL)
    free = Integer(metadata=OPTIONAL)
    missing = Integer(metadata=OPTIONAL)
    lacking_groups = texts(metadata=OPTIONAL)
    lacking = texts(metadata=OPTIONAL)
    unwanted = texts(metadata=OPTIONAL)
    shortages = Sequence(Object(ShortageShown), metadata=OPTIONAL)
    reasons = texts(metadata=OPTIONAL)
    sentences = texts()


class ExplanationShown(Answer):
    """Why something fits, or nothing."""

    stages = Sequence(Object(StageShown))
    first_empty = Integer(nullable=True)
    nearest = Sequence(Object(NearMiss))
    complete = Boolean()
    sentences = texts()


class ScoredCandidates(Answer):
    """Candidates, best first, and the reasons if they were asked for."""

    allocation_requests = Sequence(Object(ScoredCandidate))
    provider_summaries = Mapping(patterns.UUID, Object(ProviderSummary))
    explanation = Object(ExplanationShown, metadata=OPTIONAL)
    remarks = texts(metadata=OPTIONAL)


class GuestCell(Answer):
    """A guest NUMA cell."""

    id = Integer()
    cpuset = Sequence(Integer())
    pcpuset = Sequence(Integer())
    memory = Integer()


class TranslatedGroup(Answer):
    """A request group of a flavor; empty parts are left out."""

    resources = amounts(metadata=OPTIONAL)
    required = texts(metadata=OPTIONAL)
    forbidden = texts(metadata=OPTIONAL)


class Translation(Answer):
    """A flavor as a query, and the layout of the guest's CPUs."""

    groups = Mapping(patterns.SUFFIX, Object(TranslatedGroup))
    group_policy = String(nullable=True)
    root_required = texts()
    same_subtree = Sequence(texts())
    querystring = String()
    fallback_querystring = String(nullable=True)
    microversion = String()
    cpu_policy = String(nullable=True)
    thread_policy = String(nullable=True)
    cells = Sequence(Object(GuestCell), nullable=True)
    dedicated_cpus = String(nullable=True)
    warnings = texts()


class FlavorCandidates(Answer):
    """Where a flavor fits."""

    translation = Object(Translation)
    query_used = Choice(["querystring", "fallback_querystring"])
    explanation = Object(ExplanationShown, metadata=OPTIONAL)
    candidates = Object(Candidates)
