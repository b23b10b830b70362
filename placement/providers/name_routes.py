"""/resource_classes, /traits and /ext/v1/aggregates.

Source: placement-api.md, "Resource classes", "Traits".
"""

from __future__ import annotations

import re
from functools import partial

from flask import Blueprint, Response

from placement.common.microversions import NEWEST, Feature
from placement.engine.domain.errors import BadRequest, Conflict
from placement.http import context
from placement.http import schemas as fields
from placement.http.context import empty_response, json_response, newest, path, use_cases
from placement.http.gate import cluster_of_query, require_json, route
from placement.http.operations import (
    EMPTY,
    LIMIT,
    ROW_ID,
    ByVersion,
    Operation,
    Parameter,
    last,
    load,
    names_of,
    page_size,
    page_start,
    parameters,
    refuse_unknown,
    shows,
    single,
    validated,
)
from placement.http.schemas import dump
from placement.providers.schemas import (
    AggregateNameSchema,
    AggregateSchema,
    AggregatesSchema,
    ResourceClassesSchema,
    ResourceClassSchema,
    ResourceClassShownSchema,
    TraitsSchema,
)

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
        "`in:` and names, or `startswith:` and how names begin.",
        {"type": "string", "pattern": "^(in|startswith):"},
    ),
    Parameter(
        "associated",
        "Whether a provider has the trait.",
        {"type": "string", "pattern": "^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$"},
    ),
)
_LISTED = (
    Parameter("cluster", "The name of a cluster, of which only the aggregates of its providers are shown."),
    LIMIT,
    Parameter("after", "The `next` of the page before.", ROW_ID),
)
_CUSTOM = re.compile(fields.CUSTOM_NAME.strip("^$"))


@_classes("GET", f"{_RULE}list", **shows(ResourceClassesSchema))
def classes() -> Response:
    """Return all resource classes."""
    found = use_cases().resource_classes.listed()
    body = dump(ResourceClassesSchema, found, context=path(""))
    return json_response(body, modified=newest(entry.created_at for entry in found))


@_classes("POST", f"{_RULE}create", described=_writing({201: EMPTY}, body=ResourceClassSchema))
def create_class() -> Response:
    """Create a custom class."""
    name = validated()["name"]
    if not use_cases().resource_classes.create(name):
        raise Conflict(f"Conflicting resource class already exists: {name}")
    return empty_response(201, location=f"/resource_classes/{name}")


@_class("GET", f"{_RULE}show", **shows(ResourceClassShownSchema))
def show_class(name: str) -> Response:
    """Return one resource class."""
    entry = use_cases().resource_classes.get(name)
    return json_response(
        dump(ResourceClassShownSchema, entry.name, context=path("")), modified=entry.created_at
    )


@_class(
    "PUT",
    f"{_RULE}update",
    described=_writing(
        {
            200: ByVersion({None: ResourceClassShownSchema, Feature.PUT_CREATES_CLASS: None}),
            201: ByVersion({Feature.PUT_CREATES_CLASS: EMPTY}),
            204: ByVersion({Feature.PUT_CREATES_CLASS: EMPTY}),
        },
        body=ByVersion({None: ResourceClassSchema, Feature.PUT_CREATES_CLASS: None}),
    ),
)
def put_class(name: str) -> Response:
    """Create or confirm a custom class; before 1.7: rename it."""
    if not context.offers(Feature.PUT_CREATES_CLASS):
        require_json()
        new = validated()["name"]
        use_cases().resource_classes.rename(name, new)
        return json_response(dump(ResourceClassShownSchema, new, context=path("")))
    load(ResourceClassSchema, context.version(), {"name": name})
    created = use_cases().resource_classes.create(name)
    return empty_response(201 if created else 204, location=f"/resource_classes/{name}")


@_class("DELETE", f"{_RULE}delete", described=_DELETED)
def delete_class(name: str) -> Response:
    """Delete an unused custom class."""
    use_cases().resource_classes.delete(name)
    return empty_response()


@_traits("GET", f"{_TRAITS}list", **shows(TraitsSchema, _FILTERS))
def traits() -> Response:
    """Return the traits that pass the filters."""
    given = parameters()
    refuse_unknown(given, names_of(_FILTERS, context.version()))
    name, associated = last(given, "name"), last(given, "associated")
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
    found = use_cases().traits.listed(only, prefix, carried)
    return json_response(dump(TraitsSchema, found), modified=newest(entry.created_at for entry in found))


@_trait("PUT", f"{_TRAITS}update", described=Operation({201: EMPTY, 204: EMPTY}))
def put_trait(name: str) -> Response:
    """Create or confirm a custom trait."""
    if len(name) > fields.LONGEST_NAME or not _CUSTOM.fullmatch(name):
        raise BadRequest(
            "The trait is invalid. A valid trait must be no longer than 255 characters, start with the "
            'prefix "CUSTOM_" and use following characters: "A"-"Z", "0"-"9" and "_"'
        )
    created, when = use_cases().traits.create(name)
    return empty_response(201 if created else 204, modified=when, location=f"/traits/{name}")


@_trait("GET", f"{_TRAITS}show", described=Operation({204: EMPTY}))
def show_trait(name: str) -> Response:
    """Check that a trait exists."""
    return empty_response(modified=use_cases().traits.get(name).created_at)


@_trait("DELETE", f"{_TRAITS}delete", described=_DELETED)
def delete_trait(name: str) -> Response:
    """Delete an unused custom trait."""
    use_cases().traits.delete(name)
    return empty_response()


# /ext/v1/aggregates: the names that people know aggregates by.


@_aggregates("GET", "placement:aggregates:list", target=cluster_of_query, **shows(AggregatesSchema, _LISTED))
def aggregates() -> Response:
    """Return aggregates with their names, page by page."""
    given = parameters()
    refuse_unknown(given, names_of(_LISTED, NEWEST))
    after, count = page_start(given, "after"), page_size(given)
    found = use_cases().aggregates.listed(single(given, "cluster"), after, count)
    return json_response(dump(AggregatesSchema, found))


@_aggregate(
    "PUT",
    "placement:aggregates:update",
    described=_writing({200: AggregateSchema}, body=AggregateNameSchema),
)
def name_aggregate(uuid: str) -> Response:
    """Name an aggregate, or take its name away; that of a cluster keeps the name of the cluster."""
    found = use_cases().aggregates.rename(uuid, validated()["name"])
    return json_response(dump(AggregateSchema, found))
