"""Bodies of questions how many more there is room for."""

from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.candidates import QueryBody
from placement.api.schemas.fields import Anything, Choice, Mapping, Object, Sequence, String
from placement.api.schemas.worlds import WorldBody
from placement.services.planning.planning import BY

_KIND_NAME = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"


class KindBody(VersionedSchema):
    """A query or its string, a flavor (with image and options as for its translation) or a pod's manifest."""

    query = Object(QueryBody)
    querystring = String(1, 65_000)
    flavor = Anything()
    image = Anything()
    options = Anything()
    pod = Anything()


class CapacityBody(VersionedSchema):
    """POST /ext/v1/capacity; kinds by names of the caller's choice."""

    kinds = Mapping(_KIND_NAME, Object(KindBody), required=True, least=1)
    cluster = String(1, 255)
    by = Sequence(Choice(list(BY)))
    world = Object(WorldBody)
