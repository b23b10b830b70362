"""/usages. Source: placement-api.md, "Usages by project"."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request

from placement.api import context
from placement.api.context import use_cases
from placement.api.described import ByVersion, Operation, described_by
from placement.api.microversions import Feature
from placement.api.queries import PREFIX, last, parameters
from placement.api.responses import json_response
from placement.api.route_guard import route
from placement.api.schemas.allocations import UsagesQuery
from placement.api.schemas.answers.allocations import Usages, UsagesByType
from placement.api.schemas.base import load

blueprint = Blueprint("usages", __name__)
_PARAMETERS = described_by(UsagesQuery)


def _project() -> dict[str, str]:
    """Readers may ask about their own project, so the rule has to see which one it is."""
    values = request.args.getlist("project_id")
    return {"project_id": values[-1]} if values else {}


@route(
    blueprint,
    "/usages",
    "GET",
    "placement:usages",
    since=Feature.USAGES,
    gives_json=True,
    target=_project,
    described=Operation(
        {200: ByVersion({None: Usages, Feature.CONSUMER_TYPES: UsagesByType})}, query=_PARAMETERS
    ),
)
def usages() -> Response:
    """What a project (and user) uses; from 1.38 on by consumer type."""
    given = parameters()
    query = load(UsagesQuery, context.version(), {key: last(given, key) for key, _ in given}, PREFIX)
    project_id, user_id = query["project_id"], query.get("user_id")
    holdings = use_cases().holdings
    if not context.offers(Feature.CONSUMER_TYPES):
        return json_response({"usages": holdings.used_by_project(project_id, user_id)})
    found = holdings.used_by_type(project_id, user_id, query.get("consumer_type"))
    body: dict[str, Any] = {
        name: {**use.resources, "consumer_count": use.consumers} for name, use in found.items()
    }
    return json_response({"usages": body})
