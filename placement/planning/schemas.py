"""Bodies of capacity and of plans: how many more fit, and which moves make room."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from operator import itemgetter
from typing import Any

from placement.allocations.candidate_schemas import WorldBodySchema
from placement.engine.domain.inventories import MAX_INT
from placement.http import schemas as fields
from placement.http.query_grammar import QueryBodySchema
from placement.planning import plans
from placement.planning.capacity import BY
from placement.planning.consumers import GUESSED, POD, QUERY
from placement.planning.counts import CapacityCount, HostCount
from placement.planning.goal_results import IMPOSSIBLE as NO_WAY
from placement.planning.goal_results import SEARCH, SUMS
from placement.pods.schemas import PodReferenceSchema

_KIND_NAME = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"


class KindBodySchema(fields.VersionedSchema):
    """A query or its string, a flavor (with image, options and member_of as for its candidates) or a pod."""

    query = fields.Object(QueryBodySchema)
    querystring = fields.String(1, 65_000)
    flavor = fields.Anything()
    image = fields.Anything()
    options = fields.Anything()
    member_of = fields.Anything()
    pod = fields.Anything()


class CapacityBodySchema(fields.VersionedSchema):
    """A body of POST /ext/v1/capacity; the caller chooses the names of kinds."""

    kinds = fields.Mapping(_KIND_NAME, fields.Object(KindBodySchema), required=True, least=1)
    cluster = fields.String(1, 255)
    by = fields.Sequence(fields.Choice(list(BY)))
    closed = fields.Boolean()
    world = fields.Object(WorldBodySchema)


MOST_MOVES = 10_000
_MOST_SECONDS = 600


class FitBodySchema(KindBodySchema):
    """A query or its string, a flavor or a pod, and how many of these shall fit."""

    count = fields.Integer(1, MOST_MOVES)


class DefragmentBodySchema(KindBodySchema):
    """A request for which less shall be stranded, and the resource class of that."""

    resource_class = fields.String(1, 255, fields.NAME)


class GoalBodySchema(fields.VersionedSchema):
    """A goal: let requests fit, empty these hosts (by name or uuid), free so many hosts, or strand less."""

    fit = fields.Object(FitBodySchema)
    empty = fields.Sequence(fields.String(1, 255), least=1)
    free = fields.Integer(1, MOST_MOVES)
    defragment = fields.Object(DefragmentBodySchema)


class AtMostBodySchema(fields.VersionedSchema):
    """A limit on the moves of consumers that match all given fields; `label` of pods, KEY=VALUE."""

    moves = fields.Integer(0, MOST_MOVES, required=True)
    project_id = fields.String(1, 255)
    consumer_type = fields.String(1, 255)
    label = fields.String(1, 512)


class LimitsBodySchema(fields.VersionedSchema):
    """The limits of a plan."""

    moves = fields.Integer(0, MOST_MOVES)
    never = fields.Sequence(fields.Uuid())
    clusters = fields.Sequence(fields.String(1, 255))
    at_most = fields.Sequence(fields.Object(AtMostBodySchema))
    seconds = fields.Number(0, _MOST_SECONDS)


class PlanBodySchema(fields.VersionedSchema):
    """A body of POST /ext/v1/plans."""

    goal = fields.Object(GoalBodySchema, required=True)
    limits = fields.Object(LimitsBodySchema)
    cluster = fields.String(1, 255)
    closed = fields.Boolean()


def _in_order(amounts: MappingABC[str, Any]) -> dict[str, Any]:
    """Return amounts sorted by name: equal questions have equal answers in every process."""
    return dict(sorted(amounts.items()))


class _ResourcesSchema(fields.AnswerSchema):
    """Amounts of one provider."""

    resources = fields.Mapping(fields.NAME, fields.Integer(1, MAX_INT))


def _by_provider(held: MappingABC[str, MappingABC[str, int]]) -> dict[str, Any]:
    return {uuid: {"resources": _in_order(amounts)} for uuid, amounts in _in_order(held).items()}


def _allocations(**options: Any) -> fields.Mapping:
    return fields.Mapping(fields.UUID, fields.Object(_ResourcesSchema), **options)


class PodOfMoveSchema(fields.AnswerSchema):
    """The pod that is moved, and the CPUs that it would be given."""

    cluster = fields.String()
    namespace = fields.String()
    name = fields.String()
    uid = fields.String()
    from_node = fields.String()
    to_node = fields.String()
    cpuset = fields.String()


class MoveShownSchema(fields.AnswerSchema):
    """A move of a consumer from what it holds to something else."""

    consumer = fields.Uuid()
    consumer_generation = fields.Integer(0, MAX_INT, source="generation")
    project_id = fields.String()
    user_id = fields.String()
    consumer_type = fields.String(nullable=True)
    kind = fields.Choice([QUERY, POD, GUESSED])
    by = fields.Choice([plans.REWRITING, plans.EVICTION])
    from_host = fields.Uuid()
    to_host = fields.Uuid()
    from_allocations = _allocations(source=lambda move: _by_provider(move.before))
    to_allocations = _allocations(source=lambda move: _by_provider(move.after))
    pod = fields.Object(PodOfMoveSchema, metadata=fields.OPTIONAL)


class MovesBodySchema(fields.VersionedSchema):
    """A body of POST /ext/v1/plans/check: the moves of a plan."""

    moves = fields.Sequence(fields.Object(MoveShownSchema), most=MOST_MOVES, required=True)
    cluster = fields.String(1, 255)
    closed = fields.Boolean()


class BoundShownSchema(fields.AnswerSchema):
    """A bound: no plan has fewer moves; `impossible`: no number of moves does it within the other limits."""

    moves = fields.Integer()
    by = fields.Choice([SUMS, SEARCH, NO_WAY])


class UseShownSchema(fields.AnswerSchema):
    """The capacity of a host for a class, and what is in use before and after the plan."""

    capacity = fields.Integer()
    before = fields.Integer()
    after = fields.Integer()


class HostShownSchema(fields.AnswerSchema):
    """A host that the plan concerns, with its consumers before and after."""

    uuid = fields.Uuid()
    name = fields.String(nullable=True)
    consumers_before = fields.Integer(source=lambda host: host.consumers[0])
    consumers_after = fields.Integer(source=lambda host: host.consumers[1])
    classes = fields.Mapping(
        fields.NAME, fields.Object(UseShownSchema), source=lambda host: _in_order(host.classes)
    )


class LeftShownSchema(fields.AnswerSchema):
    """A consumer that should have been moved and is not, and why."""

    consumer = fields.Uuid()
    host = fields.Uuid()
    why = fields.String()
    pod = fields.Object(PodReferenceSchema, metadata=fields.OPTIONAL)


class StrandedShownSchema(fields.AnswerSchema):
    """The amounts that are stranded before and after the plan."""

    before = fields.Integer(source=itemgetter(0))
    after = fields.Integer(source=itemgetter(1))


class CountShownSchema(fields.AnswerSchema):
    """How many more of a kind fit, between these numbers."""

    lower = fields.Integer()
    upper = fields.Integer()


class WatchedShownSchema(fields.AnswerSchema):
    """The room of a kind of `[capacity] watch` before and after a plan; `cluster` is null for all hosts."""

    kind = fields.String()
    cluster = fields.String(nullable=True)
    before = fields.Object(CountShownSchema)
    after = fields.Object(CountShownSchema)


class PlanShownSchema(fields.AnswerSchema):
    """A plan: moves in their order, what they achieve, and why that is less than was wanted, if it is."""

    goal = fields.Choice([plans.FIT, plans.EMPTY, plans.FREE, plans.DEFRAGMENT])
    wanted = fields.Integer()
    achieved = fields.Integer()
    reached = fields.Boolean(source=lambda plan: plan.achieved >= plan.wanted)
    complete = fields.Boolean()
    cluster = fields.String(nullable=True)
    closed = fields.Boolean()
    bound = fields.Object(BoundShownSchema)
    why = fields.String()
    moves = fields.Sequence(fields.Object(MoveShownSchema))
    placements = fields.Sequence(_allocations(), source=lambda plan: map(_by_provider, plan.placements))
    emptied = fields.Sequence(fields.Uuid())
    left = fields.Sequence(fields.Object(LeftShownSchema))
    stranded = fields.Mapping(fields.NAME, fields.Object(StrandedShownSchema))
    hosts = fields.Sequence(fields.Object(HostShownSchema))
    watched = fields.Sequence(fields.Object(WatchedShownSchema))


class CheckedShownSchema(fields.AnswerSchema):
    """The state of a move when it is made after the moves before it; `why` it is impossible."""

    consumer = fields.Uuid()
    state = fields.Choice([plans.POSSIBLE, plans.DONE, plans.IMPOSSIBLE])
    why = fields.String()


class PlanCheckedSchema(fields.AnswerSchema):
    """The moves in their order, and whether none of them is impossible."""

    valid = fields.Boolean(source=lambda checked: all(each.state != plans.IMPOSSIBLE for each in checked))
    moves = fields.Sequence(fields.Object(CheckedShownSchema), source=list)


class ClassRoomSchema(fields.AnswerSchema):
    """The amounts of a class: free, taken by each request, and free where no request fits any more."""

    free = fields.Integer()
    wanted = fields.Integer()
    stranded = fields.Integer()


def _is_exact(room: CapacityCount | HostCount) -> bool:
    return room.lower == room.upper


class RoomShownSchema(fields.AnswerSchema):
    """The room that some hosts have together."""

    lower = fields.Integer()
    upper = fields.Integer()
    hosts = fields.Integer()
    taking = fields.Integer()
    runs_out_first = fields.String(nullable=True)
    ideal = fields.Integer()
    fragmentation = fields.Number()
    classes = fields.Mapping(fields.NAME, fields.Object(ClassRoomSchema))
    exact = fields.Boolean(source=_is_exact)


class _ClusterSchema(fields.AnswerSchema):
    cluster = fields.String(source="place")


class ClusterRoomSchema(RoomShownSchema, _ClusterSchema):
    """The room of the hosts of a cluster."""


class _AggregateSchema(fields.AnswerSchema):
    aggregate = fields.Uuid(source="place")
    name = fields.String(metadata=fields.OPTIONAL)


class AggregateRoomSchema(RoomShownSchema, _AggregateSchema):
    """The room of the hosts with roots in an aggregate."""


class HostRoomShownSchema(fields.AnswerSchema):
    """The room of one host; `like`: the host is imagined, and like the host with this uuid."""

    uuid = fields.Uuid()
    name = fields.String(nullable=True)
    lower = fields.Integer()
    upper = fields.Integer()
    runs_out_first = fields.String(nullable=True)
    classes = fields.Mapping(fields.NAME, fields.Object(ClassRoomSchema))
    like = fields.Uuid(metadata=fields.OPTIONAL)
    exact = fields.Boolean(source=_is_exact)


class KindRoomShownSchema(fields.AnswerSchema):
    """The room for a kind, summed as was asked for; for pods with Kubernetes' names of classes."""

    total = fields.Object(RoomShownSchema)
    clusters = fields.Sequence(fields.Object(ClusterRoomSchema), metadata=fields.OPTIONAL)
    aggregates = fields.Sequence(fields.Object(AggregateRoomSchema), metadata=fields.OPTIONAL)
    hosts = fields.Sequence(fields.Object(HostRoomShownSchema), metadata=fields.OPTIONAL)
    resources = fields.Mapping(fields.NAME, fields.String(), metadata=fields.OPTIONAL)


class CapacitiesSchema(fields.AnswerSchema):
    """The room for kinds by their names; the kind of a query string is called query."""

    kinds = fields.Mapping("^.*$", fields.Object(KindRoomShownSchema), source=dict)
