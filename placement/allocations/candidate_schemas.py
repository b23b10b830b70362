"""Bodies of our own search and claims. Source: placement-api.md, "Candidates by JSON"."""

from __future__ import annotations

from typing import Any

from marshmallow import missing as absent

from placement.allocations.schemas import AmountsSchema
from placement.common.microversions import Feature
from placement.engine.domain.explanation import (
    ConditionKind,
    CountedUnit,
    Explanation,
    Miss,
    Reason,
    Shortage,
    Stage,
    describe,
    hints,
    lacks,
    sentences,
    stage_sentence,
)
from placement.engine.domain.inventories import MAX_FLOAT, MAX_INT
from placement.engine.domain.member_rules import MOST_MEMBERS, Per, RuleKind
from placement.http import schemas as fields
from placement.http.query_grammar import QueryBodySchema
from placement.http.schemas import (
    OPTIONAL,
    AnswerSchema,
    Anything,
    Boolean,
    Choice,
    Given,
    InContext,
    Integer,
    Mapping,
    NullableUuid,
    Number,
    Object,
    Sequence,
    String,
    Uuid,
    UuidOrName,
    VersionedSchema,
    amounts,
    since,
    texts,
)
from placement.providers.schemas import CapacityUsedSchema

# What-if questions: what is to be different. Nothing of it is written.
_MOST_HOSTS = 100_000


def _host() -> String:
    return String(1, 255)


class ReofferedBodySchema(VersionedSchema):
    """Changed inventories of a class on some hosts (by name or uuid) or all; not for pods."""

    resource_class = String(1, 255, fields.NAME, required=True)
    allocation_ratio = Number(0, MAX_FLOAT)
    reserved = Integer(0, MAX_INT)
    hosts = Sequence(_host(), least=1)


class MoreBodySchema(VersionedSchema):
    """New hosts like a given one (by name or uuid), without allocations; for pods, nodes of the cluster."""

    like = String(1, 255, required=True)
    count = Integer(1, _MOST_HOSTS, required=True)


class WorldBodySchema(VersionedSchema):
    """The differences of an imagined world from the present one; nothing is written."""

    without = Sequence(_host())
    inventories = Sequence(Object(ReofferedBodySchema))
    more = Sequence(Object(MoreBodySchema))


MOST_RULES = 100


def _name() -> String:
    return String(1, 255, fields.NAME)


class CandidatesBodySchema(QueryBodySchema):
    """POST /ext/v1/allocation_candidates, and the query of a claim; groups by suffix."""

    limit = Integer(1)
    order_by = Anything()
    cluster = String(1, 255)
    prefer = Sequence(String(1, 300))
    explain = Boolean()
    closed = Boolean()


class ClaimantSchema(VersionedSchema):
    """A consumer that claims; the rest of a claim for a flavor is a request for the flavor's candidates."""

    consumer_uuid = Uuid(required=True)
    project_id = fields.Name(required=True)
    user_id = fields.Name(required=True)
    consumer_type = String(1, 255, fields.NAME, required=True)


class NewClaimSchema(ClaimantSchema):
    """POST /ext/v1/claims."""

    # A query string of /ext/v1/allocation_candidates.
    query = String(1, 65_000, required=True)


class NewJsonClaimSchema(ClaimantSchema):
    """POST /ext/v1/claims with a query in JSON."""

    query = Object(CandidatesBodySchema, required=True)


class MemberSchema(VersionedSchema):
    """A consumer of a claim for many, or several alike; what is missing here is taken from the claim."""

    consumer_uuid = Uuid()
    # For several consumers: their uuids, or the number of new ones.
    consumer_uuids = Sequence(Uuid(), least=1, most=MOST_MEMBERS, unique=True)
    count = Integer(1, MOST_MEMBERS)
    # The name in rules.
    name = fields.Name()
    group = fields.Name()
    project_id = fields.Name()
    user_id = fields.Name()
    consumer_type = String(1, 255, fields.NAME)
    # A query string, or a query in JSON.
    query = Anything()
    # Or a flavor, as in a claim for one.
    flavor = Anything()
    image = Anything()
    options = Anything()
    member_of = Anything()
    cluster = String(1, 255)
    closed = Boolean()


class RuleBodySchema(VersionedSchema):
    """A rule between members, and consumers that exist already."""

    kind = Choice(list(RuleKind), required=True)
    per = Choice(list(Per))
    count = Integer(1, MAX_INT)
    max_skew = Integer(1, MAX_INT)
    aggregates = Sequence(UuidOrName(), least=1, unique=True)
    resource_class = _name()
    trait = _name()
    depth = Integer(0, 1000)
    members = Sequence(String(1, 255), least=1)
    consumers = Sequence(Uuid(), least=1, most=MOST_MEMBERS)
    groups = Sequence(String(1, 255), least=1, most=MOST_RULES)
    weight = Number(0.001, 1000)


class ClaimForManySchema(VersionedSchema):
    """Claims of many consumers: each by itself, or at least `minimum` or none; `atomic` asks for all.

    With `dry_run` nothing is written, and `world` says what is to be different.
    """

    members = Sequence(Object(MemberSchema), required=True, least=1, most=MOST_MEMBERS)
    atomic = Boolean()
    minimum = Integer(1, MOST_MEMBERS)
    rules = Sequence(Object(RuleBodySchema), least=1, most=MOST_RULES)
    group = fields.Name()
    dry_run = Boolean()
    world = Object(WorldBodySchema)
    project_id = fields.Name()
    user_id = fields.Name()
    consumer_type = String(1, 255, fields.NAME)
    query = Anything()
    flavor = Anything()
    image = Anything()
    options = Anything()
    member_of = Anything()
    cluster = String(1, 255)
    closed = Boolean()
    # As nova's API shows it.
    server_group = Anything()


class CandidatesInWorldSchema(CandidatesBodySchema):
    """POST /ext/v1/allocation_candidates; groups by suffix."""

    world = Object(WorldBodySchema)


# Answers about allocation candidates, and explanations.


# The figures of one class in a strategy, or why the class does not count.
_FIGURES = Given({"type": "object", "additionalProperties": {"type": ["number", "string"]}})


class ProviderSummarySchema(AnswerSchema):
    """A provider of a candidate, or of its tree."""

    resources = Mapping(fields.NAME, Object(CapacityUsedSchema))
    traits = texts(metadata=since(Feature.CANDIDATES_TRAITS))
    parent_provider_uuid = NullableUuid(metadata=since(Feature.NESTED_CANDIDATES))
    root_provider_uuid = Uuid(metadata=since(Feature.NESTED_CANDIDATES))


class _ReferenceSchema(AnswerSchema):
    uuid = Uuid()


class ListedAmountSchema(AnswerSchema):
    """Amounts of one provider."""

    resource_provider = Object(_ReferenceSchema)
    resources = amounts()


class ListedCandidateSchema(AnswerSchema):
    """A candidate before 1.12."""

    allocations = Sequence(Object(ListedAmountSchema))


class CandidateSchema(AnswerSchema):
    """A candidate: amounts by provider that a consumer could hold."""

    allocations = Mapping(fields.UUID, Object(AmountsSchema))
    mappings = Mapping(fields.SUFFIX, Sequence(Uuid()), metadata=since(Feature.MAPPINGS))


class ListedCandidatesSchema(AnswerSchema):
    """Candidates before 1.12."""

    allocation_requests = Sequence(Object(ListedCandidateSchema))
    provider_summaries = Mapping(fields.UUID, Object(ProviderSummarySchema))


class CandidatesSchema(AnswerSchema):
    """Candidates, and the providers in question."""

    allocation_requests = Sequence(Object(CandidateSchema))
    provider_summaries = Mapping(fields.UUID, Object(ProviderSummarySchema))


class ScorePartSchema(AnswerSchema):
    """The part of a score that one strategy, or one preference, adds."""

    type = String(metadata=OPTIONAL)
    score = Number(metadata=OPTIONAL)
    max_score = Integer(metadata=OPTIONAL)
    resources = Mapping(fields.NAME, _FIGURES, metadata=OPTIONAL)
    weight = Integer()
    prefer = String(metadata=OPTIONAL)
    met = Boolean(metadata=OPTIONAL)


class ScoredCandidateSchema(CandidateSchema):
    """A candidate with its score, where an order was asked for."""

    score = Number(metadata=OPTIONAL)
    max_score = Integer(metadata=OPTIONAL)
    score_parts = Sequence(Object(ScorePartSchema), metadata=OPTIONAL)


class NamedProviderSchema(AnswerSchema):
    """A provider by uuid and name."""

    uuid = Uuid()
    name = String(nullable=True)


# Parts of explanations; the context of each is the explanation, which has the names of providers.


class ConditionShownSchema(AnswerSchema):
    """A condition that a query asks for."""

    kind = Choice(list(ConditionKind))
    resource_class = String(metadata=OPTIONAL)
    wanted = Integer(metadata=OPTIONAL)
    required = Sequence(texts(), metadata=OPTIONAL, source=fields.unless_empty("required"))
    forbidden = texts(metadata=OPTIONAL, source=fields.unless_empty("forbidden"))


class StageShownSchema(AnswerSchema):
    """A condition, and how many providers or trees met it."""

    group = String(nullable=True)
    condition = String(source=InContext(describe))
    kind = Choice(list(ConditionKind), source="condition.kind")
    resource_class = String(metadata=OPTIONAL, source="condition.resource_class")
    wanted = Integer(metadata=OPTIONAL, source="condition.wanted")
    required = Sequence(texts(), metadata=OPTIONAL, source=fields.unless_empty("condition.required"))
    forbidden = texts(metadata=OPTIONAL, source=fields.unless_empty("condition.forbidden"))
    counted = Choice(list(CountedUnit))
    came = Integer()
    providers = Integer(
        nullable=True, source=lambda stage: None if stage.counted is CountedUnit.TREES else stage.passed
    )
    trees = Integer()
    trees_came = Integer()
    at_least = Boolean(metadata=OPTIONAL, source=fields.unless_empty("at_least"))
    sentence = String(source=InContext(stage_sentence))


def _provider(found: Miss | Shortage, explanation: Explanation) -> dict[str, str | None] | None:
    uuid = found.provider
    return None if uuid is None else {"uuid": uuid, "name": explanation.names.get(uuid)}


class ShortageShownSchema(AnswerSchema):
    """A reason that keeps a provider, a tree or a node from serving."""

    reason = Choice(list(Reason))
    groups = texts()
    resource_provider = Object(NamedProviderSchema, metadata=OPTIONAL, source=InContext(_provider))
    resource_class = String(metadata=OPTIONAL)
    wanted = Integer(metadata=OPTIONAL, source=lambda shortage: shortage.wanted if shortage.missing else None)
    free = Integer(metadata=OPTIONAL, source=lambda shortage: shortage.free if shortage.missing else None)
    missing = Integer(metadata=OPTIONAL, source=fields.unless_empty("missing"))
    condition = Object(ConditionShownSchema, metadata=OPTIONAL)


def _empty_stage(explanation: Explanation) -> Stage:
    assert explanation.first_empty is not None
    return explanation.stages[explanation.first_empty]


def _of_first(member: str, otherwise: Any = None) -> InContext:
    """Return a source in the first shortage of a near miss that is one provider or node."""

    def read(miss: Miss, _: Explanation) -> Any:
        if not miss.shortages or miss.is_tree:
            return otherwise
        return getattr(miss.shortages[0], member)

    return InContext(read)


class NearMissSchema(AnswerSchema):
    """A provider, a tree or a node that came closest, and what is in the way."""

    resource_provider = Object(NamedProviderSchema, source=InContext(_provider))
    resource_class = String(nullable=True, metadata=OPTIONAL, source=_of_first("resource_class", absent))
    wanted = Integer(metadata=OPTIONAL, source=_of_first("wanted"))
    free = Integer(metadata=OPTIONAL, source=_of_first("free"))
    missing = Integer(metadata=OPTIONAL, source=_of_first("missing"))
    lacking_groups = texts(metadata=OPTIONAL, source=fields.unless_empty("lacking_groups"))
    lacking = texts(metadata=OPTIONAL, source=fields.unless_empty("lacking"))
    unwanted = texts(metadata=OPTIONAL, source=fields.unless_empty("unwanted"))
    shortages = Sequence(
        Object(ShortageShownSchema), metadata=OPTIONAL, source=fields.unless_empty("shortages")
    )
    reasons = texts(metadata=OPTIONAL, source=fields.unless_empty("words"))
    sentences = texts(source=InContext(lambda miss, given: lacks(miss, _empty_stage(given), given)))


class OfferedSchema(AnswerSchema):
    """What hosts have instead of a class, or a trait, that none of them has."""

    missing = String()
    kind = Choice(
        [ConditionKind.RESOURCE_CLASS, ConditionKind.TRAITS],
        source=lambda offered: ConditionKind.TRAITS if offered.is_trait else ConditionKind.RESOURCE_CLASS,
    )
    hosts = Integer()
    names = texts()


class OtherPlaceSchema(AnswerSchema):
    """An aggregate, or that of a cluster, with hosts where the request fits."""

    uuid = Uuid()
    name = String(nullable=True)
    is_cluster = Boolean()
    hosts = Integer()


class ElsewhereSchema(AnswerSchema):
    """How many hosts of other places the request fits on, and in which aggregates they are."""

    hosts = Integer()
    places = Sequence(Object(OtherPlaceSchema))


class MarginSchema(AnswerSchema):
    """The class that ends first: how often what is free is enough for the request."""

    resource_class = String()
    wanted = Integer()
    free = Integer()
    room = Integer()
    hosts = Integer()


class ExplanationShownSchema(AnswerSchema):
    """The reasons why something fits, or why nothing does."""

    stages = Sequence(Object(StageShownSchema), source=fields.each_of(StageShownSchema, "stages"))
    first_empty = Integer(nullable=True)
    nearest = Sequence(
        Object(NearMissSchema),
        source=fields.each_of(NearMissSchema, "shown_misses"),
    )
    complete = Boolean()
    offered = Object(OfferedSchema, metadata=OPTIONAL)
    elsewhere = Object(ElsewhereSchema, metadata=OPTIONAL)
    margin = Object(MarginSchema, metadata=OPTIONAL)
    hints = texts(source=hints)
    sentences = texts(source=sentences)


class ScoredCandidatesSchema(AnswerSchema):
    """Candidates, best first, and the reasons if they were asked for."""

    allocation_requests = Sequence(Object(ScoredCandidateSchema))
    provider_summaries = Mapping(fields.UUID, Object(ProviderSummarySchema))
    explanation = Object(ExplanationShownSchema, metadata=OPTIONAL)
    remarks = texts(metadata=OPTIONAL)


class GuestCellSchema(AnswerSchema):
    """A guest NUMA cell."""

    id = Integer()
    cpuset = Sequence(Integer())
    pcpuset = Sequence(Integer())
    memory = Integer()


class TranslatedGroupSchema(AnswerSchema):
    """A request group of a flavor; empty parts are left out."""

    resources = amounts(metadata=OPTIONAL)
    required = texts(metadata=OPTIONAL)
    forbidden = texts(metadata=OPTIONAL)


class TranslationSchema(AnswerSchema):
    """A flavor as a query, and the layout of the guest's CPUs."""

    groups = Mapping(fields.SUFFIX, Object(TranslatedGroupSchema))
    group_policy = String(nullable=True)
    root_required = texts()
    same_subtree = Sequence(texts())
    querystring = String()
    fallback_querystring = String(nullable=True)
    microversion = String()
    cpu_policy = String(nullable=True)
    thread_policy = String(nullable=True)
    cells = Sequence(Object(GuestCellSchema), nullable=True)
    dedicated_cpus = String(nullable=True)
    warnings = texts()
    ignored = texts()


class FlavorCandidatesSchema(AnswerSchema):
    """A flavor's translation and its candidates."""

    translation = Object(TranslationSchema)
    query_used = Choice(["querystring", "fallback_querystring"])
    explanation = Object(ExplanationShownSchema, metadata=OPTIONAL)
    candidates = Object(CandidatesSchema)
