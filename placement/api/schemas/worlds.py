"""What is to be different in a question what would be. Nothing of it is written."""

from placement.api.schemas import patterns
from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.fields import Integer, Number, Object, Sequence, String
from placement.domain.inventory import MAX_FLOAT, MAX_INT

_MOST_HOSTS = 100_000


def _host() -> String:
    return String(1, 255)


class ReofferedBody(VersionedSchema):
    """Inventories of a class, on some hosts (by name or uuid) or all; not for pods."""

    resource_class = String(1, 255, patterns.NAME, required=True)
    allocation_ratio = Number(0, MAX_FLOAT)
    reserved = Integer(0, MAX_INT)
    hosts = Sequence(_host(), least=1)


class MoreBody(VersionedSchema):
    """Hosts like one (by name or uuid), on which nobody holds anything; for pods, nodes of the cluster."""

    like = String(1, 255, required=True)
    count = Integer(1, _MOST_HOSTS, required=True)


class WorldBody(VersionedSchema):
    """What is to be different; nothing is written."""

    without = Sequence(_host())
    inventories = Sequence(Object(ReofferedBody))
    more = Sequence(Object(MoreBody))
