"""Bodies of our own search and claims. Source: placement-api.md, "Candidates by JSON"."""

from placement.api.queries import POLICIES
from placement.api.schemas import patterns
from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.fields import (
    AnyOf,
    Anything,
    Boolean,
    Choice,
    Integer,
    Mapping,
    Number,
    Object,
    Sequence,
    String,
    Uuid,
)
from placement.api.schemas.flavors import FlavorRequest
from placement.api.schemas.worlds import WorldBody
from placement.domain.groups import SplitRule
from placement.domain.inventory import MAX_INT
from placement.domain.member_rules import Per, RuleKind

MOST_MEMBERS = 10_000
MOST_RULES = 100


def _name() -> String:
    return String(1, 255, patterns.NAME)


class Group(VersionedSchema):
    """One request group; an inner list is a choice of which one is enough."""

    resources = Mapping(patterns.NAME, Integer(1))
    required = Sequence(AnyOf(_name()))
    forbidden = Sequence(_name())
    member_of = Sequence(AnyOf(Uuid()))
    forbidden_aggregates = Sequence(Uuid())
    in_tree = Uuid()
    split = Sequence(_name(), least=1, unique=True)
    split_rule = Choice(list(SplitRule))


class QueryBody(VersionedSchema):
    """What is asked for; groups by suffix."""

    groups = Mapping(patterns.SUFFIX, Object(Group), required=True, least=1)
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
    """Who claims; in a claim for a flavor the rest is a request for its candidates."""

    consumer_uuid = Uuid(required=True)
    project_id = String(1, 255, required=True)
    user_id = String(1, 255, required=True)
    consumer_type = String(1, 255, patterns.NAME, required=True)


class NewClaim(Claimant):
    """POST /ext/v1/claims."""

    # A query string of /ext/v1/allocation_candidates.
    query = String(1, 65_000, required=True)


class NewJsonClaim(Claimant):
    """The same with a query in JSON."""

    query = Object(CandidatesBody, required=True)


class Member(VersionedSchema):
    """A consumer of many, or several alike; what it does not say all of them have in common."""

    consumer_uuid = Uuid()
    # Of several: theirs, or how many new ones.
    consumer_uuids = Sequence(Uuid(), least=1, most=MOST_MEMBERS, unique=True)
    count = Integer(1, MOST_MEMBERS)
    # What rules call them.
    name = String(1, 255)
    group = String(1, 255)
    project_id = String(1, 255)
    user_id = String(1, 255)
    consumer_type = String(1, 255, patterns.NAME)
    # A query string, or a query in JSON.
    query = Anything()
    # Or a flavor, as in a claim for one.
    flavor = Anything()
    image = Anything()
    options = Anything()
    cluster = String(1, 255)


class RuleBody(VersionedSchema):
    """A rule between members, and others that are there already."""

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
    """Claims of many consumers: each by itself, or at least `minimum` or nobody, `atomic` for all.

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
    consumer_type = String(1, 255, patterns.NAME)
    query = Anything()
    flavor = Anything()
    image = Anything()
    options = Anything()
    cluster = String(1, 255)
    # As nova's API shows it.
    server_group = Anything()


class ClaimForFlavor(Claimant, FlavorRequest):
    """The same for a flavor, translated as it is claimed."""

    cluster = String(nullable=True)


class CandidatesInWorld(CandidatesBody):
    """POST /ext/v1/allocation_candidates; groups by suffix."""

    world = Object(WorldBody)
