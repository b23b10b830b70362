"""/resource_providers. Source: placement-api.md, "Resource providers", "Provider list filters"."""

from __future__ import annotations

import uuid as uuids

from flask import Blueprint, Response

from placement.api import context
from placement.api.bodies import validated
from placement.api.candidate_parameters import grammar_of
from placement.api.context import use_cases
from placement.api.described import EMPTY, ByVersion, Operation, Parameter, names_of
from placement.api.microversions import Feature
from placement.api.queries import (
    Parameters,
    every,
    last,
    parameters,
    refuse_unknown,
    refuse_value,
)
from placement.api.rendering.providers import provider_body, provider_renderer
from placement.api.responses import (
    empty_response,
    json_response,
    list_response,
    newest,
    now,
)
from placement.api.route_guard import route
from placement.api.schemas.answers.providers import Provider, Providers
from placement.api.schemas.fields import shown
from placement.api.schemas.providers import ChangedProvider, NewProvider
from placement.domain import grammar
from placement.domain.errors import BadRequest
from placement.domain.groups import RequestGroup
from placement.domain.identifiers import is_dashed_uuid
from placement.services.placement.providers import Parent

blueprint = Blueprint("resource_providers", __name__)
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
    blueprint,
    "/resource_providers",
    "GET",
    f"{_RULE}list",
    gives_json=True,
    described=Operation({200: Providers}, query=_FILTERS),
)
def listed() -> Response:
    """Providers that satisfy all filters, each judged alone."""
    given = parameters()
    refuse_unknown(given, names_of(_FILTERS, context.version()))
    uuid, in_tree = _dashed_uuid(given, "uuid"), _dashed_uuid(given, "in_tree")
    forms = grammar_of(context.version())
    resources = last(given, "resources")
    traits = grammar.parse_required(every(given, "required"), forms)
    aggregates = grammar.parse_member_of(every(given, "member_of"), forms)
    group = RequestGroup(
        resources={} if resources is None else grammar.parse_resources(resources),
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
    """The parameter, which the list takes literally. Raises BadRequest unless it is a uuid with dashes."""
    value = last(given, key)
    if value is not None and not is_dashed_uuid(value):
        raise refuse_value(given, key, value, f"{shown(value)} is not a 'uuid'", "format")
    return value


@route(
    blueprint,
    "/resource_providers",
    "POST",
    f"{_RULE}create",
    takes_json=True,
    described=Operation(
        {
            200: ByVersion({Feature.POST_PROVIDER_BODY: Provider}),
            201: ByVersion({None: EMPTY, Feature.POST_PROVIDER_BODY: None}),
        },
        errors=[409],
        body=NewProvider,
    ),
)
def create() -> Response:
    """A new provider."""
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
    blueprint,
    _ONE,
    "GET",
    f"{_RULE}show",
    gives_json=True,
    described=Operation({200: Provider}),
)
def show(uuid: str) -> Response:
    """One provider."""
    found = use_cases().providers.get(uuid)
    return json_response(provider_body(found), modified=found.changed_at)


@route(
    blueprint,
    _ONE,
    "PUT",
    f"{_RULE}update",
    takes_json=True,
    described=Operation({200: Provider}, errors=[409], body=ChangedProvider),
)
def update(uuid: str) -> Response:
    """Rename, or hang below another parent."""
    providers = use_cases().providers
    providers.get(uuid)
    body = validated()
    if not body["name"]:
        raise BadRequest("name is required")
    parent = Parent(body["parent_provider_uuid"]) if "parent_provider_uuid" in body else None
    updated = providers.update(uuid, body["name"], parent, may_move=context.offers(Feature.REPARENTING))
    return json_response(provider_body(updated), modified=now())


@route(blueprint, _ONE, "DELETE", f"{_RULE}delete", described=Operation({204: EMPTY}, errors=[409]))
def delete(uuid: str) -> Response:
    """Delete a leaf without allocations."""
    use_cases().providers.delete(uuid)
    return empty_response()
