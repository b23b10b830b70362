"""/resource_providers/{uuid}/inventories and usages. Source: placement-api.md, "Inventories"."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response

from placement.api import context
from placement.api.bodies import validated
from placement.api.context import use_cases
from placement.api.described import EMPTY, Operation
from placement.api.microversions import Feature
from placement.api.rendering.providers import inventory_body
from placement.api.responses import (
    empty_response,
    json_response,
    newest,
    now,
)
from placement.api.route_guard import route
from placement.api.schemas.answers.providers import Inventories, ProviderUsages
from placement.api.schemas.answers.providers import Inventory as InventoryShown
from placement.api.schemas.providers import (
    AllInventories,
    NewInventory,
    OneInventory,
    inventory_from,
)
from placement.domain.inventory import Inventory

blueprint = Blueprint("inventories", __name__)
_ALL = "/resource_providers/<uuid>/inventories"
_ONE = "/resource_providers/<uuid>/inventories/<resource_class>"
_RULE = "placement:resource_providers:inventories:"


def _zero_capacity() -> bool:
    return context.offers(Feature.ZERO_CAPACITY)


def _collection(generation: int, records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"resource_provider_generation": generation, "inventories": records}


def _single(generation: int, record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "resource_provider_generation": generation}


def _echo(inventory: Inventory, sent: dict[str, Any]) -> dict[str, Any]:
    """The record that was written; a ratio that came as 1 is not answered with 1.0."""
    body = inventory_body(inventory)
    return {**body, "allocation_ratio": sent.get("allocation_ratio", body["allocation_ratio"])}


@route(blueprint, _ALL, "GET", f"{_RULE}list", gives_json=True, described=Operation({200: Inventories}))
def listed(uuid: str) -> Response:
    """All records of a provider."""
    offer = use_cases().inventories.offer(uuid)
    records = {stored.class_name: inventory_body(stored.inventory) for stored in offer.records}
    body = _collection(offer.generation, records)
    return json_response(body, modified=newest(stored.changed_at for stored in offer.records))


@route(
    blueprint,
    _ALL,
    "POST",
    f"{_RULE}create",
    takes_json=True,
    described=Operation({201: InventoryShown}, errors=[409], body=NewInventory),
)
def create(uuid: str) -> Response:
    """Add one record."""
    use_cases().providers.get(uuid)
    body = validated()
    name, inventory = body["resource_class"], inventory_from(body)
    generation = use_cases().inventories.add(uuid, name, inventory, zero_capacity=_zero_capacity())
    location = f"/resource_providers/{uuid}/inventories/{name}"
    return json_response(_single(generation, _echo(inventory, body)), 201, modified=now(), location=location)


@route(
    blueprint,
    _ALL,
    "PUT",
    f"{_RULE}update",
    takes_json=True,
    described=Operation({200: Inventories}, errors=[409], body=AllInventories),
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
    blueprint,
    _ALL,
    "DELETE",
    f"{_RULE}delete",
    missing_method_below=Feature.DELETE_ALL_INVENTORIES,
    described=Operation({204: EMPTY}, errors=[409]),
)
def delete_all(uuid: str) -> Response:
    """Delete all records."""
    use_cases().inventories.delete_all(uuid)
    return empty_response()


@route(blueprint, _ONE, "GET", f"{_RULE}show", gives_json=True, described=Operation({200: InventoryShown}))
def show(uuid: str, resource_class: str) -> Response:
    """One record."""
    generation, stored = use_cases().inventories.record(uuid, resource_class)
    return json_response(_single(generation, inventory_body(stored.inventory)), modified=stored.changed_at)


@route(
    blueprint,
    _ONE,
    "PUT",
    f"{_RULE}update",
    takes_json=True,
    described=Operation({200: InventoryShown}, errors=[409], body=OneInventory),
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


@route(blueprint, _ONE, "DELETE", f"{_RULE}delete", described=Operation({204: EMPTY}, errors=[409]))
def delete(uuid: str, resource_class: str) -> Response:
    """Delete one record."""
    use_cases().inventories.delete(uuid, resource_class)
    return empty_response()


@route(
    blueprint,
    "/resource_providers/<uuid>/usages",
    "GET",
    "placement:resource_providers:usages",
    gives_json=True,
    described=Operation({200: ProviderUsages}),
)
def usages(uuid: str) -> Response:
    """What is used of each record, zero included."""
    offer = use_cases().inventories.offer(uuid)
    body = {
        "resource_provider_generation": offer.generation,
        "usages": {stored.class_name: stored.used for stored in offer.records},
    }
    return json_response(body)
