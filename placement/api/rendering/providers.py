"""Bodies of resource providers and what belongs to them."""

from __future__ import annotations

import datetime
from collections.abc import Callable
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
    """What rendering reads of a provider."""

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
    return provider_renderer()(provider)


def provider_renderer() -> Callable[[Described], dict[str, Any]]:
    """Renders providers with the links of the request's version, also when that request is over."""
    root = path("/resource_providers")
    rels = [rel for rel, since in _LINKS if since is None or context.offers(since)]
    nested = context.offers(Feature.NESTED_PROVIDERS)

    def render(provider: Described) -> dict[str, Any]:
        own = f"{root}/{provider.uuid}"
        body: dict[str, Any] = {
            "uuid": provider.uuid,
            "name": provider.name,
            "generation": provider.generation,
            "links": [
                {"rel": "self", "href": own},
                *({"rel": rel, "href": f"{own}/{rel}"} for rel in rels),
            ],
        }
        if nested:
            body["parent_provider_uuid"] = provider.parent_uuid
            body["root_provider_uuid"] = provider.root_uuid
        return body

    return render


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
