"""/ext/v1/names: what people call projects, users and consumers."""

from __future__ import annotations

from functools import partial

from flask import Blueprint, Response

from placement.common.microversions import NEWEST
from placement.engine.domain.errors import BadRequest, parameter
from placement.engine.domain.given_names import GivenNameKind
from placement.engine.domain.identifiers import normalize_uuid
from placement.http import query_strings
from placement.http.answers import json_response
from placement.http.bodies import parameters, validated
from placement.http.context import service
from placement.http.gate import route
from placement.http.operations import Operation, Parameter, names_of, shows
from placement.http.schemas import dump
from placement.http.targets import cluster_of_query
from placement.names import schemas
from placement.names.service import GivenNames, keys_of

blueprint = Blueprint("given_names", __name__)
_names = partial(route, blueprint, "/ext/v1/names", gives_json=True)
_KINDS = [str(kind) for kind in GivenNameKind]
_FILTERS = ("kind", "uuid", "name")
_LISTED = (
    Parameter("kind", "Only names of things of this kind.", {"type": "string", "enum": _KINDS}),
    Parameter("uuid", "Only what has this id; that of a consumer may be without dashes if `kind` is given."),
    Parameter("name", "Only what has this name."),
    Parameter("cluster", "Only consumers that hold something in this cluster, their projects and users."),
    query_strings.LIMIT,
    Parameter("after", "The `next` of the previous page.", query_strings.ROW_ID),
)


@_names("GET", "placement:names:list", target=cluster_of_query, **shows(schemas.GivenNamesSchema, _LISTED))
def listed() -> Response:
    """Return names with their writers, page by page."""
    given = parameters()
    query_strings.refuse_unknown(given, names_of(_LISTED, NEWEST))
    filters = {key: value for key in _FILTERS if (value := query_strings.single(given, key)) is not None}
    kind = filters.get("kind", _KINDS[0])
    if kind not in _KINDS:
        raise BadRequest(f"{kind!r} is not one of {', '.join(_KINDS)}", place=parameter("kind"))
    if kind == GivenNameKind.CONSUMER and "uuid" in filters:
        filters["uuid"] = normalize_uuid(filters["uuid"]) or filters["uuid"]
    after, count = query_strings.page_start(given, "after"), query_strings.page_size(given)
    found = service(GivenNames).listed(filters, query_strings.single(given, "cluster"), after, count)
    return json_response(dump(schemas.GivenNamesSchema, found))


@_names(
    "PUT",
    "placement:names:update",
    described=Operation({200: schemas.WrittenNamesSchema}, errors=[409], body=schemas.NewNamesSchema),
)
def write() -> Response:
    """Name many projects, users and consumers at once, or take names away; all or nothing."""
    return json_response(
        dump(schemas.WrittenNamesSchema, service(GivenNames).write(keys_of(validated()["names"])))
    )
