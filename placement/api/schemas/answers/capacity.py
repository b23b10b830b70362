"""Answers how many more there is room for."""

from placement.api.schemas import patterns
from placement.api.schemas.answers.base import OPTIONAL, Answer
from placement.api.schemas.fields import Boolean, Integer, Mapping, Number, Object, Sequence, String, Uuid


class ClassRoom(Answer):
    """What is offered of a class: free, taken by each request, and free where no request fits any more."""

    free = Integer()
    wanted = Integer()
    stranded = Integer()


class _Counted(Answer):
    """At least and at most so many."""

    lower = Integer()
    upper = Integer()
    exact = Boolean()
    runs_out_first = String(nullable=True)
    classes = Mapping(patterns.NAME, Object(ClassRoom))


class RoomShown(_Counted):
    """How many more some hosts have room for together."""

    hosts = Integer()
    taking = Integer()
    ideal = Integer()
    fragmentation = Number()


class ClusterRoom(RoomShown):
    """The hosts of a cluster."""

    cluster = String()


class AggregateRoom(RoomShown):
    """The hosts whose roots are in an aggregate."""

    aggregate = Uuid()


class HostRoomShown(_Counted):
    """How many more one host has room for; `like`: it is imagined."""

    uuid = Uuid()
    name = String(nullable=True)
    like = Uuid(metadata=OPTIONAL)


class KindRoomShown(Answer):
    """How many more of a kind, summed by what was asked for."""

    total = Object(RoomShown)
    clusters = Sequence(Object(ClusterRoom), metadata=OPTIONAL)
    aggregates = Sequence(Object(AggregateRoom), metadata=OPTIONAL)
    hosts = Sequence(Object(HostRoomShown), metadata=OPTIONAL)


class Capacities(Answer):
    """The kinds by their names; that of a query string is called query."""

    kinds = Mapping("^.*$", Object(KindRoomShown))
