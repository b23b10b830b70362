"""/allocations and /resource_providers/{uuid}/allocations.

Source: placement-api.md, "Allocations of a provider", "Allocations of a consumer".
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import Any

from flask import Blueprint, Response, current_app, request

from placement.api import context
from placement.api.bodies import validated
from placement.api.context import use_cases
from placement.api.described import EMPTY, ByVersion, Operation
from placement.api.microversions import Feature
from placement.api.responses import empty_response, json_response, newest
from placement.api.route_guard import route
from placement.api.schemas import patterns
from placement.api.schemas.allocations import Allocations, AllocationsList, FilledAllocations
from placement.api.schemas.answers.allocations import ConsumerAllocations
from placement.api.schemas.answers.providers import ProviderAllocations
from placement.api.schemas.fields import Mapping, Object
from placement.domain.allocation import ANY_GENERATION, MOVE_HEADER, UNKNOWN_CONSUMER_TYPE, ConsumerClaim
from placement.domain.errors import BadRequest
from placement.domain.identifiers import normalize_uuid

blueprint = Blueprint("allocations", __name__)
_ONE = "/allocations/<consumer>"
_RULE = "placement:allocations:"
_MANY = Mapping(patterns.UUID, Object(Allocations), least=1)


@route(
    blueprint,
    _ONE,
    "GET",
    f"{_RULE}list",
    gives_json=True,
    # Nobody who is called something else than a uuid holds anything.
    described=Operation({200: ConsumerAllocations}, path={"consumer": {"type": "string"}}),
)
def show(consumer: str) -> Response:
    """All that one consumer holds; a valid PUT body at the same version from 1.12 on."""
    found = use_cases().holdings.of_consumer(normalize_uuid(consumer) or consumer)
    if found is None:
        return json_response({"allocations": {}})
    owner, held = found
    entries: dict[str, Any] = {}
    for row in held:
        entry = entries.setdefault(
            row.provider_uuid, {"resources": {}, "generation": row.provider_generation}
        )
        entry["resources"][row.class_name] = row.amount
    body: dict[str, Any] = {"allocations": entries}
    if context.offers(Feature.ALLOCATIONS_BY_PROVIDER):
        body["project_id"] = owner.project_id
        body["user_id"] = owner.user_id
    if context.offers(Feature.CONSUMER_GENERATIONS):
        body["consumer_generation"] = owner.generation
    if context.offers(Feature.CONSUMER_TYPES):
        body["consumer_type"] = owner.consumer_type or UNKNOWN_CONSUMER_TYPE
    return json_response(body, modified=newest(row.created_at for row in held))


@route(
    blueprint,
    _ONE,
    "PUT",
    f"{_RULE}update",
    takes_json=True,
    described=Operation(
        {204: EMPTY},
        errors=[409],
        body=ByVersion(
            {
                None: AllocationsList,
                Feature.ALLOCATIONS_BY_PROVIDER: FilledAllocations,
                Feature.CONSUMER_GENERATIONS: Allocations,
            }
        ),
    ),
)
def replace(consumer: str) -> Response:
    """Replace all that one consumer holds; what is kept of its request outlives moves only."""
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
    """The claim of one consumer, from a validated body."""
    incomplete = current_app.extensions["placement_settings"]
    return ConsumerClaim(
        consumer_uuid=uuid,
        resources={uuid: entry["resources"] for uuid, entry in by_uuid(body["allocations"]).items()},
        project_id=body.get("project_id", incomplete.incomplete_consumer_project_id),
        user_id=body.get("user_id", incomplete.incomplete_consumer_user_id),
        generation=body.get("consumer_generation", ANY_GENERATION),
        consumer_type=body.get("consumer_type"),
    )


@route(blueprint, _ONE, "DELETE", f"{_RULE}delete", described=Operation({204: EMPTY}, errors=[409]))
def delete(consumer: str) -> Response:
    """Release all that one consumer holds."""
    use_cases().claims.release(normalize_uuid(consumer) or consumer)
    return empty_response()


@route(
    blueprint,
    "/allocations",
    "POST",
    f"{_RULE}manage",
    since=Feature.POST_ALLOCATIONS,
    takes_json=True,
    described=Operation({204: EMPTY}, errors=[409], body=_MANY),
)
def manage() -> Response:
    """Replace what many consumers hold, all or nothing."""
    use_cases().claims.put(claims_from(validated()), of_one_consumer=False)
    return empty_response()


def claims_from(entries: dict[str, dict[str, Any]]) -> list[ConsumerClaim]:
    """The claims of many consumers. Raises BadRequest for keys that are no uuid."""
    for key in entries:
        if normalize_uuid(key) is None:
            raise BadRequest(f"Malformed consumer_uuid: {key}")
    return [claim_from(uuid, entry) for uuid, entry in by_uuid(entries).items()]


def by_uuid(entries: dict[str, Any]) -> dict[str, Any]:
    """The entries under normalised uuids. Raises BadRequest for one uuid in two spellings."""
    found: dict[str, Any] = {}
    for key, entry in entries.items():
        uuid = normalize_uuid(key) or key
        if uuid in found:
            raise BadRequest(f"JSON does not validate: {uuid} occurs twice, in two spellings.")
        found[uuid] = entry
    return found


@route(
    blueprint,
    "/resource_providers/<uuid>/allocations",
    "GET",
    "placement:resource_providers:allocations:list",
    gives_json=True,
    described=Operation({200: ProviderAllocations}),
)
def on_provider(uuid: str) -> Response:
    """All allocations on one provider, by consumer."""
    generation, held = use_cases().holdings.on_provider(uuid)
    entries: dict[str, Any] = defaultdict(lambda: {"resources": {}})
    for row in held:
        entries[row.consumer_uuid]["resources"][row.class_name] = row.amount
        if context.offers(Feature.CONSUMER_GENERATIONS):
            entries[row.consumer_uuid]["consumer_generation"] = row.consumer_generation
    body = {"allocations": entries, "resource_provider_generation": generation}
    return json_response(body, modified=newest(row.created_at for row in held))
