"""/resource_classes, /traits and /ext/v1/aggregates.

Source: placement-api.md, "Resource classes", "Traits".
"""

from __future__ import annotations

import re
from functools import partial

from flask import Blueprint, Response

from placement.common.microversions import NEWEST, Feature
from placement.engine.domain.errors import BadRequest, Conflict
from placement.http import context, query_strings
from placement.http import schemas as fields
from placement.http.answers import empty_response, json_response, newest, path
from placement.http.bodies import parameters, validated
from placement.http.context import service
from placement.http.gate import require_json, route
from placement.http.operations import EMPTY, ByVersion, Operation, Parameter, load, names_of, shows
from placement.http.schemas import dump
from placement.http.targets import cluster_of_query
from placement.providers import schemas
from placement.providers.service import Aggregates, ResourceClasses, Traits

blueprint = Blueprint("names", __name__)
_RULE, _TRAITS = "placement:resource_classes:", "placement:traits:"
_classes = partial(route, blueprint, "/resource_classes", since=Feature.RESOURCE_CLASSES)
_class = partial(route, blueprint, "/resource_classes/<name>", since=Feature.RESOURCE_CLASSES)
_traits = partial(route, blueprint, "/traits", since=Feature.TRAITS)
_trait = partial(route, blueprint, "/traits/<name>", since=Feature.TRAITS)
_aggregates = partial(route, blueprint, "/ext/v1/aggregates", gives_json=True)
_aggregate = partial(route, blueprint, "/ext/v1/aggregates/<uuid>", gives_json=True)
_writing = partial(Operation, errors=[409])
_DELETED = _writing({204: EMPTY})
_FILTERS = (
    Parameter(
        "name",
        "`in:` and names, or `startswith:` and the start of a name.",
        {"type": "string", "pattern": "^(in|startswith):"},
    ),
    Parameter(
        "associated",
        "Whether a provider has the trait.",
        {"type": "string", "pattern": "^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$"},
    ),
)
_LISTED = (
    Parameter("cluster", "Only the aggregates of the providers of this cluster."),
    query_strings.LIMIT,
    Parameter("after", "The `next` of the previous page.", query_strings.ROW_ID),
)
_CUSTOM = re.compile(fields.CUSTOM_NAME.strip("^$"))


@_classes("GET", f"{_RULE}list", **shows(schemas.ResourceClassesSchema))
def classes() -> Response:
    """Return all resource classes."""
    found = service(ResourceClasses).listed()
    body = dump(schemas.ResourceClassesSchema, found, context=path(""))
    return json_response(body, modified=newest(entry.created_at for entry in found))


@_classes("POST", f"{_RULE}create", described=_writing({201: EMPTY}, body=schemas.ResourceClassSchema))
def create_class() -> Response:
    """Create a custom class."""
    name = validated()["name"]
    if not service(ResourceClasses).create(name):
        raise Conflict(f"Conflicting resource class already exists: {name}")
    return empty_response(201, location=f"/resource_classes/{name}")


@_class("GET", f"{_RULE}show", **shows(schemas.ResourceClassShownSchema))
def show_class(name: str) -> Response:
    """Return one resource class."""
    entry = service(ResourceClasses).get(name)
    return json_response(
        dump(schemas.ResourceClassShownSchema, entry.name, context=path("")), modified=entry.created_at
    )


@_class(
    "PUT",
    f"{_RULE}update",
    described=_writing(
        {
            200: ByVersion({None: schemas.ResourceClassShownSchema, Feature.PUT_CREATES_CLASS: None}),
            201: ByVersion({Feature.PUT_CREATES_CLASS: EMPTY}),
            204: ByVersion({Feature.PUT_CREATES_CLASS: EMPTY}),
        },
        body=ByVersion({None: schemas.ResourceClassSchema, Feature.PUT_CREATES_CLASS: None}),
    ),
)
def put_class(name: str) -> Response:
    """Create or confirm a custom class; before 1.7: rename it."""
    if not context.offers(Feature.PUT_CREATES_CLASS):
        require_json()
        new = validated()["name"]
        service(ResourceClasses).rename(name, new)
        return json_response(dump(schemas.ResourceClassShownSchema, new, context=path("")))
    load(schemas.ResourceClassSchema, context.version(), {"name": name}, own=False)
    created = service(ResourceClasses).create(name)
    return empty_response(201 if created else 204, location=f"/resource_classes/{name}")


@_class("DELETE", f"{_RULE}delete", described=_DELETED)
def delete_class(name: str) -> Response:
    """Delete an unused custom class."""
    service(ResourceClasses).delete(name)
    return empty_response()


@_traits("GET", f"{_TRAITS}list", **shows(schemas.TraitsSchema, _FILTERS))
def traits() -> Response:
    """Return the traits that pass the filters."""
    given = parameters()
    query_strings.refuse_unknown(given, names_of(_FILTERS, context.version()), own=False)
    name, associated = query_strings.last(given, "name"), query_strings.last(given, "associated")
    only = prefix = None
    if name is not None:
        operator, colon, value = name.partition(":")
        if not colon or operator not in ("in", "startswith"):
            raise BadRequest(
                "Badly formatted name parameter. Expected name query string parameter in form: "
                f'?name=[in|startswith]:[name1,name2|prefix]. Got: "{name}"'
            )
        only, prefix = (frozenset(value.split(",")), None) if operator == "in" else (None, value)
    if associated is not None and associated.lower() not in ("true", "false"):
        raise BadRequest(
            f'The query parameter "associated" only accepts "true" or "false". Got: "{associated}"'
        )
    carried = None if associated is None else associated.lower() == "true"
    found = service(Traits).listed(only, prefix, carried)
    return json_response(
        dump(schemas.TraitsSchema, found), modified=newest(entry.created_at for entry in found)
    )


@_trait("PUT", f"{_TRAITS}update", described=Operation({201: EMPTY, 204: EMPTY}))
def put_trait(name: str) -> Response:
    """Create or confirm a custom trait."""
    if len(name) > fields.LONGEST_NAME or not _CUSTOM.fullmatch(name):
        raise BadRequest(
            "The trait is invalid. A valid trait must be no longer than 255 characters, start with the "
            'prefix "CUSTOM_" and use following characters: "A"-"Z", "0"-"9" and "_"'
        )
    created, when = service(Traits).create(name)
    return empty_response(201 if created else 204, modified=when, location=f"/traits/{name}")


@_trait("GET", f"{_TRAITS}show", described=Operation({204: EMPTY}))
def show_trait(name: str) -> Response:
    """Check that a trait exists."""
    return empty_response(modified=service(Traits).get(name).created_at)


@_trait("DELETE", f"{_TRAITS}delete", described=_DELETED)
def delete_trait(name: str) -> Response:
    """Delete an unused custom trait."""
    service(Traits).delete(name)
    return empty_response()


# /ext/v1/aggregates: the names that people know aggregates by.


@_aggregates(
    "GET", "placement:aggregates:list", target=cluster_of_query, **shows(schemas.AggregatesSchema, _LISTED)
)
def aggregates() -> Response:
    """Return aggregates with their names, page by page."""
    given = parameters()
    query_strings.refuse_unknown(given, names_of(_LISTED, NEWEST))
    after, count = query_strings.page_start(given, "after"), query_strings.page_size(given)
    found = service(Aggregates).listed(query_strings.single(given, "cluster"), after, count)
    return json_response(dump(schemas.AggregatesSchema, found))


@_aggregate(
    "PUT",
    "placement:aggregates:update",
    described=_writing({200: schemas.NamedAggregateSchema}, body=schemas.AggregateNameSchema),
)
def name_aggregate(uuid: str) -> Response:
    """Name an aggregate, or take its name away; that of a cluster keeps the name of the cluster."""
    found = service(Aggregates).rename(uuid, validated()["name"])
    return json_response(dump(schemas.NamedAggregateSchema, found))
