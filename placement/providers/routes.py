"""/resource_providers. Source: placement-api.md, "Resource providers", "Provider list filters"."""

from __future__ import annotations

import datetime
import uuid as uuids
from dataclasses import replace
from functools import partial
from typing import Any

from flask import Blueprint, Response

from placement.common.microversions import NEWEST, Feature
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.groups import RequestGroup
from placement.engine.domain.identifiers import is_dashed_uuid
from placement.engine.domain.inventories import Inventory
from placement.http import context, query_grammar, query_strings
from placement.http.answers import empty_response, json_response, list_response, newest, path
from placement.http.bodies import parameters, validated
from placement.http.context import service
from placement.http.gate import route
from placement.http.operations import EMPTY, ByVersion, Operation, Parameter, names_of, shows
from placement.http.schemas import dump, dumper, shown
from placement.http.targets import cluster_of_query
from placement.providers.fleet import Hosts
from placement.providers.inventories import Inventories
from placement.providers.schemas import (
    AGGREGATES_LIST,
    AllInventoriesSchema,
    ChangedProviderSchema,
    HostsSchema,
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
    inventory_from,
)
from placement.providers.service import Parent, ProviderMemberships, Providers
from placement.providers.statements.contents import Members
from placement.providers.statements.providers import Provider

hosts_blueprint = Blueprint("hosts", __name__)
_HOST_FILTERS = (
    Parameter("cluster", "The name of a cluster."),
    Parameter("aggregate", "The name or uuid of an aggregate."),
    query_strings.LIMIT,
    Parameter("after", "The `next` of the previous page.", query_strings.ROW_ID),
)


@route(
    hosts_blueprint,
    "/ext/v1/hosts",
    "GET",
    "placement:resource_providers:list",
    target=cluster_of_query,
    **shows(HostsSchema, _HOST_FILTERS),
)
def hosts() -> Response:
    """Return hosts with the capacity and use of their trees, page by page; storage pools are not hosts."""
    given = parameters()
    query_strings.refuse_unknown(given, names_of(_HOST_FILTERS, NEWEST))
    after, count = query_strings.page_start(given, "after"), query_strings.page_size(given)
    cluster, aggregate = (query_strings.single(given, name) for name in ("cluster", "aggregate"))
    page = service(Hosts).look(cluster, aggregate).listed(after, count)
    return json_response(dump(HostsSchema, page))


# /resource_providers: providers and what they offer.


resource_providers_blueprint = Blueprint("resource_providers", __name__)
_providers = partial(route, resource_providers_blueprint, "/resource_providers")
_provider = partial(route, resource_providers_blueprint, "/resource_providers/<uuid>")
_RULE = "placement:resource_providers:"
_writing = partial(Operation, errors=[409])
_DELETED = _writing({204: EMPTY})
_UUID = {"type": "string", "format": "uuid"}
_FILTERS = (
    Parameter("name", "The name of a provider."),
    Parameter("uuid", "The uuid of a provider, with dashes.", _UUID),
    Parameter(
        "member_of",
        "An aggregate, `in:` and several, or `!` and a forbidden one.",
        since=Feature.PROVIDERS_BY_AGGREGATE,
        repeated=Feature.REPEATED_MEMBER_OF,
    ),
    Parameter("resources", "Amounts, `VCPU:2,MEMORY_MB:512`.", since=Feature.PROVIDERS_BY_RESOURCES),
    Parameter("in_tree", "The uuid of a provider of the tree.", _UUID, since=Feature.NESTED_PROVIDERS),
    Parameter(
        "required",
        "Traits, `!` before forbidden ones; `in:A,B` for one of several.",
        since=Feature.PROVIDERS_BY_TRAITS,
        repeated=Feature.ANY_OF_TRAITS,
    ),
)
_LINKS = (
    ("inventories", None),
    ("usages", None),
    ("aggregates", Feature.AGGREGATES),
    ("traits", Feature.TRAITS),
    ("allocations", Feature.ALLOCATIONS_LINK),
)


@_providers("GET", f"{_RULE}list", **shows(ProvidersSchema, _FILTERS))
def list_providers() -> Response:
    """Return the providers that satisfy all filters, each judged alone."""
    given = parameters()
    query_strings.refuse_unknown(given, names_of(_FILTERS, context.version()), own=False)
    uuid, in_tree = _dashed_uuid(given, "uuid"), _dashed_uuid(given, "in_tree")
    resources = query_strings.last(given, "resources")
    traits = query_grammar.parse_required(query_strings.every(given, "required"), context.version())
    aggregates = query_grammar.parse_member_of(query_strings.every(given, "member_of"), context.version())
    group = RequestGroup(
        resources={} if resources is None else query_grammar.parse_resources(resources),
        required=traits.required,
        forbidden=traits.forbidden,
        member_of=aggregates.required,
        forbidden_aggregates=aggregates.forbidden,
        in_tree=in_tree,
    )
    found = service(Providers).listed(query_strings.last(given, "name") or None, uuid, group)
    modified = newest(provider.changed_at for provider in found)
    shown = dumper(ProviderSchema, context.version(), _links())
    return list_response("resource_providers", found, shown, modified=modified)


def _dashed_uuid(given: query_strings.Parameters, key: str) -> str | None:
    """Return a parameter that is taken literally. Raises BadRequest unless it is a uuid with dashes."""
    value = query_strings.last(given, key)
    if value is not None and not is_dashed_uuid(value):
        raise query_strings.refuse_value(
            given, key, value, f"{shown(value)} is not a 'uuid'", "format", own=False
        )
    return value


def _shown(
    provider: Provider, modified: datetime.datetime | None = None, location: str | None = None
) -> Response:
    body = dump(ProviderSchema, provider, context.version(), _links())
    return json_response(body, modified=modified, location=location)


def _links() -> list[tuple[str, str, str]]:
    """Return the links of a provider in the request's version: rel, and what is before and after its uuid.

    They are the context of answers about providers, and outlive the request.
    """
    root = path("/resource_providers/")
    rels = [rel for rel, since in _LINKS if since is None or context.offers(since)]
    return [("self", root, ""), *((rel, root, f"/{rel}") for rel in rels)]


@_providers(
    "POST",
    f"{_RULE}create",
    described=_writing(
        {
            200: ByVersion({Feature.POST_PROVIDER_BODY: ProviderSchema}),
            201: ByVersion({None: EMPTY, Feature.POST_PROVIDER_BODY: None}),
        },
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
    created = service(Providers).create(uuid, body["name"], body.get("parent_provider_uuid"))
    location = f"/resource_providers/{uuid}"
    if context.offers(Feature.POST_PROVIDER_BODY):
        return _shown(created, created.changed_at, location)
    return empty_response(201, location=location)


@_provider("GET", f"{_RULE}show", **shows(ProviderSchema))
def show_provider(uuid: str) -> Response:
    """Return one provider."""
    found = service(Providers).get(uuid)
    return _shown(found, found.changed_at)


@_provider("PUT", f"{_RULE}update", described=_writing({200: ProviderSchema}, body=ChangedProviderSchema))
def update(uuid: str) -> Response:
    """Rename a provider, or move it below another parent."""
    providers = service(Providers)
    providers.get(uuid)
    body = validated()
    if not body["name"]:
        raise BadRequest("name is required")
    parent = Parent(body["parent_provider_uuid"]) if "parent_provider_uuid" in body else None
    updated = providers.update(uuid, body["name"], parent, may_move=context.offers(Feature.REPARENTING))
    return _shown(updated)


@_provider("DELETE", f"{_RULE}delete", described=_DELETED)
def delete_provider(uuid: str) -> Response:
    """Delete a leaf without allocations."""
    service(Providers).delete(uuid)
    return empty_response()


# /resource_providers/{uuid}/traits and aggregates.
#
# Source: placement-api.md, "Aggregates", "Traits of a provider".


memberships_blueprint = Blueprint("memberships", __name__)
_traits = partial(route, memberships_blueprint, "/resource_providers/<uuid>/traits", since=Feature.TRAITS)
_aggregates = partial(
    route,
    memberships_blueprint,
    "/resource_providers/<uuid>/aggregates",
    since=Feature.AGGREGATES,
    media_types_first=True,
)


@_traits("GET", f"{_RULE}traits:list", **shows(ProviderTraitsShownSchema))
def traits(uuid: str) -> Response:
    """Return the traits of a provider."""
    found = service(ProviderMemberships).traits(uuid)
    return json_response(dump(ProviderTraitsShownSchema, found), modified=newest([found.newest]))


@_traits(
    "PUT",
    f"{_RULE}traits:update",
    described=_writing({200: ProviderTraitsShownSchema}, body=ProviderTraitsSchema),
)
def replace_traits(uuid: str) -> Response:
    """Replace the traits of a provider."""
    body = validated()
    found = service(ProviderMemberships).replace_traits(
        uuid, body["traits"], body["resource_provider_generation"]
    )
    return json_response(dump(ProviderTraitsShownSchema, found), modified=newest([found.newest]))


@_traits("DELETE", f"{_RULE}traits:delete", described=_DELETED)
def clear_traits(uuid: str) -> Response:
    """Take all traits from a provider."""
    service(ProviderMemberships).clear_traits(uuid)
    return empty_response()


@_aggregates("GET", f"{_RULE}aggregates:list", **shows(ProviderAggregatesShownSchema))
def aggregates(uuid: str) -> Response:
    """Return the aggregates of a provider."""
    found = service(ProviderMemberships).aggregates(uuid)
    return json_response(dump(ProviderAggregatesShownSchema, found, context.version()))


@_aggregates(
    "PUT",
    f"{_RULE}aggregates:update",
    described=_writing(
        {200: ProviderAggregatesShownSchema},
        body=ByVersion({None: AGGREGATES_LIST, Feature.AGGREGATES_GENERATION: ProviderAggregatesSchema}),
    ),
)
def replace_aggregates(uuid: str) -> Response:
    """Replace the aggregates of a provider."""
    service(Providers).get(uuid)
    body = validated()
    if context.offers(Feature.AGGREGATES_GENERATION):
        members, guard = body["aggregates"], body["resource_provider_generation"]
    else:
        members, guard = body, None
    generation = service(ProviderMemberships).replace_aggregates(uuid, members, guard)
    shown_members = Members(generation, members, None)
    return json_response(dump(ProviderAggregatesShownSchema, shown_members, context.version()))


# /resource_providers/{uuid}/inventories and usages. Source: placement-api.md, "Inventories".


inventories_blueprint = Blueprint("inventories", __name__)
_records = partial(route, inventories_blueprint, "/resource_providers/<uuid>/inventories")
_usages = partial(route, inventories_blueprint, "/resource_providers/<uuid>/usages")
_inventory = partial(route, inventories_blueprint, "/resource_providers/<uuid>/inventories/<resource_class>")
_RECORDS = "placement:resource_providers:inventories:"


def _zero_capacity() -> bool:
    return context.offers(Feature.ZERO_CAPACITY)


def _echo(inventory: Inventory, sent: dict[str, Any]) -> Inventory:
    """Return the record that was written; a ratio that came as 1 is not answered with 1.0."""
    return replace(inventory, allocation_ratio=sent.get("allocation_ratio", inventory.allocation_ratio))


@_records("GET", f"{_RECORDS}list", **shows(InventoriesSchema))
def list_inventories(uuid: str) -> Response:
    """Return all records of a provider."""
    offer = service(Inventories).offer(uuid)
    records = {stored.class_name: stored.inventory for stored in offer.records}
    body = dump(InventoriesSchema, (offer.generation, records))
    return json_response(body, modified=newest(stored.changed_at for stored in offer.records))


@_records("POST", f"{_RECORDS}create", described=_writing({201: InventorySchema}, body=NewInventorySchema))
def create_inventory(uuid: str) -> Response:
    """Add one record."""
    service(Providers).get(uuid)
    body = validated()
    name, inventory = body["resource_class"], inventory_from(body)
    generation = service(Inventories).add(uuid, name, inventory, zero_capacity=_zero_capacity())
    location = f"/resource_providers/{uuid}/inventories/{name}"
    answer = dump(InventorySchema, _echo(inventory, body), context=generation)
    return json_response(answer, 201, location=location)


@_records("PUT", f"{_RECORDS}update", described=_writing({200: InventoriesSchema}, body=AllInventoriesSchema))
def replace_all(uuid: str) -> Response:
    """Replace all records."""
    service(Providers).get(uuid)
    body = validated()
    wanted = {name: inventory_from(record) for name, record in body["inventories"].items()}
    generation = service(Inventories).replace_all(
        uuid, body["resource_provider_generation"], wanted, zero_capacity=_zero_capacity()
    )
    records = {name: _echo(inventory, body["inventories"][name]) for name, inventory in wanted.items()}
    return json_response(dump(InventoriesSchema, (generation, records)))


@_records(
    "DELETE", f"{_RECORDS}delete", missing_method_below=Feature.DELETE_ALL_INVENTORIES, described=_DELETED
)
def delete_all(uuid: str) -> Response:
    """Delete all records."""
    service(Inventories).delete(uuid)
    return empty_response()


@_inventory("GET", f"{_RECORDS}show", **shows(InventorySchema))
def show_inventory(uuid: str, resource_class: str) -> Response:
    """Return one record."""
    generation, stored = service(Inventories).record(uuid, resource_class)
    answer = dump(InventorySchema, stored.inventory, context=generation)
    return json_response(answer, modified=stored.changed_at)


@_inventory("PUT", f"{_RECORDS}update", described=_writing({200: InventorySchema}, body=OneInventorySchema))
def replace_inventory(uuid: str, resource_class: str) -> Response:
    """Replace one record."""
    service(Providers).get(uuid)
    body = validated()
    inventory = inventory_from(body)
    generation = service(Inventories).replace(
        uuid,
        resource_class,
        body["resource_provider_generation"],
        inventory,
        zero_capacity=_zero_capacity(),
    )
    answer = dump(InventorySchema, _echo(inventory, body), context=generation)
    return json_response(answer)


@_inventory("DELETE", f"{_RECORDS}delete", described=_DELETED)
def delete_inventory(uuid: str, resource_class: str) -> Response:
    """Delete one record."""
    service(Inventories).delete(uuid, resource_class)
    return empty_response()


@_usages("GET", "placement:resource_providers:usages", **shows(ProviderUsagesSchema))
def usages(uuid: str) -> Response:
    """Return what is used of each record, zero included."""
    return json_response(dump(ProviderUsagesSchema, service(Inventories).offer(uuid)))
