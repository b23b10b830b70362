"""The query of usages."""

from placement.api.microversions import Feature
from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.fields import String

# Type names, and what stands for all types or for none.
_CONSUMER_TYPE = "^[A-Z0-9_]+$|^all|^unknown$"


class UsagesQuery(VersionedSchema):
    """GET /usages."""

    project_id = String(1, 255, required=True)
    user_id = String(1, 255)
    consumer_type = String(1, 255, _CONSUMER_TYPE, metadata={"since": Feature.CONSUMER_TYPES})
