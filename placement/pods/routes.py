"""/ext/v1/clusters/{cluster}/pods: pods placed on nodes, shown and released."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, Response

from placement.common.documents import MOST_MANIFESTS
from placement.common.manifest_lists import (
    node_manifests,
    nodes_manifests,
    pod_manifest,
    pods_manifests,
    reservation_manifest,
)
from placement.common.microversions import NEWEST
from placement.engine.domain.errors import BadRequest, PlacementError
from placement.http import context
from placement.http.context import use_cases
from placement.http.gate import route
from placement.http.operations import (
    EMPTY,
    JSON_OR_YAML,
    LIMIT,
    ROW_ID,
    Operation,
    Parameter,
    Parameters,
    json_body_or,
    manifests,
    names_of,
    page_size,
    page_start,
    parameters,
    refuse_unknown,
    single,
)
from placement.http.responses import empty_response, error_document, json_response, list_response, status_of
from placement.http.schemas import dump
from placement.pods.clusters import NodeDocuments
from placement.pods.many_pods import PodOutcome
from placement.pods.node_importing import ImportedNode
from placement.pods.rendering import (
    claims_body,
    cluster_body,
    node_body,
    page_body,
    pod_body,
    preview_body,
    reservation_body,
    reservations_body,
)
from placement.pods.schemas import (
    NODE_AND_TOPOLOGY,
    POD,
    PODS,
    PREVIEW,
    RESERVATION,
    ClusterSettingsSchema,
    ClusterShownSchema,
    ClustersSchema,
    NodeImportedSchema,
    NodeSchema,
    NodesImportedSchema,
    NodesSchema,
    PodErrorSchema,
    PodSchema,
    PodsSchema,
    PodsTakenSchema,
    PodTranslationSchema,
    PreviewSchema,
    ReservationSchema,
    ReservationsSchema,
)
from placement.pods.statements.pods import PodFilter
from placement.pods.writer import Precondition

pods_blueprint = Blueprint("pods", __name__)
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
    pods_blueprint,
    _ALL,
    "GET",
    f"{_RULE}list",
    gives_json=True,
    described=Operation({200: PodsSchema}, query=_FILTERS),
)
def list_pods(cluster: str) -> Response:
    """List pods by namespace, node and QoS class, page by page."""
    given = parameters()
    refuse_unknown(given, names_of(_FILTERS, NEWEST))
    wanted = PodFilter(
        single(given, "namespace"), single(given, "node"), single(given, "qos"), _flag(given, "scheduled")
    )
    after, count = page_start(given, "marker"), page_size(given)
    body = claims_body if wanted.scheduled else page_body
    return json_response(body(cluster, use_cases().pods.listed(cluster, wanted, after, count)))


@route(
    pods_blueprint,
    _ALL,
    "POST",
    f"{_RULE}update",
    described=Operation({200: PodsTakenSchema}, errors=[409], body=PODS, body_types=JSON_OR_YAML),
)
def post(cluster: str) -> Response:
    """Place many pods, or record where they run, as a List or several documents.

    New pods are written together. A refused pod keeps only members of its gang from their places.
    """
    given = pods_manifests(manifests(MOST_MANIFESTS))
    outcomes = use_cases().pods.put_all(cluster, given)
    shown = [_outcome(cluster, pod, outcome) for pod, outcome in zip(given, outcomes, strict=True)]
    return json_response({"cluster": cluster, "pods": shown})


def _outcome(cluster: str, pod: Mapping[str, Any], outcome: PodOutcome) -> dict[str, Any]:
    metadata = pod.get("metadata")
    stated = metadata if isinstance(metadata, Mapping) else {}
    called = {key: stated[key] if isinstance(stated.get(key), str) else None for key in ("namespace", "name")}
    if isinstance(outcome, PlacementError):
        where = f"pod {called['namespace'] or 'default'}/{called['name']}"
        return {**called, "status": status_of(outcome), "error": error_document(outcome, where)}
    return {**called, "status": 201 if outcome.is_new else 200, "pod": pod_body(cluster, outcome.answer)}


@route(pods_blueprint, _ONE, "GET", f"{_RULE}show", gives_json=True, described=Operation({200: PodSchema}))
def show_pod(cluster: str, namespace: str, name: str) -> Response:
    """Show one pod with its place and what it was given."""
    return json_response(pod_body(cluster, use_cases().pods.get(cluster, namespace, name)))


@route(
    pods_blueprint,
    _ONE,
    "PUT",
    f"{_RULE}update",
    described=Operation(
        {200: PodSchema, 201: PodSchema},
        errors=[409],
        error=PodErrorSchema,
        body=POD,
        body_types=JSON_OR_YAML,
    ),
)
def put_pod(cluster: str, namespace: str, name: str) -> Response:
    """Place a pod, or record where it runs; the manifest is JSON or YAML."""
    pod = pod_manifest(manifests())
    created, answer = use_cases().pods.put(cluster, namespace, name, pod)
    return json_response(pod_body(cluster, answer), 201 if created else 200)


@route(
    pods_blueprint,
    _ONE,
    "DELETE",
    f"{_RULE}delete",
    described=Operation({204: EMPTY}, errors=[409], query=_PRECONDITION),
)
def delete_pod(cluster: str, namespace: str, name: str) -> Response:
    """Release what a pod holds; on request only if it has this uid, or is unchanged since `changed_at`."""
    given = parameters()
    refuse_unknown(given, names_of(_PRECONDITION, NEWEST))
    precondition = Precondition(single(given, "uid"), single(given, "changed_at"))
    use_cases().pods.delete(cluster, namespace, name, precondition)
    return empty_response()


@route(
    pods_blueprint,
    _PREVIEW,
    "POST",
    f"{_RULE}preview",
    gives_json=True,
    reads=True,
    described=Operation({200: PreviewSchema}, errors=[409], body=PREVIEW, body_types=JSON_OR_YAML),
)
def preview(cluster: str) -> Response:
    """Show where a pod would go, best first, and why not elsewhere; claims nothing."""
    pod, names, most = _previewed(manifests())
    return json_response(preview_body(cluster, use_cases().pods.preview(cluster, pod, names, most)))


@route(
    pods_blueprint,
    _TRANSLATION,
    "POST",
    f"{_RULE}translate",
    gives_json=True,
    reads=True,
    described=Operation({200: PodTranslationSchema}, body=PREVIEW, body_types=JSON_OR_YAML),
)
def translation(cluster: str) -> Response:
    """Translate a pod to queries for allocation candidates."""
    pod, _, _ = _previewed(manifests())
    return json_response(dump(PodTranslationSchema, use_cases().pod_translation.translate(cluster, pod)))


def _previewed(documents: list[Any]) -> tuple[Any, list[str] | None, int | None]:
    """Read a Pod alone, or {"pod": Pod, "nodeNames": [...], "limit": n}."""
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


# /ext/v1/clusters/{cluster}/reservations: places kept for pods to come.


reservations_blueprint = Blueprint("reservations", __name__)
_RESERVATIONS_ALL = "/ext/v1/clusters/<cluster>/reservations"
_RESERVATIONS_ONE = "/ext/v1/clusters/<cluster>/reservations/<name>"
_RESERVATIONS_RULE = "placement:clusters:reservations:"
_RESERVATIONS_FILTERS = (
    Parameter("node", "Reservations on a node."),
    LIMIT,
    Parameter("marker", "The `next` of the page before.", ROW_ID),
)


@route(
    reservations_blueprint,
    _RESERVATIONS_ALL,
    "GET",
    f"{_RESERVATIONS_RULE}list",
    gives_json=True,
    described=Operation({200: ReservationsSchema}, query=_RESERVATIONS_FILTERS),
)
def list_reservations(cluster: str) -> Response:
    """List reservations by node, page by page, also the ones that are over."""
    given = parameters()
    refuse_unknown(given, names_of(_RESERVATIONS_FILTERS, NEWEST))
    node, after, count = single(given, "node"), page_start(given, "marker"), page_size(given)
    page = use_cases().reservations.listed(cluster, node, after, count)
    return json_response(reservations_body(cluster, page))


@route(
    reservations_blueprint,
    _RESERVATIONS_ONE,
    "GET",
    f"{_RESERVATIONS_RULE}show",
    gives_json=True,
    described=Operation({200: ReservationSchema}),
)
def show_reservation(cluster: str, name: str) -> Response:
    """Show one reservation with its place, what it has left, and the pods that use it."""
    return json_response(reservation_body(cluster, use_cases().reservations.get(cluster, name)))


@route(
    reservations_blueprint,
    _RESERVATIONS_ONE,
    "PUT",
    f"{_RESERVATIONS_RULE}update",
    described=Operation(
        {200: ReservationSchema, 201: ReservationSchema},
        errors=[409],
        error=PodErrorSchema,
        body=RESERVATION,
        body_types=JSON_OR_YAML,
    ),
)
def put_reservation(cluster: str, name: str) -> Response:
    """Place a reservation, or change its terms; the manifest is JSON or YAML."""
    created, answer = use_cases().reservations.put(cluster, name, reservation_manifest(manifests()))
    return json_response(reservation_body(cluster, answer), 201 if created else 200)


@route(
    reservations_blueprint,
    _RESERVATIONS_ONE,
    "DELETE",
    f"{_RESERVATIONS_RULE}delete",
    described=Operation({204: EMPTY}, errors=[409]),
)
def delete_reservation(cluster: str, name: str) -> Response:
    """Release what a reservation has left, and forget it."""
    use_cases().reservations.delete(cluster, name)
    return empty_response()


# /ext/v1/clusters: Kubernetes clusters and their nodes.


clusters_blueprint = Blueprint("clusters", __name__)
_CLUSTERS_ALL = "/ext/v1/clusters"
_CLUSTERS_ONE = "/ext/v1/clusters/<cluster>"
_NODES = "/ext/v1/clusters/<cluster>/nodes"
_NODE = "/ext/v1/clusters/<cluster>/nodes/<node>"
_CLUSTERS_RULE = "placement:clusters:"


@route(
    clusters_blueprint,
    _CLUSTERS_ALL,
    "GET",
    f"{_CLUSTERS_RULE}list",
    gives_json=True,
    own_only=True,
    described=Operation({200: ClustersSchema}),
)
def list_clusters() -> Response:
    """List all clusters that the caller may see."""
    own = context.current().caller.clusters
    shown = [cluster for cluster in use_cases().clusters.listed() if own is None or cluster.name in own]
    return json_response({"clusters": [cluster_body(cluster) for cluster in shown]})


@route(
    clusters_blueprint,
    _CLUSTERS_ONE,
    "GET",
    f"{_CLUSTERS_RULE}show",
    gives_json=True,
    described=Operation({200: ClusterShownSchema}),
)
def show_cluster(cluster: str) -> Response:
    """Show one cluster."""
    return json_response(cluster_body(use_cases().clusters.get(cluster)))


@route(
    clusters_blueprint,
    _CLUSTERS_ONE,
    "PUT",
    f"{_CLUSTERS_RULE}update",
    described=Operation(
        {200: ClusterShownSchema, 201: ClusterShownSchema},
        errors=[409],
        body=ClusterSettingsSchema,
        body_required=False,
    ),
)
def put_cluster(cluster: str) -> Response:
    """Create a cluster or change its settings; the body may be empty."""
    settings: Any = json_body_or({})
    if not isinstance(settings, dict):
        raise BadRequest("the body must be an object with the cluster's settings")
    created, stored = use_cases().clusters.put(cluster, settings)
    return json_response(cluster_body(stored), 201 if created else 200)


@route(
    clusters_blueprint,
    _CLUSTERS_ONE,
    "DELETE",
    f"{_CLUSTERS_RULE}delete",
    described=Operation({204: EMPTY}, errors=[409]),
)
def delete_cluster(cluster: str) -> Response:
    """Delete a cluster without nodes."""
    use_cases().clusters.delete(cluster)
    return empty_response()


@route(
    clusters_blueprint,
    _NODES,
    "GET",
    f"{_CLUSTERS_RULE}nodes:list",
    gives_json=True,
    described=Operation({200: NodesSchema}),
)
def nodes(cluster: str) -> Response:
    """List the nodes of a cluster."""
    found = use_cases().clusters.nodes(cluster)
    return list_response("nodes", found, lambda node: {"name": node[0], "resource_provider": node[1]})


@route(
    clusters_blueprint,
    _NODE,
    "GET",
    f"{_CLUSTERS_RULE}nodes:show",
    gives_json=True,
    described=Operation({200: NodeSchema}),
)
def show_node(cluster: str, node: str) -> Response:
    """Show one node with its tree, capacity and use."""
    return json_response(node_body(use_cases().clusters.node(cluster, node)))


@route(
    clusters_blueprint,
    _NODE,
    "PUT",
    f"{_CLUSTERS_RULE}nodes:update",
    described=Operation(
        {200: NodeImportedSchema, 201: NodeImportedSchema},
        errors=[409],
        body=NODE_AND_TOPOLOGY,
        body_types=JSON_OR_YAML,
    ),
)
def put_node(cluster: str, node: str) -> Response:
    """Import a Node and its NodeResourceTopology, as JSON or YAML."""
    described = node_manifests(manifests())
    imported = use_cases().nodes.put(cluster, node, described.node, described.topology)
    body = {"cluster": cluster, "name": node, **_changes(imported)}
    return json_response(body, 201 if imported.created else 200)


@route(
    clusters_blueprint,
    _NODES,
    "POST",
    f"{_CLUSTERS_RULE}nodes:update",
    described=Operation(
        {200: NodesImportedSchema}, errors=[409], body=NODE_AND_TOPOLOGY, body_types=JSON_OR_YAML
    ),
)
def post_nodes(cluster: str) -> Response:
    """Import many Nodes with their NodeResourceTopologies, as a List or several documents.

    All are written in one transaction, but a refused node keeps no other from being imported. Nodes with the
    manifests that were imported last are not looked at again.
    """
    described = [
        NodeDocuments(name, each.node, each.topology)
        for name, each in nodes_manifests(manifests(MOST_MANIFESTS)).items()
    ]
    outcomes = use_cases().nodes.put_all(cluster, described)
    shown = [_clusters_outcome(each.name, outcome) for each, outcome in zip(described, outcomes, strict=True)]
    return json_response({"cluster": cluster, "nodes": shown})


def _clusters_outcome(name: str, outcome: ImportedNode | PlacementError) -> dict[str, Any]:
    if isinstance(outcome, PlacementError):
        return {"name": name, "status": status_of(outcome), "error": error_document(outcome, f"node {name}")}
    return {"name": name, "status": 201 if outcome.created else 200, **_changes(outcome)}


def _changes(imported: ImportedNode) -> dict[str, Any]:
    return {
        "created": imported.change.created,
        "changed": imported.change.changed,
        "deleted": imported.change.deleted,
        "warnings": imported.warnings,
    }


@route(
    clusters_blueprint,
    _NODE,
    "DELETE",
    f"{_CLUSTERS_RULE}nodes:delete",
    described=Operation({204: EMPTY}, errors=[409]),
)
def delete_node(cluster: str, node: str) -> Response:
    """Delete a node that no consumer uses."""
    use_cases().nodes.delete(cluster, node)
    return empty_response()
