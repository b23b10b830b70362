"""/resource_providers/{uuid}/traits and aggregates.

Source: placement-api.md, "Aggregates", "Traits of a provider".
"""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response

from placement.api import context
from placement.api.bodies import validated
from placement.api.context import use_cases
from placement.api.described import EMPTY, ByVersion, Operation
from placement.api.microversions import Feature
from placement.api.responses import empty_response, json_response, newest
from placement.api.route_guard import route
from placement.api.schemas.answers.providers import ProviderAggregatesShown, ProviderTraitsShown
from placement.api.schemas.providers import AGGREGATES_LIST, ProviderAggregates, ProviderTraits

blueprint = Blueprint("memberships", __name__)
_TRAITS = "/resource_providers/<uuid>/traits"
_AGGREGATES = "/resource_providers/<uuid>/aggregates"
_RULE = "placement:resource_providers:"


@route(
    blueprint,
    _TRAITS,
    "GET",
    f"{_RULE}traits:list",
    since=Feature.TRAITS,
    gives_json=True,
    described=Operation({200: ProviderTraitsShown}),
)
def traits(uuid: str) -> Response:
    """The traits of a provider."""
    found = use_cases().memberships.traits(uuid)
    body = {"traits": found.members, "resource_provider_generation": found.generation}
    return json_response(body, modified=newest([found.newest]))


@route(
    blueprint,
    _TRAITS,
    "PUT",
    f"{_RULE}traits:update",
    since=Feature.TRAITS,
    takes_json=True,
    described=Operation({200: ProviderTraitsShown}, errors=[409], body=ProviderTraits),
)
def replace_traits(uuid: str) -> Response:
    """Replace the traits of a provider."""
    body = validated()
    found = use_cases().memberships.replace_traits(uuid, body["traits"], body["resource_provider_generation"])
    answer = {"traits": found.members, "resource_provider_generation": found.generation}
    return json_response(answer, modified=newest([found.newest]))


@route(
    blueprint,
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
    blueprint,
    _AGGREGATES,
    "GET",
    f"{_RULE}aggregates:list",
    since=Feature.AGGREGATES,
    gives_json=True,
    media_types_first=True,
    described=Operation({200: ProviderAggregatesShown}),
)
def aggregates(uuid: str) -> Response:
    """The aggregates of a provider."""
    found = use_cases().memberships.aggregates(uuid)
    return json_response(_aggregates_body(found.members, found.generation))


@route(
    blueprint,
    _AGGREGATES,
    "PUT",
    f"{_RULE}aggregates:update",
    since=Feature.AGGREGATES,
    takes_json=True,
    media_types_first=True,
    described=Operation(
        {200: ProviderAggregatesShown},
        errors=[409],
        body=ByVersion({None: AGGREGATES_LIST, Feature.AGGREGATES_GENERATION: ProviderAggregates}),
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
