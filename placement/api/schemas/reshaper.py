"""The body of the reshaper."""

from placement.api.schemas import patterns
from placement.api.schemas.allocations import Allocations
from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.fields import Mapping, Object
from placement.api.schemas.inventories import AllInventories


class Reshape(VersionedSchema):
    """POST /reshaper: whole inventories by provider, whole allocations by consumer."""

    inventories = Mapping(patterns.UUID, Object(AllInventories), least=1, required=True)
    allocations = Mapping(patterns.UUID, Object(Allocations), required=True)
