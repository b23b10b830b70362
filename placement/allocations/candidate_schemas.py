"""Bodies of our own search and claims. Source: placement-api.md, "Candidates by JSON"."""

from __future__ import annotations

from placement.allocations.schemas import Amounts
from placement.engine.domain.explanation import Counted, Kind, Reason
from placement.engine.domain.groups import SplitRule
from placement.engine.domain.inventories import MAX_FLOAT, MAX_INT
from placement.engine.domain.member_rules import Per, RuleKind
from placement.flavors.schemas import FlavorRequest
from placement.http import fields
from placement.http.bodies import POLICIES
from placement.http.fields import (
    AnyOf,
    Anything,
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
from placement.http.microversions import Feature
from placement.http.schemas import OPTIONAL, Answer, VersionedSchema, amounts, since, texts

# What-if questions: what is to be different. Nothing of it is written.


_MOST_HOSTS = 100_000


def _host() -> String:
    return String(1, 255)


class ReofferedBody(VersionedSchema):
    """Changed inventories of a class on some hosts (by name or uuid) or all; not for pods."""

    resource_class = String(1, 255, fields.NAME, required=True)
    allocation_ratio = Number(0, MAX_FLOAT)
    reserved = Integer(0, MAX_INT)
    hosts = Sequence(_host(), least=1)


class MoreBody(VersionedSchema):
    """New hosts like a given one (by name or uuid), without allocations; for pods, nodes of the cluster."""

    like = String(1, 255, required=True)
    count = Integer(1, _MOST_HOSTS, required=True)


class WorldBody(VersionedSchema):
    """The differences of an imagined world from the present one; nothing is written."""

    without = Sequence(_host())
    inventories = Sequence(Object(ReofferedBody))
    more = Sequence(Object(MoreBody))


MOST_MEMBERS = 10_000
MOST_RULES = 100


def _name() -> String:
    return String(1, 255, fields.NAME)


class Group(VersionedSchema):
    """One request group; of an inner list one item is enough."""

    resources = Mapping(fields.NAME, Integer(1))
    required = Sequence(AnyOf(_name()))
    forbidden = Sequence(_name())
    member_of = Sequence(AnyOf(Uuid()))
    forbidden_aggregates = Sequence(Uuid())
    in_tree = Uuid()
    split = Sequence(_name(), least=1, unique=True)
    split_rule = Choice(list(SplitRule))


class QueryBody(VersionedSchema):
    """A query with its groups by suffix."""

    groups = Mapping(fields.SUFFIX, Object(Group), required=True, least=1)
    group_policy = Choice(POLICIES)
    same_subtree = Sequence(Sequence(String(1, 64), least=1))
    root_required = Sequence(_name())
    root_forbidden = Sequence(_name())


class CandidatesBody(QueryBody):
    """POST /ext/v1/allocation_candidates, and the query of a claim; groups by suffix."""

    limit = Integer(1)
    order_by = Anything()
    cluster = String(1, 255)
    prefer = Sequence(String(1, 300))
    explain = Boolean()


class Claimant(VersionedSchema):
    """A consumer that claims; the rest of a claim for a flavor is a request for the flavor's candidates."""

    consumer_uuid = Uuid(required=True)
    project_id = String(1, 255, required=True)
    user_id = String(1, 255, required=True)
    consumer_type = String(1, 255, fields.NAME, required=True)


class NewClaim(Claimant):
    """POST /ext/v1/claims."""

    # A query string of /ext/v1/allocation_candidates.
    query = String(1, 65_000, required=True)


class NewJsonClaim(Claimant):
    """POST /ext/v1/claims with a query in JSON."""

    query = Object(CandidatesBody, required=True)


class Member(VersionedSchema):
    """A consumer of a claim for many, or several alike; what is missing here is taken from the claim."""

    consumer_uuid = Uuid()
    # For several consumers: their uuids, or the number of new ones.
    consumer_uuids = Sequence(Uuid(), least=1, most=MOST_MEMBERS, unique=True)
    count = Integer(1, MOST_MEMBERS)
    # The name in rules.
    name = String(1, 255)
    group = String(1, 255)
    project_id = String(1, 255)
    user_id = String(1, 255)
    consumer_type = String(1, 255, fields.NAME)
    # A query string, or a query in JSON.
    query = Anything()
    # Or a flavor, as in a claim for one.
    flavor = Anything()
    image = Anything()
    options = Anything()
    cluster = String(1, 255)


class RuleBody(VersionedSchema):
    """A rule between members, and consumers that exist already."""

    kind = Choice(list(RuleKind), required=True)
    per = Choice(list(Per))
    count = Integer(1, MAX_INT)
    max_skew = Integer(1, MAX_INT)
    aggregates = Sequence(Uuid(), least=1, unique=True)
    resource_class = _name()
    trait = _name()
    depth = Integer(0, 1000)
    members = Sequence(String(1, 255), least=1)
    consumers = Sequence(Uuid(), least=1, most=MOST_MEMBERS)
    groups = Sequence(String(1, 255), least=1, most=MOST_RULES)
    weight = Number(0.001, 1000)


class ClaimForMany(VersionedSchema):
    """Claims of many consumers: each by itself, or at least `minimum` or none; `atomic` asks for all.

    With `dry_run` nothing is written, and `world` says what is to be different.
    """

    members = Sequence(Object(Member), required=True, least=1, most=MOST_MEMBERS)
    atomic = Boolean()
    minimum = Integer(1, MOST_MEMBERS)
    rules = Sequence(Object(RuleBody), least=1, most=MOST_RULES)
    group = String(1, 255)
    dry_run = Boolean()
    world = Object(WorldBody)
    project_id = String(1, 255)
    user_id = String(1, 255)
    consumer_type = String(1, 255, fields.NAME)
    query = Anything()
    flavor = Anything()
    image = Anything()
    options = Anything()
    cluster = String(1, 255)
    # As nova's API shows it.
    server_group = Anything()


class ClaimForFlavor(Claimant, FlavorRequest):
    """A claim for a flavor, which is translated when it is claimed."""

    cluster = String(nullable=True)


class CandidatesInWorld(CandidatesBody):
    """POST /ext/v1/allocation_candidates; groups by suffix."""

    world = Object(WorldBody)


# Answers about allocation candidates, and explanations.


# The figures of one class in a strategy, or why the class does not count.
_FIGURES = Given({"type": "object", "additionalProperties": {"type": ["number", "string"]}})


class CapacityUsed(Answer):
    """The capacity of a class at a provider, and the part of it in use."""

    capacity = Integer()
    used = Integer()


class ProviderSummary(Answer):
    """A provider of a candidate, or of its tree."""

    resources = Mapping(fields.NAME, Object(CapacityUsed))
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
    """A candidate: amounts by provider that a consumer could hold."""

    allocations = Mapping(fields.UUID, Object(Amounts))
    mappings = Mapping(fields.SUFFIX, Sequence(Uuid()), metadata=since(Feature.MAPPINGS))


class ListedCandidates(Answer):
    """Candidates before 1.12."""

    allocation_requests = Sequence(Object(ListedCandidate))
    provider_summaries = Mapping(fields.UUID, Object(ProviderSummary))


class Candidates(Answer):
    """Candidates, and the providers in question."""

    allocation_requests = Sequence(Object(Candidate))
    provider_summaries = Mapping(fields.UUID, Object(ProviderSummary))


class ScorePart(Answer):
    """The part of a score that one strategy, or one preference, adds."""

    type = String(metadata=OPTIONAL)
    score = Number(metadata=OPTIONAL)
    max_score = Integer(metadata=OPTIONAL)
    resources = Mapping(fields.NAME, _FIGURES, metadata=OPTIONAL)
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
    """A condition that a query asks for."""

    kind = Choice(list(Kind))
    resource_class = String(metadata=OPTIONAL)
    wanted = Integer(metadata=OPTIONAL)
    required = Sequence(texts(), metadata=OPTIONAL)
    forbidden = texts(metadata=OPTIONAL)


class StageShown(ConditionShown):
    """A condition, and how many providers or trees met it."""

    group = String(nullable=True)
    condition = String()
    counted = Choice(list(Counted))
    came = Integer()
    providers = Integer(nullable=True)
    trees = Integer()
    sentence = String()


class ShortageShown(Answer):
    """A reason that keeps a provider, a tree or a node from serving."""

    reason = Choice(list(Reason))
    groups = texts()
    resource_provider = Object(NamedProvider, metadata=OPTIONAL)
    resource_class = String(metadata=OPTIONAL)
    wanted = Integer(metadata=OPTIONAL)
    free = Integer(metadata=OPTIONAL)
    missing = Integer(metadata=OPTIONAL)
    condition = Object(ConditionShown, metadata=OPTIONAL)


class NearMiss(Answer):
    """A provider, a tree or a node that came closest, and what is in the way."""

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
    """The reasons why something fits, or why nothing does."""

    stages = Sequence(Object(StageShown))
    first_empty = Integer(nullable=True)
    nearest = Sequence(Object(NearMiss))
    complete = Boolean()
    sentences = texts()


class ScoredCandidates(Answer):
    """Candidates, best first, and the reasons if they were asked for."""

    allocation_requests = Sequence(Object(ScoredCandidate))
    provider_summaries = Mapping(fields.UUID, Object(ProviderSummary))
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

    groups = Mapping(fields.SUFFIX, Object(TranslatedGroup))
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
    """A flavor's translation and its candidates."""

    translation = Object(Translation)
    query_used = Choice(["querystring", "fallback_querystring"])
    explanation = Object(ExplanationShown, metadata=OPTIONAL)
    candidates = Object(Candidates)
