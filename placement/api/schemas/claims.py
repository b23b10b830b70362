"""Bodies of our own claims."""

from placement.api.schemas import patterns
from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.fields import String, Uuid


class Claimant(VersionedSchema):
    """The part of a claim for a flavor that says who claims; the rest is a request for its candidates."""

    consumer_uuid = Uuid(required=True)
    project_id = String(1, 255, required=True)
    user_id = String(1, 255, required=True)
    consumer_type = String(1, 255, patterns.NAME, required=True)


class NewClaim(Claimant):
    """POST /ext/v1/claims."""

    # A query string of /ext/v1/allocation_candidates.
    query = String(1, 65_000, required=True)
