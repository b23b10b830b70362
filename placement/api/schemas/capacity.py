"""Bodies of questions how many more there is room for."""

from placement.api.schemas import patterns
from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.candidates import CandidatesBody, QueryBody
from placement.api.schemas.fields import Anything, Choice, Integer, Mapping, Number, Object, Sequence, String
from placement.domain.inventory import MAX_FLOAT, MAX_INT
from placement.services.planning.planning import BY

_MOST_HOSTS = 100_000
_KIND_NAME = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"


def _host() -> String:
    return String(1, 255)


class KindBody(VersionedSchema):
    """A query or its string, a flavor (with image and options as for its translation) or a pod's manifest."""

    query = Object(QueryBody)
    querystring = String(1, 65_000)
    flavor = Anything()
    image = Anything()
    options = Anything()
    pod = Anything()


class ReofferedBody(VersionedSchema):
    """Inventories of a class, on some hosts (by name or uuid) or all."""

    resource_class = String(1, 255, patterns.NAME, required=True)
    allocation_ratio = Number(0, MAX_FLOAT)
    reserved = Integer(0, MAX_INT)
    hosts = Sequence(_host(), least=1)


class MoreBody(VersionedSchema):
    """Hosts like one (by name or uuid), on which nobody holds anything."""

    like = String(1, 255, required=True)
    count = Integer(1, _MOST_HOSTS, required=True)


class WorldBody(VersionedSchema):
    """What is to be different; nothing is written."""

    without = Sequence(_host())
    inventories = Sequence(Object(ReofferedBody))
    more = Sequence(Object(MoreBody))


class CapacityBody(VersionedSchema):
    """POST /ext/v1/capacity; kinds by names of the caller's choice."""

    kinds = Mapping(_KIND_NAME, Object(KindBody), required=True, least=1)
    cluster = String(1, 255)
    by = Sequence(Choice(list(BY)))
    world = Object(WorldBody)


class CandidatesInWorld(CandidatesBody):
    """POST /ext/v1/allocation_candidates; groups by suffix."""

    world = Object(WorldBody)
