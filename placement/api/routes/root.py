"""The version document. Source: placement-api.md, "Version document"."""

from flask import Blueprint, Response

from placement.api.described import Operation, describes
from placement.api.microversions import NEWEST, OLDEST
from placement.api.responses import json_response, now
from placement.api.schemas.answers.names import Versions

blueprint = Blueprint("root", __name__)


@blueprint.get("/")
@describes(Operation({200: Versions}))
def versions() -> Response:
    """Which versions this service speaks; needs no token."""
    return json_response(
        {
            "versions": [
                {
                    "id": "v1.0",
                    "max_version": str(NEWEST),
                    "min_version": str(OLDEST),
                    "status": "CURRENT",
                    "links": [{"rel": "self", "href": ""}],
                }
            ]
        },
        modified=now(),
    )
