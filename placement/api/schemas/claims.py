"""Bodies of our own claims."""

from placement.api.schemas import patterns
from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.fields import String, Uuid


class NewClaim(VersionedSchema):
    """POST /ext/v1/claims."""

    consumer_uuid = Uuid(required=True)
    project_id = String(1, 255, required=True)
    user_id = String(1, 255, required=True)
    consumer_type = String(1, 255, patterns.NAME, required=True)
    # A query string of /ext/v1/allocation_candidates.
    query = String(1, 65_000, required=True)
