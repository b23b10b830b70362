"""/reshaper. Source: placement-api.md, "Reshaper"."""

from __future__ import annotations

from flask import Blueprint, Response

from placement.api.bodies import validated
from placement.api.context import use_cases
from placement.api.described import EMPTY, Operation
from placement.api.microversions import Feature
from placement.api.responses import empty_response
from placement.api.route_guard import route
from placement.api.routes.allocations import by_uuid, claims_from
from placement.api.schemas.allocations import Reshape
from placement.api.schemas.providers import inventory_from
from placement.domain.inventory import ProviderInventories

blueprint = Blueprint("reshaper", __name__)


@route(
    blueprint,
    "/reshaper",
    "POST",
    "placement:reshaper:reshape",
    since=Feature.RESHAPER,
    takes_json=True,
    described=Operation({204: EMPTY}, errors=[409], body=Reshape),
)
def reshape() -> Response:
    """Move inventories and allocations together."""
    body = validated()
    wanted = [
        ProviderInventories(
            uuid,
            entry["resource_provider_generation"],
            {name: inventory_from(record) for name, record in entry["inventories"].items()},
        )
        for uuid, entry in by_uuid(body["inventories"]).items()
    ]
    use_cases().reshaper.reshape(wanted, claims_from(body["allocations"]))
    return empty_response()
