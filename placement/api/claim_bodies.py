"""The bodies of /ext/v1/claims: who claims what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.api import context, extended_query, json_query
from placement.api.bodies import BODY_PREFIX
from placement.api.queries import read
from placement.api.schemas.base import load
from placement.api.schemas.candidates import CandidatesBody, NewClaim, NewJsonClaim
from placement.domain.errors import BadRequest
from placement.services.placement.applications import Applicant, Application
from placement.services.placement.shortlists import Wish

CLAIMANT = ("consumer_uuid", "project_id", "user_id", "consumer_type")


def application(given: object) -> Application:
    """Who claims, and what. Raises BadRequest."""
    is_json = isinstance(given, dict) and isinstance(given.get("query"), dict)
    body = load(NewJsonClaim if is_json else NewClaim, context.version(), given, BODY_PREFIX)
    query = body.pop("query")
    return Application(Applicant(**body), _wish(query, "query: "))


def wish_at(place: str, query: object) -> Wish:
    """What the query at a place of a body asks for, a text or JSON. Raises BadRequest naming the place."""
    try:
        if isinstance(query, dict):
            return _wish(load(CandidatesBody, context.version(), query, ""), "")
        if isinstance(query, str):
            return _wish(query, "")
        raise BadRequest("must be a query string or a query in JSON")
    except BadRequest as error:
        raise BadRequest(f"{place}: {error}", code=error.code) from None


def _wish(given: str | Mapping[str, Any], place: str) -> Wish:
    """A query that keeps to its schema. Raises BadRequest."""
    query, options = extended_query.parse(read(given)) if isinstance(given, str) else json_query.parse(given)
    if options.explain or query.limit is not None:
        raise BadRequest(f"{place}limit and explain make no sense in a claim")
    return Wish(query, options)
