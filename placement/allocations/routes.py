"""/allocations, /usages and /reshaper, and lists of what is held.

Source: placement-api.md, "Allocations of a provider", "Allocations of a consumer".
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from flask import Blueprint, Response, request

from placement.allocations import schemas
from placement.allocations.candidates import CandidateSearch
from placement.allocations.claims import Claims
from placement.allocations.holdings import Holdings, Include, Listings
from placement.allocations.reshaper import Reshaper
from placement.common.microversions import NEWEST, Feature
from placement.engine.domain import claims
from placement.engine.domain.errors import BadRequest, parameter
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.domain.inventories import ProviderInventories
from placement.http import context, operations, query_strings
from placement.http import schemas as fields
from placement.http.answers import empty_response, json_response, newest
from placement.http.bodies import parameters, validated
from placement.http.context import component, service
from placement.http.gate import route
from placement.http.schemas import Mapping, Object, dump
from placement.http.targets import cluster_of_query
from placement.providers.schemas import ProviderAllocationsSchema, inventory_from

allocations_blueprint = Blueprint("allocations", __name__)
_one = partial(route, allocations_blueprint, "/allocations/<consumer>")
_writing = partial(operations.Operation, {204: operations.EMPTY}, errors=[409])
_RULE = "placement:allocations:"
_MANY = Mapping(fields.UUID, Object(schemas.AllocationsSchema), least=1)


@_one(
    "GET",
    f"{_RULE}list",
    gives_json=True,
    # Any text is allowed, as a consumer that is not named by a uuid holds nothing.
    described=operations.Operation(
        {200: schemas.ConsumerAllocationsSchema}, path={"consumer": {"type": "string"}}
    ),
)
def show(consumer: str) -> Response:
    """Return all that one consumer holds; from 1.12 on a valid PUT body at the same version."""
    found = service(Holdings).of_consumer(normalize_uuid(consumer) or consumer)
    if found is None:
        return json_response({"allocations": {}})
    body = dump(schemas.ConsumerAllocationsSchema, found, context.version())
    return json_response(body, modified=newest(row.created_at for row in found.holdings))


@_one(
    "PUT",
    f"{_RULE}update",
    described=_writing(
        body=operations.ByVersion(
            {
                None: schemas.AllocationsListSchema,
                Feature.ALLOCATIONS_BY_PROVIDER: schemas.FilledAllocationsSchema,
                Feature.CONSUMER_GENERATIONS: schemas.AllocationsSchema,
            }
        ),
    ),
)
def replace(consumer: str) -> Response:
    """Replace all that one consumer holds; the request that is kept with it survives only a move."""
    uuid = normalize_uuid(consumer)
    if uuid is None:
        raise BadRequest(f"Malformed consumer_uuid: {consumer}")
    body = validated()
    if not context.offers(Feature.ALLOCATIONS_BY_PROVIDER):
        body["allocations"] = {
            entry["resource_provider"]["uuid"]: {"resources": entry["resources"]}
            for entry in body["allocations"]
        }
    is_move = request.headers.get(claims.MOVE_HEADER) == "true"
    service(Claims).put([dataclasses.replace(claim_from(uuid, body), is_move=is_move)])
    return empty_response()


def claim_from(uuid: str, body: dict[str, Any]) -> claims.ConsumerClaim:
    """Return the claim of one consumer, from a validated body."""
    project_id, user_id = component(claims.UnknownOwner)
    return claims.ConsumerClaim(
        consumer_uuid=uuid,
        resources={uuid: entry["resources"] for uuid, entry in by_uuid(body["allocations"]).items()},
        project_id=body.get("project_id", project_id),
        user_id=body.get("user_id", user_id),
        generation=body.get("consumer_generation", claims.ANY_GENERATION),
        consumer_type=body.get("consumer_type"),
    )


@_one("DELETE", f"{_RULE}delete", described=_writing())
def delete(consumer: str) -> Response:
    """Release all that one consumer holds."""
    service(Claims).release(normalize_uuid(consumer) or consumer)
    return empty_response()


@route(
    allocations_blueprint,
    "/allocations",
    "POST",
    f"{_RULE}manage",
    since=Feature.POST_ALLOCATIONS,
    described=_writing(body=_MANY),
)
def manage() -> Response:
    """Replace what many consumers hold, all or nothing."""
    service(Claims).put(claims_from(validated()), names_consumer=False)
    return empty_response()


def claims_from(entries: dict[str, dict[str, Any]]) -> list[claims.ConsumerClaim]:
    """Return the claims of many consumers. Raises BadRequest for keys that are no uuid."""
    for key in entries:
        if normalize_uuid(key) is None:
            raise BadRequest(f"Malformed consumer_uuid: {key}")
    return [claim_from(uuid, entry) for uuid, entry in by_uuid(entries).items()]


def by_uuid(entries: dict[str, Any]) -> dict[str, Any]:
    """Return the entries under normalised uuids. Raises BadRequest for one uuid in two spellings."""
    found: dict[str, Any] = {}
    for key, entry in entries.items():
        uuid = normalize_uuid(key) or key
        if uuid in found:
            raise BadRequest(f"JSON does not validate: {uuid} occurs twice, in two spellings.")
        found[uuid] = entry
    return found


@route(
    allocations_blueprint,
    "/resource_providers/<uuid>/allocations",
    "GET",
    "placement:resource_providers:allocations:list",
    **operations.shows(ProviderAllocationsSchema),
)
def on_provider(uuid: str) -> Response:
    """Return all allocations on one provider, by consumer."""
    found = service(Holdings).on_provider(uuid)
    body = dump(ProviderAllocationsSchema, found, context.version())
    return json_response(body, modified=newest(row.created_at for row in found[1]))


# /usages. Source: placement-api.md, "Usages by project".

usages_blueprint = Blueprint("usages", __name__)
_PARAMETERS = operations.described_by(schemas.UsagesQuerySchema)


def _project() -> dict[str, str]:
    """Return the project for the policy rule, as readers may ask about their own."""
    values = request.args.getlist("project_id")
    return {"project_id": values[-1]} if values else {}


@route(
    usages_blueprint,
    "/usages",
    "GET",
    "placement:usages",
    since=Feature.USAGES,
    target=_project,
    gives_json=True,
    described=operations.Operation(
        {
            200: operations.ByVersion(
                {None: schemas.UsagesSchema, Feature.CONSUMER_TYPES: schemas.UsagesByTypeSchema}
            )
        },
        query=_PARAMETERS,
    ),
)
def usages() -> Response:
    """Return what a project (and user) uses; from 1.38 on by consumer type."""
    given = parameters()
    query = operations.load(
        schemas.UsagesQuerySchema,
        context.version(),
        {key: query_strings.last(given, key) for key, _ in given},
        operations.PREFIX,
        own=False,
    )
    project_id, user_id = query["project_id"], query.get("user_id")
    holdings = service(Holdings)
    if not context.offers(Feature.CONSUMER_TYPES):
        return json_response({"usages": holdings.used_by_project(project_id, user_id)})
    found = holdings.used_by_type(project_id, user_id, query.get("consumer_type"))
    body: dict[str, Any] = {
        name: {**amounts, "consumer_count": count} for name, (amounts, count) in found.items()
    }
    return json_response({"usages": body})


# /reshaper. Source: placement-api.md, "Reshaper".

reshaper_blueprint = Blueprint("reshaper", __name__)


@route(
    reshaper_blueprint,
    "/reshaper",
    "POST",
    "placement:reshaper:reshape",
    since=Feature.RESHAPER,
    described=_writing(body=schemas.ReshapeSchema),
)
def reshape() -> Response:
    """Move inventories and allocations together."""
    body, wanted = validated(), []
    for uuid, entry in by_uuid(body["inventories"]).items():
        records = {name: inventory_from(record) for name, record in entry["inventories"].items()}
        wanted.append(ProviderInventories(uuid, entry["resource_provider_generation"], records))
    service(Reshaper).reshape(wanted, claims_from(body["allocations"]))
    return empty_response()


# /ext/v1/allocations and /ext/v1/resource_providers: long lists in pages.
listings_blueprint = Blueprint("listings", __name__)
_listing = partial(route, listings_blueprint, method="GET", gives_json=True, target=cluster_of_query)
_UUID = {"type": "string", "format": "uuid"}
_CLUSTER = operations.Parameter("cluster", "The name of a cluster.")
_CONSUMERS = (
    operations.Parameter("project_id", "A project."),
    operations.Parameter("user_id", "A user."),
    operations.Parameter("consumer_type", "A type of consumers; `unknown`: consumers without one."),
    operations.Parameter("consumer_uuid", "One consumer.", _UUID),
    operations.Parameter("resource_provider", "The name or uuid of a provider: what is held of it alone."),
    operations.Parameter("host", "The name or uuid of a host: what is held of it and of all its parts."),
    operations.Parameter("resource_class", "The name of a resource class: what is held of it alone."),
    _CLUSTER,
    query_strings.LIMIT,
    operations.Parameter("after", "The `next` of the previous page.", _UUID),
)
_PROVIDERS = (
    operations.Parameter("include", f"What is shown of each, by commas: {', '.join(Include)}."),
    _CLUSTER,
    query_strings.LIMIT,
    operations.Parameter("after", "The `next` of the previous page.", query_strings.ROW_ID),
)


@_listing(
    "/ext/v1/allocations",
    policy="placement:allocations:list_all",
    described=operations.Operation({200: schemas.ConsumerPageSchema}, errors=[404], query=_CONSUMERS),
)
def allocations() -> Response:
    """Return allocations by consumer, by all that the parameters name; `limit` counts consumers."""
    given = parameters()
    query_strings.refuse_unknown(given, operations.names_of(_CONSUMERS, NEWEST))
    kind = query_strings.single(given, "consumer_type")
    filter_ = claims.AllocationFilter(
        project_id=query_strings.single(given, "project_id"),
        user_id=query_strings.single(given, "user_id"),
        consumer_type=None if kind == claims.UNKNOWN_CONSUMER_TYPE else kind,
        untyped=kind == claims.UNKNOWN_CONSUMER_TYPE,
        consumer_uuid=_uuid(given, "consumer_uuid"),
        provider_uuid=_provider(given, "resource_provider"),
        host=_provider(given, "host"),
        cluster=query_strings.single(given, "cluster"),
        resource_class=query_strings.single(given, "resource_class"),
    )
    page = service(Listings).allocations(filter_, _uuid(given, "after"), query_strings.page_size(given))
    return json_response(dump(schemas.ConsumerPageSchema, page))


@_listing(
    "/ext/v1/resource_providers",
    policy="placement:resource_providers:list",
    described=operations.Operation({200: schemas.ProviderPageSchema}, errors=[404], query=_PROVIDERS),
)
def resource_providers() -> Response:
    """Return providers with their inventories, usages, traits and aggregates, as far as included."""
    given = parameters()
    query_strings.refuse_unknown(given, operations.names_of(_PROVIDERS, NEWEST))
    names = [
        name.strip() for name in (query_strings.single(given, "include") or "").split(",") if name.strip()
    ]
    unknown: list[Any] = sorted(set(names) - set(Include))
    if unknown:
        raise BadRequest(
            f"{', '.join(unknown)} is not one of {', '.join(Include)}", place=parameter("include")
        )
    include = frozenset(Include(name) for name in names)
    cluster, after = query_strings.single(given, "cluster"), query_strings.page_start(given, "after")
    page = service(Listings).providers(cluster, include, after, query_strings.page_size(given))
    return json_response(dump(schemas.ProviderPageSchema, page))


def _provider(given: query_strings.Parameters, key: str) -> str | None:
    """Return the uuid of the provider that a parameter calls. Raises BadRequest for an unknown name."""
    called = query_strings.single(given, key)
    if called is None:
        return None
    return service(CandidateSearch).called.providers({called: parameter(key)})[called]


def _uuid(given: query_strings.Parameters, key: str) -> str | None:
    value = query_strings.single(given, key)
    if value is None:
        return None
    normal = normalize_uuid(value)
    if normal is None:
        raise BadRequest(f"{value!r} is not a UUID", place=parameter(key))
    return normal
