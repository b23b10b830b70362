"""/allocation_candidates, /allocations and what belongs to them.

Source: placement-api.md, "Allocation candidates", "Allocations of a provider", "Allocations of a consumer".
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import orjson
from flask import Blueprint, Response, current_app, request

from placement.allocations import candidate_query
from placement.allocations.candidate_query import world_of, world_of_text
from placement.allocations.candidate_schemas import (
    CandidatesInWorldSchema,
    CandidatesSchema,
    ExplanationShownSchema,
    ListedCandidatesSchema,
    ScoredCandidatesSchema,
)
from placement.allocations.candidates import SearchOptions
from placement.allocations.holdings import Include
from placement.allocations.rendering import CandidatesRenderer, score_members
from placement.allocations.schemas import (
    AllocationsListSchema,
    AllocationsSchema,
    ConsumerAllocationsSchema,
    ConsumerPageSchema,
    FilledAllocationsSchema,
    ProviderPageSchema,
    ReshapeSchema,
    UsagesByTypeSchema,
    UsagesQuerySchema,
    UsagesSchema,
)
from placement.allocations.world import NOTHING_DIFFERENT, WorldRequest
from placement.common.microversions import NEWEST, Feature
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.groups import CandidateQuery
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.domain.inventories import (
    ANY_GENERATION,
    MOVE_HEADER,
    UNKNOWN_CONSUMER_TYPE,
    AllocationFilter,
    ConsumerClaim,
    ProviderInventories,
)
from placement.http import context
from placement.http import schemas as fields
from placement.http.context import empty_response, json_response, newest, streamed, use_cases
from placement.http.gate import cluster_of_body, cluster_of_query, route
from placement.http.operations import (
    EMPTY,
    LIMIT,
    PREFIX,
    ROW_ID,
    ByVersion,
    Operation,
    Parameter,
    Parameters,
    described_by,
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
from placement.http.query_grammar import EXTENDED, PARAMETERS, WORLD
from placement.http.schemas import Mapping, Object, dump
from placement.providers.schemas import ProviderAllocationsSchema, inventory_from

allocation_candidates_blueprint = Blueprint("allocation_candidates", __name__)
_SEARCH = "placement:allocation_candidates:list"


@route(
    allocation_candidates_blueprint,
    "/allocation_candidates",
    "GET",
    _SEARCH,
    since=Feature.CANDIDATES,
    gives_json=True,
    described=Operation(
        {200: ByVersion({None: ListedCandidatesSchema, Feature.ALLOCATIONS_BY_PROVIDER: CandidatesSchema})},
        query=PARAMETERS,
    ),
)
def candidates() -> Response:
    """Return the candidates of a request."""
    query = candidate_query.parse_text(request.query_string, context.version())
    renderer = current_app.extensions["placement_candidates_renderer"]
    return streamed(renderer.body(use_cases().candidates.find(query), context.version()))


# The search with orders, preferences, clusters and reasons.
extended_candidates_blueprint = Blueprint("extended_candidates", __name__)
_extended = partial(
    route, extended_candidates_blueprint, "/ext/v1/allocation_candidates", policy=_SEARCH, gives_json=True
)
_found_or_not = partial(Operation, {200: ScoredCandidatesSchema}, errors=[404])


@_extended(method="GET", target=cluster_of_query, described=_found_or_not(query=(*EXTENDED, WORLD)))
def extended_candidates() -> Response:
    """Return candidates, best first, with scores; `explain=1` adds reasons, `world` asks what would be."""
    given = parameters()
    rest = [pair for pair in given if pair[0] != WORLD.name]
    return _found(*candidate_query.parse_extended(rest), world_of_text(single(given, WORLD.name)))


@_extended(
    method="POST", reads=True, target=cluster_of_body, described=_found_or_not(body=CandidatesInWorldSchema)
)
def candidates_by_json() -> Response:
    """Return the candidates of a request in JSON, which may be longer than any URL."""
    body = validated()
    return _found(*candidate_query.parse_json(body), world_of(body.get("world", {})))


def _found(query: CandidateQuery, options: SearchOptions, world: WorldRequest) -> Response:
    if world == NOTHING_DIFFERENT:
        renderer = current_app.extensions["placement_candidates_renderer"]
        search = use_cases().candidates.find(query, options)
    else:
        # The shared renderer keeps summaries of real trees, which do not hold in another world.
        renderer = CandidatesRenderer()
        search = use_cases().planning.candidates(query, options, world)
    members: dict[str, Any] = {}
    if options.explain:
        members["explanation"] = dump(ExplanationShownSchema, search.explanation)
    if options.remarks:
        members["remarks"] = options.remarks
    appendix = orjson.dumps(members)[1:-1]
    table = search.answer.scores()
    scores = None if table is None else score_members(table, options.preferences)
    return streamed(renderer.body(search, context.version(), scores=scores, appendix=appendix))


# /allocations and /resource_providers/{uuid}/allocations.

allocations_blueprint = Blueprint("allocations", __name__)
_one = partial(route, allocations_blueprint, "/allocations/<consumer>")
_writing = partial(Operation, {204: EMPTY}, errors=[409])
_RULE = "placement:allocations:"
_MANY = Mapping(fields.UUID, Object(AllocationsSchema), least=1)


@_one(
    "GET",
    f"{_RULE}list",
    gives_json=True,
    # Any text is allowed, as a consumer that is not named by a uuid holds nothing.
    described=Operation({200: ConsumerAllocationsSchema}, path={"consumer": {"type": "string"}}),
)
def show(consumer: str) -> Response:
    """Return all that one consumer holds; from 1.12 on a valid PUT body at the same version."""
    found = use_cases().holdings.of_consumer(normalize_uuid(consumer) or consumer)
    if found is None:
        return json_response({"allocations": {}})
    body = dump(ConsumerAllocationsSchema, found, context.version())
    return json_response(body, modified=newest(row.created_at for row in found.held))


@_one(
    "PUT",
    f"{_RULE}update",
    described=_writing(
        body=ByVersion(
            {
                None: AllocationsListSchema,
                Feature.ALLOCATIONS_BY_PROVIDER: FilledAllocationsSchema,
                Feature.CONSUMER_GENERATIONS: AllocationsSchema,
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
    is_move = request.headers.get(MOVE_HEADER) == "true"
    use_cases().claims.put([dataclasses.replace(claim_from(uuid, body), is_move=is_move)])
    return empty_response()


def claim_from(uuid: str, body: dict[str, Any]) -> ConsumerClaim:
    """Return the claim of one consumer, from a validated body."""
    project_id, user_id = current_app.extensions["placement_unknown_owner"]
    return ConsumerClaim(
        consumer_uuid=uuid,
        resources={uuid: entry["resources"] for uuid, entry in by_uuid(body["allocations"]).items()},
        project_id=body.get("project_id", project_id),
        user_id=body.get("user_id", user_id),
        generation=body.get("consumer_generation", ANY_GENERATION),
        consumer_type=body.get("consumer_type"),
    )


@_one("DELETE", f"{_RULE}delete", described=_writing())
def delete(consumer: str) -> Response:
    """Release all that one consumer holds."""
    use_cases().claims.release(normalize_uuid(consumer) or consumer)
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
    use_cases().claims.put(claims_from(validated()), of_one_consumer=False)
    return empty_response()


def claims_from(entries: dict[str, dict[str, Any]]) -> list[ConsumerClaim]:
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
    **shows(ProviderAllocationsSchema),
)
def on_provider(uuid: str) -> Response:
    """Return all allocations on one provider, by consumer."""
    found = use_cases().holdings.on_provider(uuid)
    body = dump(ProviderAllocationsSchema, found, context.version())
    return json_response(body, modified=newest(row.created_at for row in found[1]))


# /usages. Source: placement-api.md, "Usages by project".

usages_blueprint = Blueprint("usages", __name__)
_PARAMETERS = described_by(UsagesQuerySchema)


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
    described=Operation(
        {200: ByVersion({None: UsagesSchema, Feature.CONSUMER_TYPES: UsagesByTypeSchema})}, query=_PARAMETERS
    ),
)
def usages() -> Response:
    """Return what a project (and user) uses; from 1.38 on by consumer type."""
    given = parameters()
    query = load(UsagesQuerySchema, context.version(), {key: last(given, key) for key, _ in given}, PREFIX)
    project_id, user_id = query["project_id"], query.get("user_id")
    holdings = use_cases().holdings
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
    described=_writing(body=ReshapeSchema),
)
def reshape() -> Response:
    """Move inventories and allocations together."""
    body, wanted = validated(), []
    for uuid, entry in by_uuid(body["inventories"]).items():
        records = {name: inventory_from(record) for name, record in entry["inventories"].items()}
        wanted.append(ProviderInventories(uuid, entry["resource_provider_generation"], records))
    use_cases().reshaper.reshape(wanted, claims_from(body["allocations"]))
    return empty_response()


# /ext/v1/allocations and /ext/v1/resource_providers: long lists in pages.
listings_blueprint = Blueprint("listings", __name__)
_listing = partial(route, listings_blueprint, method="GET", gives_json=True, target=cluster_of_query)
_UUID = {"type": "string", "format": "uuid"}
_CLUSTER = Parameter("cluster", "The name of a cluster.")
_CONSUMERS = (
    Parameter("project_id", "A project."),
    Parameter("user_id", "A user."),
    Parameter("consumer_type", "A type of consumers; `unknown`: consumers without one."),
    Parameter("consumer_uuid", "One consumer.", _UUID),
    Parameter("resource_provider", "The uuid of a provider.", _UUID),
    _CLUSTER,
    LIMIT,
    Parameter("after", "The `next` of the page before.", _UUID),
)
_PROVIDERS = (
    Parameter("include", f"What is shown of each, by commas: {', '.join(Include)}."),
    _CLUSTER,
    LIMIT,
    Parameter("after", "The `next` of the page before.", ROW_ID),
)


@_listing(
    "/ext/v1/allocations",
    policy="placement:allocations:list_all",
    described=Operation({200: ConsumerPageSchema}, errors=[404], query=_CONSUMERS),
)
def allocations() -> Response:
    """Return allocations by consumer, project, user, type, provider and cluster; `limit` counts consumers."""
    given = parameters()
    refuse_unknown(given, names_of(_CONSUMERS, NEWEST))
    kind = single(given, "consumer_type")
    wanted = AllocationFilter(
        project_id=single(given, "project_id"),
        user_id=single(given, "user_id"),
        consumer_type=None if kind == UNKNOWN_CONSUMER_TYPE else kind,
        untyped=kind == UNKNOWN_CONSUMER_TYPE,
        consumer_uuid=_uuid(given, "consumer_uuid"),
        provider_uuid=_uuid(given, "resource_provider"),
        cluster=single(given, "cluster"),
    )
    page = use_cases().listings.allocations(wanted, _uuid(given, "after"), page_size(given))
    return json_response(dump(ConsumerPageSchema, page))


@_listing(
    "/ext/v1/resource_providers",
    policy="placement:resource_providers:list",
    described=Operation({200: ProviderPageSchema}, errors=[404], query=_PROVIDERS),
)
def resource_providers() -> Response:
    """Return providers with their inventories, usages, traits and aggregates, as far as included."""
    given = parameters()
    refuse_unknown(given, names_of(_PROVIDERS, NEWEST))
    names = [name.strip() for name in (single(given, "include") or "").split(",") if name.strip()]
    unknown: list[Any] = sorted(set(names) - set(Include))
    if unknown:
        raise BadRequest(f"include: {', '.join(unknown)} is none of {', '.join(Include)}")
    include = frozenset(Include(name) for name in names)
    cluster, after = single(given, "cluster"), page_start(given, "after")
    page = use_cases().listings.providers(cluster, include, after, page_size(given))
    return json_response(dump(ProviderPageSchema, page))


def _uuid(given: Parameters, key: str) -> str | None:
    value = single(given, key)
    if value is None:
        return None
    normal = normalize_uuid(value)
    if normal is None:
        raise BadRequest(f"{key}: {value!r} is no uuid")
    return normal
