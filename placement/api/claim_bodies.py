"""The bodies of /ext/v1/claims: who claims what, for one consumer or for many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from placement.api import context, extended_query, json_query
from placement.api.bodies import BODY_PREFIX
from placement.api.queries import read
from placement.api.schemas.base import load
from placement.api.schemas.candidates import CandidatesBody, ClaimForMany, NewClaim, NewJsonClaim
from placement.domain.errors import BadRequest
from placement.services.placement.best_fit import Applicant, Application
from placement.services.placement.shortlists import Wish

CLAIMANT = ("consumer_uuid", "project_id", "user_id", "consumer_type")


def application(given: object) -> Application:
    """Who claims, and what. Raises BadRequest."""
    is_json = isinstance(given, dict) and isinstance(given.get("query"), dict)
    body = load(NewJsonClaim if is_json else NewClaim, context.version(), given, BODY_PREFIX)
    query = body.pop("query")
    return Application(Applicant(**body), _wish(query))


def applications(given: object) -> tuple[list[Application], bool]:
    """Who claims what in a body for many, and whether for all or none. Raises BadRequest naming the place."""
    body = load(ClaimForMany, context.version(), given, BODY_PREFIX)
    wishes: dict[str | bytes, Wish] = {}
    found: list[Application] = []
    for place, member in enumerate(body["members"]):
        said = {name: _said(name, place, member, body) for name in CLAIMANT}
        query = _said("query", place, member, body)
        key = query if isinstance(query, str) else orjson.dumps(query, option=orjson.OPT_SORT_KEYS)
        if key not in wishes:
            wishes[key] = _wish_at(f"members[{place}]", query)
        found.append(Application(Applicant(**said), wishes[key]))
    _refuse_twins(found)
    return found, body.get("atomic", False)


def _said(name: str, place: int, member: Mapping[str, Any], body: Mapping[str, Any]) -> Any:
    """What a member says, or all have in common."""
    value = member.get(name, body.get(name))
    if value is None:
        raise BadRequest(f"members[{place}].{name}: is missing, and the claim says none for all members")
    return value


def _refuse_twins(found: list[Application]) -> None:
    places: dict[str, int] = {}
    for place, each in enumerate(found):
        uuid = each.applicant.consumer_uuid
        if places.setdefault(uuid, place) != place:
            raise BadRequest(
                f"members[{place}].consumer_uuid: {uuid} is that of members[{places[uuid]}], too"
            )


def _wish_at(place: str, query: object) -> Wish:
    try:
        if isinstance(query, dict):
            return _wish(load(CandidatesBody, context.version(), query, ""))
        if isinstance(query, str):
            return _wish(query)
        raise BadRequest("must be a query string or a query in JSON")
    except BadRequest as error:
        raise BadRequest(f"{place}.query: {error}", code=error.code) from None


def _wish(given: str | Mapping[str, Any]) -> Wish:
    """A query that keeps to its schema. Raises BadRequest."""
    query, options = extended_query.parse(read(given)) if isinstance(given, str) else json_query.parse(given)
    if options.explain or query.limit is not None:
        raise BadRequest("query: limit and explain make no sense in a claim")
    return Wish(query, options)
