"""/ext/v1/clusters/{cluster}/pods: pods placed on nodes, shown and released."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, Response

from placement.api.bodies import manifests
from placement.api.context import use_cases
from placement.api.described import EMPTY, JSON_OR_YAML, Operation, Parameter, names_of
from placement.api.errors import error_document, status_of
from placement.api.microversions import NEWEST
from placement.api.queries import (
    LIMIT,
    ROW_ID,
    Parameters,
    page_size,
    page_start,
    parameters,
    refuse_unknown,
    single,
)
from placement.api.rendering.pods import (
    claims_body,
    page_body,
    pod_body,
    preview_body,
    translation_body,
)
from placement.api.responses import empty_response, json_response
from placement.api.route_guard import route
from placement.api.schemas.answers.pods import (
    Pod,
    PodError,
    Pods,
    PodsTaken,
    PodTranslation,
    Preview,
)
from placement.api.schemas.manifests import POD, PODS, PREVIEW
from placement.domain.errors import BadRequest, PlacementError
from placement.services.bounds import MOST_MANIFESTS
from placement.services.clusters.many_pods import PodOutcome
from placement.services.clusters.pod_pages import PodFilter
from placement.services.clusters.pod_writing import Precondition
from placement.services.manifests import pod_manifest, pods_manifests

blueprint = Blueprint("pods", __name__)
_ALL = "/ext/v1/clusters/<cluster>/pods"
_ONE = "/ext/v1/clusters/<cluster>/pods/<namespace>/<name>"
_PREVIEW = "/ext/v1/clusters/<cluster>/pods/preview"
_TRANSLATION = "/ext/v1/clusters/<cluster>/pods/translation"
_RULE = "placement:clusters:pods:"
_FILTERS = (
    Parameter("namespace", "Pods of a namespace."),
    Parameter("node", "Pods on a node."),
    Parameter("qos", "Pods of a QoS class of Koordinator."),
    Parameter(
        "scheduled", "Only pods placed here and not reported since.", {"type": "string", "const": "true"}
    ),
    LIMIT,
    Parameter("marker", "The `next` of the page before.", ROW_ID),
)
_PRECONDITION = (
    Parameter("uid", "Only the pod of this uid."),
    Parameter(
        "changed_at",
        "Only if it was not written since. A claim that is given back so never ran: the reservation that it "
        "ended comes back.",
    ),
)


@route(
    blueprint,
    _ALL,
    "GET",
    f"{_RULE}list",
    gives_json=True,
    described=Operation({200: Pods}, query=_FILTERS),
)
def listed(cluster: str) -> Response:
    """Pods by namespace, node and QoS class, page by page."""
    given = parameters()
    refuse_unknown(given, names_of(_FILTERS, NEWEST))
    wanted = PodFilter(
        single(given, "namespace"), single(given, "node"), single(given, "qos"), _flag(given, "scheduled")
    )
    after, count = page_start(given, "marker"), page_size(given)
    body = claims_body if wanted.scheduled else page_body
    return json_response(body(cluster, use_cases().pods.listed(cluster, wanted, after, count)))


@route(
    blueprint,
    _ALL,
    "POST",
    f"{_RULE}update",
    described=Operation({200: PodsTaken}, errors=[409], body=PODS, body_types=JSON_OR_YAML),
)
def post(cluster: str) -> Response:
    """Place many pods, or record where they run, as a List or several documents.

    Those that are new are written together; what is refused of one keeps no other from its place, but for
    members of its gang.
    """
    given = pods_manifests(manifests(MOST_MANIFESTS))
    outcomes = use_cases().pods.put_all(cluster, given)
    shown = [_outcome(cluster, pod, outcome) for pod, outcome in zip(given, outcomes, strict=True)]
    return json_response({"cluster": cluster, "pods": shown})


def _outcome(cluster: str, pod: Mapping[str, Any], outcome: PodOutcome) -> dict[str, Any]:
    metadata = pod.get("metadata")
    said = metadata if isinstance(metadata, Mapping) else {}
    who = {key: said[key] if isinstance(said.get(key), str) else None for key in ("namespace", "name")}
    if isinstance(outcome, PlacementError):
        where = f"pod {who['namespace'] or 'default'}/{who['name']}"
        return {**who, "status": status_of(outcome), "error": error_document(outcome, where)}
    return {**who, "status": 201 if outcome.is_new else 200, "pod": pod_body(cluster, outcome.answer)}


@route(blueprint, _ONE, "GET", f"{_RULE}show", gives_json=True, described=Operation({200: Pod}))
def show(cluster: str, namespace: str, name: str) -> Response:
    """One pod with its place and what it was given."""
    return json_response(pod_body(cluster, use_cases().pods.get(cluster, namespace, name)))


@route(
    blueprint,
    _ONE,
    "PUT",
    f"{_RULE}update",
    described=Operation(
        {200: Pod, 201: Pod}, errors=[409], error=PodError, body=POD, body_types=JSON_OR_YAML
    ),
)
def put(cluster: str, namespace: str, name: str) -> Response:
    """Place a pod, or record where it runs; the manifest is JSON or YAML."""
    pod = pod_manifest(manifests())
    created, answer = use_cases().pods.put(cluster, namespace, name, pod)
    return json_response(pod_body(cluster, answer), 201 if created else 200)


@route(
    blueprint,
    _ONE,
    "DELETE",
    f"{_RULE}delete",
    described=Operation({204: EMPTY}, errors=[409], query=_PRECONDITION),
)
def delete(cluster: str, namespace: str, name: str) -> Response:
    """Release what a pod holds; only that of this uid, only if unchanged since, if that is asked for."""
    given = parameters()
    refuse_unknown(given, names_of(_PRECONDITION, NEWEST))
    precondition = Precondition(single(given, "uid"), single(given, "changed_at"))
    use_cases().pods.delete(cluster, namespace, name, precondition)
    return empty_response()


@route(
    blueprint,
    _PREVIEW,
    "POST",
    f"{_RULE}preview",
    gives_json=True,
    reads=True,
    described=Operation({200: Preview}, errors=[409], body=PREVIEW, body_types=JSON_OR_YAML),
)
def preview(cluster: str) -> Response:
    """Where a pod would go, best first, and why not elsewhere; claims nothing."""
    pod, names, most = _previewed(manifests())
    return json_response(preview_body(cluster, use_cases().pods.preview(cluster, pod, names, most)))


@route(
    blueprint,
    _TRANSLATION,
    "POST",
    f"{_RULE}translate",
    gives_json=True,
    reads=True,
    described=Operation({200: PodTranslation}, body=PREVIEW, body_types=JSON_OR_YAML),
)
def translation(cluster: str) -> Response:
    """The pod as queries for allocation candidates."""
    pod, _, _ = _previewed(manifests())
    return json_response(translation_body(use_cases().pod_translation.translate(cluster, pod)))


def _previewed(documents: list[Any]) -> tuple[Any, list[str] | None, int | None]:
    """A Pod alone, or {"pod": Pod, "nodeNames": [...], "limit": n}."""
    if len(documents) == 1 and isinstance(documents[0], dict) and "kind" not in documents[0]:
        request = documents[0]
        unknown = sorted(str(key) for key in request.keys() - {"pod", "nodeNames", "limit"})
        if unknown:
            raise BadRequest(f"{', '.join(unknown)}: not part of a preview")
        names, most = request.get("nodeNames"), request.get("limit")
        if names is not None and not (
            isinstance(names, list) and all(isinstance(name, str) for name in names)
        ):
            raise BadRequest("nodeNames: must be a list of names of nodes")
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 0):
            raise BadRequest(f"limit: must be 0 or more, not {most!r}")
        return pod_manifest([request.get("pod")]), names, most
    return pod_manifest(documents), None, None


def _flag(given: Parameters, name: str) -> bool:
    text = single(given, name)
    if text not in (None, "true"):
        raise BadRequest(f"{name}: must be true, or left out, not {text!r}")
    return text is not None
