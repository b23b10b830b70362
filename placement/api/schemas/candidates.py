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
    Object,
    Sequence,
    String,
    Uuid,
)
from placement.api.schemas.flavors import FlavorRequest
from placement.domain.groups import SplitRule

MOST_MEMBERS = 10_000


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
    """One consumer of many; what it does not say all of them have in common."""

    consumer_uuid = Uuid(required=True)
    project_id = String(1, 255)
    user_id = String(1, 255)
    consumer_type = String(1, 255, patterns.NAME)
    # A query string, or a query in JSON.
    query = Anything()


class ClaimForMany(VersionedSchema):
    """Claims of many consumers, each by itself or, if `atomic`, for all or none."""

    members = Sequence(Object(Member), required=True, least=1, most=MOST_MEMBERS)
    atomic = Boolean()
    project_id = String(1, 255)
    user_id = String(1, 255)
    consumer_type = String(1, 255, patterns.NAME)
    query = Anything()


class ClaimForFlavor(Claimant, FlavorRequest):
    """The same for a flavor, translated as it is claimed."""

    cluster = String(nullable=True)
