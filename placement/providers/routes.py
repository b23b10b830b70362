"""/resource_providers. Source: placement-api.md, "Resource providers", "Provider list filters"."""

from __future__ import annotations

import uuid as uuids
from typing import Any

from flask import Blueprint, Response

from placement.common.microversions import Feature
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.groups import RequestGroup
from placement.engine.domain.identifiers import is_dashed_uuid
from placement.engine.domain.inventories import Inventory
from placement.http import context, query_grammar
from placement.http.context import use_cases
from placement.http.fields import shown
from placement.http.gate import route
from placement.http.operations import (
    EMPTY,
    ByVersion,
    Operation,
    Parameter,
    Parameters,
    every,
    last,
    names_of,
    parameters,
    refuse_unknown,
    refuse_value,
    validated,
)
from placement.http.responses import empty_response, json_response, list_response, newest, now
from placement.providers.schemas import (
    AGGREGATES_LIST,
    AllInventoriesSchema,
    ChangedProviderSchema,
    InventoriesSchema,
    InventorySchema,
    NewInventorySchema,
    NewProviderSchema,
    OneInventorySchema,
    ProviderAggregatesSchema,
    ProviderAggregatesShownSchema,
    ProviderSchema,
    ProvidersSchema,
    ProviderTraitsSchema,
    ProviderTraitsShownSchema,
    ProviderUsagesSchema,
    inventory_body,
    inventory_from,
    provider_body,
    provider_renderer,
)
from placement.providers.service import Parent

resource_providers_blueprint = Blueprint("resource_providers", __name__)
_ONE = "/resource_providers/<uuid>"
_RULE = "placement:resource_providers:"
_UUID = {"type": "string", "format": "uuid"}
_FILTERS = (
    Parameter("name", "The name of a provider."),
    Parameter("uuid", "The uuid of a provider, with dashes.", _UUID),
    Parameter(
        "member_of",
        "An aggregate, `in:` and several, or `!` and what is forbidden.",
        since=Feature.PROVIDERS_BY_AGGREGATE,
        repeated=Feature.REPEATED_MEMBER_OF,
    ),
    Parameter("resources", "Amounts, `VCPU:2,MEMORY_MB:512`.", since=Feature.PROVIDERS_BY_RESOURCES),
    Parameter("in_tree", "The uuid of a provider of the tree.", _UUID, since=Feature.NESTED_PROVIDERS),
    Parameter(
        "required",
        "Traits, `!` before forbidden ones, `in:` before some of which one is enough.",
        since=Feature.PROVIDERS_BY_TRAITS,
        repeated=Feature.ANY_OF_TRAITS,
    ),
)


@route(
    resource_providers_blueprint,
    "/resource_providers",
    "GET",
    f"{_RULE}list",
    gives_json=True,
    described=Operation({200: ProvidersSchema}, query=_FILTERS),
)
def list_providers() -> Response:
    """Return the providers that satisfy all filters, each judged alone."""
    given = parameters()
    refuse_unknown(given, names_of(_FILTERS, context.version()))
    uuid, in_tree = _dashed_uuid(given, "uuid"), _dashed_uuid(given, "in_tree")
    forms = query_grammar.grammar_of(context.version())
    resources = last(given, "resources")
    traits = query_grammar.parse_required(every(given, "required"), forms)
    aggregates = query_grammar.parse_member_of(every(given, "member_of"), forms)
    group = RequestGroup(
        resources={} if resources is None else query_grammar.parse_resources(resources),
        required=traits.required,
        forbidden=traits.forbidden,
        member_of=aggregates.required,
        forbidden_aggregates=aggregates.forbidden,
        in_tree=in_tree,
    )
    found = use_cases().providers.listed(last(given, "name") or None, uuid, group)
    modified = newest(provider.changed_at for provider in found)
    return list_response("resource_providers", found, provider_renderer(), modified=modified)


def _dashed_uuid(given: Parameters, key: str) -> str | None:
    """Return a parameter that is taken literally. Raises BadRequest unless it is a uuid with dashes."""
    value = last(given, key)
    if value is not None and not is_dashed_uuid(value):
        raise refuse_value(given, key, value, f"{shown(value)} is not a 'uuid'", "format")
    return value


@route(
    resource_providers_blueprint,
    "/resource_providers",
    "POST",
    f"{_RULE}create",
    described=Operation(
        {
            200: ByVersion({Feature.POST_PROVIDER_BODY: ProviderSchema}),
            201: ByVersion({None: EMPTY, Feature.POST_PROVIDER_BODY: None}),
        },
        errors=[409],
        body=NewProviderSchema,
    ),
)
def create_provider() -> Response:
    """Create a provider."""
    body = validated()
    uuid = body.get("uuid") or str(uuids.uuid4())
    if not body["name"]:
        prefix = f'Unable to create resource provider "", {uuid}: '
        raise BadRequest(f"{prefix}Object action create failed because: name is required")
    created = use_cases().providers.create(uuid, body["name"], body.get("parent_provider_uuid"))
    location = f"/resource_providers/{uuid}"
    if context.offers(Feature.POST_PROVIDER_BODY):
        return json_response(provider_body(created), modified=created.changed_at, location=location)
    return empty_response(201, location=location)


@route(
    resource_providers_blueprint,
    _ONE,
    "GET",
    f"{_RULE}show",
    gives_json=True,
    described=Operation({200: ProviderSchema}),
)
def show_provider(uuid: str) -> Response:
    """Return one provider."""
    found = use_cases().providers.get(uuid)
    return json_response(provider_body(found), modified=found.changed_at)


@route(
    resource_providers_blueprint,
    _ONE,
    "PUT",
    f"{_RULE}update",
    described=Operation({200: ProviderSchema}, errors=[409], body=ChangedProviderSchema),
)
def update(uuid: str) -> Response:
    """Rename a provider, or move it below another parent."""
    providers = use_cases().providers
    providers.get(uuid)
    body = validated()
    if not body["name"]:
        raise BadRequest("name is required")
    parent = Parent(body["parent_provider_uuid"]) if "parent_provider_uuid" in body else None
    updated = providers.update(uuid, body["name"], parent, may_move=context.offers(Feature.REPARENTING))
    return json_response(provider_body(updated), modified=now())


@route(
    resource_providers_blueprint,
    _ONE,
    "DELETE",
    f"{_RULE}delete",
    described=Operation({204: EMPTY}, errors=[409]),
)
def delete_provider(uuid: str) -> Response:
    """Delete a leaf without allocations."""
    use_cases().providers.delete(uuid)
    return empty_response()


# /resource_providers/{uuid}/traits and aggregates.
#
# Source: placement-api.md, "Aggregates", "Traits of a provider".


memberships_blueprint = Blueprint("memberships", __name__)
_TRAITS = "/resource_providers/<uuid>/traits"
_AGGREGATES = "/resource_providers/<uuid>/aggregates"


@route(
    memberships_blueprint,
    _TRAITS,
    "GET",
    f"{_RULE}traits:list",
    since=Feature.TRAITS,
    gives_json=True,
    described=Operation({200: ProviderTraitsShownSchema}),
)
def traits(uuid: str) -> Response:
    """Return the traits of a provider."""
    found = use_cases().memberships.traits(uuid)
    body = {"traits": found.members, "resource_provider_generation": found.generation}
    return json_response(body, modified=newest([found.newest]))


@route(
    memberships_blueprint,
    _TRAITS,
    "PUT",
    f"{_RULE}traits:update",
    since=Feature.TRAITS,
    described=Operation({200: ProviderTraitsShownSchema}, errors=[409], body=ProviderTraitsSchema),
)
def replace_traits(uuid: str) -> Response:
    """Replace the traits of a provider."""
    body = validated()
    found = use_cases().memberships.replace_traits(uuid, body["traits"], body["resource_provider_generation"])
    answer = {"traits": found.members, "resource_provider_generation": found.generation}
    return json_response(answer, modified=newest([found.newest]))


@route(
    memberships_blueprint,
    _TRAITS,
    "DELETE",
    f"{_RULE}traits:delete",
    since=Feature.TRAITS,
    described=Operation({204: EMPTY}, errors=[409]),
)
def clear_traits(uuid: str) -> Response:
    """Take all traits from a provider."""
    use_cases().memberships.clear_traits(uuid)
    return empty_response()


def _aggregates_body(members: list[str], generation: int) -> dict[str, Any]:
    body: dict[str, Any] = {"aggregates": members}
    if context.offers(Feature.AGGREGATES_GENERATION):
        body["resource_provider_generation"] = generation
    return body


@route(
    memberships_blueprint,
    _AGGREGATES,
    "GET",
    f"{_RULE}aggregates:list",
    since=Feature.AGGREGATES,
    gives_json=True,
    media_types_first=True,
    described=Operation({200: ProviderAggregatesShownSchema}),
)
def aggregates(uuid: str) -> Response:
    """Return the aggregates of a provider."""
    found = use_cases().memberships.aggregates(uuid)
    return json_response(_aggregates_body(found.members, found.generation))


@route(
    memberships_blueprint,
    _AGGREGATES,
    "PUT",
    f"{_RULE}aggregates:update",
    since=Feature.AGGREGATES,
    media_types_first=True,
    described=Operation(
        {200: ProviderAggregatesShownSchema},
        errors=[409],
        body=ByVersion({None: AGGREGATES_LIST, Feature.AGGREGATES_GENERATION: ProviderAggregatesSchema}),
    ),
)
def replace_aggregates(uuid: str) -> Response:
    """Replace the aggregates of a provider."""
    use_cases().providers.get(uuid)
    body = validated()
    if context.offers(Feature.AGGREGATES_GENERATION):
        members, guard = body["aggregates"], body["resource_provider_generation"]
    else:
        members, guard = body, None
    generation = use_cases().memberships.replace_aggregates(uuid, members, guard)
    return json_response(_aggregates_body(members, generation))


# /resource_providers/{uuid}/inventories and usages. Source: placement-api.md, "Inventories".


inventories_blueprint = Blueprint("inventories", __name__)
_ALL = "/resource_providers/<uuid>/inventories"
_INVENTORIES_ONE = "/resource_providers/<uuid>/inventories/<resource_class>"
_INVENTORIES_RULE = "placement:resource_providers:inventories:"


def _zero_capacity() -> bool:
    return context.offers(Feature.ZERO_CAPACITY)


def _collection(generation: int, records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"resource_provider_generation": generation, "inventories": records}


def _single(generation: int, record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "resource_provider_generation": generation}


def _echo(inventory: Inventory, sent: dict[str, Any]) -> dict[str, Any]:
    """Return the record that was written; a ratio that came as 1 is not answered with 1.0."""
    body = inventory_body(inventory)
    return {**body, "allocation_ratio": sent.get("allocation_ratio", body["allocation_ratio"])}


@route(
    inventories_blueprint,
    _ALL,
    "GET",
    f"{_INVENTORIES_RULE}list",
    gives_json=True,
    described=Operation({200: InventoriesSchema}),
)
def list_inventories(uuid: str) -> Response:
    """Return all records of a provider."""
    offer = use_cases().inventories.offer(uuid)
    records = {stored.class_name: inventory_body(stored.inventory) for stored in offer.records}
    body = _collection(offer.generation, records)
    return json_response(body, modified=newest(stored.changed_at for stored in offer.records))


@route(
    inventories_blueprint,
    _ALL,
    "POST",
    f"{_INVENTORIES_RULE}create",
    described=Operation({201: InventorySchema}, errors=[409], body=NewInventorySchema),
)
def create_inventory(uuid: str) -> Response:
    """Add one record."""
    use_cases().providers.get(uuid)
    body = validated()
    name, inventory = body["resource_class"], inventory_from(body)
    generation = use_cases().inventories.add(uuid, name, inventory, zero_capacity=_zero_capacity())
    location = f"/resource_providers/{uuid}/inventories/{name}"
    return json_response(_single(generation, _echo(inventory, body)), 201, modified=now(), location=location)


@route(
    inventories_blueprint,
    _ALL,
    "PUT",
    f"{_INVENTORIES_RULE}update",
    described=Operation({200: InventoriesSchema}, errors=[409], body=AllInventoriesSchema),
)
def replace_all(uuid: str) -> Response:
    """Replace all records."""
    use_cases().providers.get(uuid)
    body = validated()
    wanted = {name: inventory_from(record) for name, record in body["inventories"].items()}
    generation = use_cases().inventories.replace_all(
        uuid, body["resource_provider_generation"], wanted, zero_capacity=_zero_capacity()
    )
    records = {name: _echo(inventory, body["inventories"][name]) for name, inventory in wanted.items()}
    return json_response(_collection(generation, records), modified=now())


@route(
    inventories_blueprint,
    _ALL,
    "DELETE",
    f"{_INVENTORIES_RULE}delete",
    missing_method_below=Feature.DELETE_ALL_INVENTORIES,
    described=Operation({204: EMPTY}, errors=[409]),
)
def delete_all(uuid: str) -> Response:
    """Delete all records."""
    use_cases().inventories.delete_all(uuid)
    return empty_response()


@route(
    inventories_blueprint,
    _INVENTORIES_ONE,
    "GET",
    f"{_INVENTORIES_RULE}show",
    gives_json=True,
    described=Operation({200: InventorySchema}),
)
def show_inventory(uuid: str, resource_class: str) -> Response:
    """Return one record."""
    generation, stored = use_cases().inventories.record(uuid, resource_class)
    return json_response(_single(generation, inventory_body(stored.inventory)), modified=stored.changed_at)


@route(
    inventories_blueprint,
    _INVENTORIES_ONE,
    "PUT",
    f"{_INVENTORIES_RULE}update",
    described=Operation({200: InventorySchema}, errors=[409], body=OneInventorySchema),
)
def replace(uuid: str, resource_class: str) -> Response:
    """Replace one record."""
    use_cases().providers.get(uuid)
    body = validated()
    inventory = inventory_from(body)
    generation = use_cases().inventories.replace(
        uuid,
        resource_class,
        body["resource_provider_generation"],
        inventory,
        zero_capacity=_zero_capacity(),
    )
    return json_response(_single(generation, _echo(inventory, body)), modified=now())


@route(
    inventories_blueprint,
    _INVENTORIES_ONE,
    "DELETE",
    f"{_INVENTORIES_RULE}delete",
    described=Operation({204: EMPTY}, errors=[409]),
)
def delete_inventory(uuid: str, resource_class: str) -> Response:
    """Delete one record."""
    use_cases().inventories.delete(uuid, resource_class)
    return empty_response()


@route(
    inventories_blueprint,
    "/resource_providers/<uuid>/usages",
    "GET",
    "placement:resource_providers:usages",
    gives_json=True,
    described=Operation({200: ProviderUsagesSchema}),
)
def usages(uuid: str) -> Response:
    """Return what is used of each record, zero included."""
    offer = use_cases().inventories.offer(uuid)
    body = {
        "resource_provider_generation": offer.generation,
        "usages": {stored.class_name: stored.used for stored in offer.records},
    }
    return json_response(body)
