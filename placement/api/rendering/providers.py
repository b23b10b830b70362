"""Bodies of resource providers and what belongs to them."""

from __future__ import annotations

import datetime
from typing import Any, Protocol

from placement.api import context
from placement.api.microversions import Feature
from placement.api.responses import path
from placement.domain.inventory import Inventory

_LINKS = (
    ("inventories", None),
    ("usages", None),
    ("aggregates", Feature.AGGREGATES),
    ("traits", Feature.TRAITS),
    ("allocations", Feature.ALLOCATIONS_LINK),
)


class Described(Protocol):
    """A provider as the use cases hand it over."""

    @property
    def uuid(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def parent_uuid(self) -> str | None: ...
    @property
    def root_uuid(self) -> str: ...
    @property
    def changed_at(self) -> datetime.datetime: ...


def provider_body(provider: Described) -> dict[str, Any]:
    """One provider, with the links of the request's version."""
    own = path(f"/resource_providers/{provider.uuid}")
    links = [{"rel": "self", "href": own}]
    links += [
        {"rel": rel, "href": f"{own}/{rel}"}
        for rel, since in _LINKS
        if since is None or context.offers(since)
    ]
    body: dict[str, Any] = {
        "uuid": provider.uuid,
        "name": provider.name,
        "generation": provider.generation,
        "links": links,
    }
    if context.offers(Feature.NESTED_PROVIDERS):
        body["parent_provider_uuid"] = provider.parent_uuid
        body["root_provider_uuid"] = provider.root_uuid
    return body


def inventory_body(inventory: Inventory) -> dict[str, Any]:
    """The six fields of one record."""
    return {
        "total": inventory.total,
        "reserved": inventory.reserved,
        "min_unit": inventory.min_unit,
        "max_unit": inventory.max_unit,
        "step_size": inventory.step_size,
        "allocation_ratio": inventory.allocation_ratio,
    }
