"""/ext/v1/clusters/{cluster}/reservations: places kept for pods to come."""

from __future__ import annotations

from flask import Blueprint, Response

from placement.api.bodies import manifests
from placement.api.context import use_cases
from placement.api.queries import page_size, page_start, parameters, refuse_unknown, single
from placement.api.rendering.reservations import reservation_body, reservations_body
from placement.api.responses import empty_response, json_response
from placement.api.route_guard import route
from placement.services.manifests import reservation_manifest

blueprint = Blueprint("reservations", __name__)
_ALL = "/ext/v1/clusters/<cluster>/reservations"
_ONE = "/ext/v1/clusters/<cluster>/reservations/<name>"
_RULE = "placement:clusters:reservations:"


@route(blueprint, _ALL, "GET", f"{_RULE}list", gives_json=True)
def listed(cluster: str) -> Response:
    """Reservations by node, those that are over included, page by page."""
    given = parameters()
    refuse_unknown(given, ("node", "limit", "marker"))
    node, after, count = single(given, "node"), page_start(given, "marker"), page_size(given)
    page = use_cases().reservations.listed(cluster, node, after, count)
    return json_response(reservations_body(cluster, page))


@route(blueprint, _ONE, "GET", f"{_RULE}show", gives_json=True)
def show(cluster: str, name: str) -> Response:
    """One reservation with its place, what it has left, and who uses it."""
    return json_response(reservation_body(cluster, use_cases().reservations.get(cluster, name)))


@route(blueprint, _ONE, "PUT", f"{_RULE}update")
def put(cluster: str, name: str) -> Response:
    """Place a reservation, or change its terms; the manifest is JSON or YAML."""
    created, answer = use_cases().reservations.put(cluster, name, reservation_manifest(manifests()))
    return json_response(reservation_body(cluster, answer), 201 if created else 200)


@route(blueprint, _ONE, "DELETE", f"{_RULE}delete")
def delete(cluster: str, name: str) -> Response:
    """Release what a reservation has left, and forget it."""
    use_cases().reservations.delete(cluster, name)
    return empty_response()
