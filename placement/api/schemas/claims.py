"""Bodies of our own claims."""

from placement.api.schemas import patterns
from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.candidates import CandidatesBody
from placement.api.schemas.fields import Object, String, Uuid


class _Applicant(VersionedSchema):
    """Who claims."""

    consumer_uuid = Uuid(required=True)
    project_id = String(1, 255, required=True)
    user_id = String(1, 255, required=True)
    consumer_type = String(1, 255, patterns.NAME, required=True)


class NewClaim(_Applicant):
    """POST /ext/v1/claims."""

    # A query string of /ext/v1/allocation_candidates.
    query = String(1, 65_000, required=True)


class NewJsonClaim(_Applicant):
    """The same with a query in JSON."""

    query = Object(CandidatesBody, required=True)
