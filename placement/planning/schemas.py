"""Bodies of capacity and of plans: how many more fit, and which moves make room."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from operator import itemgetter
from typing import Any

from placement.allocations.candidate_schemas import WorldBodySchema
from placement.engine.domain.inventories import MAX_INT
from placement.http import schemas as fields
from placement.http.query_grammar import QueryBodySchema
from placement.http.schemas import (
    OPTIONAL,
    AnswerSchema,
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
    VersionedSchema,
)
from placement.planning.capacity import BY
from placement.planning.consumers import GUESSED, POD, QUERY
from placement.planning.goals import IMPOSSIBLE as NO_WAY
from placement.planning.goals import SEARCH, SUMS
from placement.planning.plans import (
    DEFRAGMENT,
    DONE,
    EMPTY,
    EVICTION,
    FIT,
    FREE,
    IMPOSSIBLE,
    POSSIBLE,
    REWRITING,
)
from placement.planning.room import CapacityCount, HostCount
from placement.pods.schemas import PodReferenceSchema

# Bodies of questions of how many more fit.
_KIND_NAME = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"


class KindBodySchema(VersionedSchema):
    """A query or its string, a flavor (with image and options as for its translation) or a pod's manifest."""

    query = Object(QueryBodySchema)
    querystring = String(1, 65_000)
    flavor = Anything()
    image = Anything()
    options = Anything()
    pod = Anything()


class CapacityBodySchema(VersionedSchema):
    """A body of POST /ext/v1/capacity; the caller chooses the names of kinds."""

    kinds = Mapping(_KIND_NAME, Object(KindBodySchema), required=True, least=1)
    cluster = String(1, 255)
    by = Sequence(Choice(list(BY)))
    world = Object(WorldBodySchema)


MOST_MOVES = 10_000
_MOST_SECONDS = 600


class FitBodySchema(KindBodySchema):
    """A query or its string, a flavor or a pod, and how many of these shall fit."""

    count = Integer(1, MOST_MOVES)


class DefragmentBodySchema(KindBodySchema):
    """A request for which less shall be stranded, and the resource class of that."""

    resource_class = String(1, 255, fields.NAME)


class GoalBodySchema(VersionedSchema):
    """A goal: let requests fit, empty these hosts (by name or uuid), free so many hosts, or strand less."""

    fit = Object(FitBodySchema)
    empty = Sequence(String(1, 255), least=1)
    free = Integer(1, MOST_MOVES)
    defragment = Object(DefragmentBodySchema)


class AtMostBodySchema(VersionedSchema):
    """A limit on the moves of consumers that match all given fields; `label` of pods, KEY=VALUE."""

    moves = Integer(0, MOST_MOVES, required=True)
    project_id = String(1, 255)
    consumer_type = String(1, 255)
    label = String(1, 512)


class LimitsBodySchema(VersionedSchema):
    """The limits of a plan."""

    moves = Integer(0, MOST_MOVES)
    never = Sequence(Uuid())
    clusters = Sequence(String(1, 255))
    at_most = Sequence(Object(AtMostBodySchema))
    seconds = Number(0, _MOST_SECONDS)


class PlanBodySchema(VersionedSchema):
    """A body of POST /ext/v1/plans."""

    goal = Object(GoalBodySchema, required=True)
    limits = Object(LimitsBodySchema)
    cluster = String(1, 255)


def _in_order(amounts: MappingABC[str, Any]) -> dict[str, Any]:
    """Return amounts sorted by name: equal questions have equal answers in every process."""
    return dict(sorted(amounts.items()))


class _ResourcesSchema(AnswerSchema):
    """Amounts of one provider."""

    resources = Mapping(fields.NAME, Integer(1, MAX_INT))


def _by_provider(held: MappingABC[str, MappingABC[str, int]]) -> dict[str, Any]:
    return {uuid: {"resources": _in_order(amounts)} for uuid, amounts in _in_order(held).items()}


def _allocations(**options: Any) -> Mapping:
    return Mapping(fields.UUID, Object(_ResourcesSchema), **options)


class PodOfMoveSchema(AnswerSchema):
    """The pod that is moved, and the CPUs that it would be given."""

    cluster = String()
    namespace = String()
    name = String()
    uid = String()
    from_node = String()
    to_node = String()
    cpuset = String()


class MoveShownSchema(AnswerSchema):
    """A move of a consumer from what it holds to something else."""

    consumer = Uuid()
    consumer_generation = Integer(0, MAX_INT, source="generation")
    project_id = String()
    user_id = String()
    consumer_type = String(nullable=True)
    kind = Choice([QUERY, POD, GUESSED])
    by = Choice([REWRITING, EVICTION])
    from_host = Uuid()
    to_host = Uuid()
    from_allocations = _allocations(source=lambda move: _by_provider(move.before))
    to_allocations = _allocations(source=lambda move: _by_provider(move.after))
    pod = Object(PodOfMoveSchema, metadata=OPTIONAL)


class MovesBodySchema(VersionedSchema):
    """A body of POST /ext/v1/plans/check: the moves of a plan."""

    moves = Sequence(Object(MoveShownSchema), most=MOST_MOVES, required=True)
    cluster = String(1, 255)


class BoundShownSchema(AnswerSchema):
    """A bound: no plan has fewer moves; `impossible`: no number of moves does it within the other limits."""

    moves = Integer()
    by = Choice([SUMS, SEARCH, NO_WAY])


class UseShownSchema(AnswerSchema):
    """The capacity of a host for a class, and what is in use before and after the plan."""

    capacity = Integer()
    before = Integer()
    after = Integer()


class HostShownSchema(AnswerSchema):
    """A host that the plan concerns, with its consumers before and after."""

    uuid = Uuid()
    name = String(nullable=True)
    consumers_before = Integer(source=lambda host: host.consumers[0])
    consumers_after = Integer(source=lambda host: host.consumers[1])
    classes = Mapping(fields.NAME, Object(UseShownSchema), source=lambda host: _in_order(host.classes))


class LeftShownSchema(AnswerSchema):
    """A consumer that should have been moved and is not, and why."""

    consumer = Uuid()
    host = Uuid()
    why = String()
    pod = Object(PodReferenceSchema, metadata=OPTIONAL)


class StrandedShownSchema(AnswerSchema):
    """The amounts that are stranded before and after the plan."""

    before = Integer(source=itemgetter(0))
    after = Integer(source=itemgetter(1))


class PlanShownSchema(AnswerSchema):
    """A plan: moves in their order, what they achieve, and why that is less than was wanted, if it is."""

    goal = Choice([FIT, EMPTY, FREE, DEFRAGMENT])
    wanted = Integer()
    achieved = Integer()
    reached = Boolean(source=lambda plan: plan.achieved >= plan.wanted)
    complete = Boolean()
    cluster = String(nullable=True)
    bound = Object(BoundShownSchema)
    why = String()
    moves = Sequence(Object(MoveShownSchema))
    placements = Sequence(_allocations(), source=lambda plan: map(_by_provider, plan.placements))
    emptied = Sequence(Uuid())
    left = Sequence(Object(LeftShownSchema))
    stranded = Mapping(fields.NAME, Object(StrandedShownSchema))
    hosts = Sequence(Object(HostShownSchema))


class CheckedShownSchema(AnswerSchema):
    """The state of a move when it is made after the moves before it; `why` it is impossible."""

    consumer = Uuid()
    state = Choice([POSSIBLE, DONE, IMPOSSIBLE])
    why = String()


class PlanCheckedSchema(AnswerSchema):
    """The moves in their order, and whether none of them is impossible."""

    valid = Boolean(source=lambda checked: all(each.state != IMPOSSIBLE for each in checked))
    moves = Sequence(Object(CheckedShownSchema), source=list)


# Answers of how many more fit.


class ClassRoomSchema(AnswerSchema):
    """The amounts of a class: free, taken by each request, and free where no request fits any more."""

    free = Integer()
    wanted = Integer()
    stranded = Integer()


def _is_exact(room: CapacityCount | HostCount) -> bool:
    return room.lower == room.upper


class RoomShownSchema(AnswerSchema):
    """The room that some hosts have together."""

    lower = Integer()
    upper = Integer()
    hosts = Integer()
    taking = Integer()
    runs_out_first = String(nullable=True)
    ideal = Integer()
    fragmentation = Number()
    classes = Mapping(fields.NAME, Object(ClassRoomSchema))
    exact = Boolean(source=_is_exact)


class _ClusterSchema(AnswerSchema):
    cluster = String(source="place")


class ClusterRoomSchema(RoomShownSchema, _ClusterSchema):
    """The room of the hosts of a cluster."""


class _AggregateSchema(AnswerSchema):
    aggregate = Uuid(source="place")
    name = String(metadata=OPTIONAL)


class AggregateRoomSchema(RoomShownSchema, _AggregateSchema):
    """The room of the hosts with roots in an aggregate."""


class HostRoomShownSchema(AnswerSchema):
    """The room of one host; `like`: the host is imagined, and like the host with this uuid."""

    uuid = Uuid()
    name = String(nullable=True)
    lower = Integer()
    upper = Integer()
    runs_out_first = String(nullable=True)
    classes = Mapping(fields.NAME, Object(ClassRoomSchema))
    like = Uuid(metadata=OPTIONAL)
    exact = Boolean(source=_is_exact)


class KindRoomShownSchema(AnswerSchema):
    """The room for a kind, summed as was asked for; for pods with Kubernetes' names of classes."""

    total = Object(RoomShownSchema)
    clusters = Sequence(Object(ClusterRoomSchema), metadata=OPTIONAL)
    aggregates = Sequence(Object(AggregateRoomSchema), metadata=OPTIONAL)
    hosts = Sequence(Object(HostRoomShownSchema), metadata=OPTIONAL)
    resources = Mapping(fields.NAME, String(), metadata=OPTIONAL)


class CapacitiesSchema(AnswerSchema):
    """The room for kinds by their names; the kind of a query string is called query."""

    kinds = Mapping("^.*$", Object(KindRoomShownSchema), source=dict)
