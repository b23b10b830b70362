"""/ext/v1/clusters: clusters of Kubernetes, their nodes, their pods and their reservations."""

from __future__ import annotations

from functools import partial
from typing import Any

from flask import Blueprint, Response

from placement.common.documents import (
    MOST_MANIFESTS,
    manifest_of_kind,
    node_manifests,
    nodes_manifests,
    pods_manifests,
)
from placement.common.microversions import NEWEST
from placement.engine.domain.errors import BadRequest
from placement.http import context
from placement.http.context import (
    empty_response,
    json_body_or,
    json_response,
    list_response,
    manifests,
    use_cases,
)
from placement.http.gate import route
from placement.http.operations import (
    EMPTY,
    JSON_OR_YAML,
    LIMIT,
    ROW_ID,
    Operation,
    Parameter,
    Parameters,
    names_of,
    page_size,
    page_start,
    parameters,
    refuse_unknown,
    shows,
    single,
)
from placement.http.schemas import dump, dumper
from placement.pods.clusters import NodeDocuments
from placement.pods.model import QosClass
from placement.pods.reading import PodDocument
from placement.pods.schemas import (
    ClaimsSchema,
    ClusterSettingsSchema,
    ClusterShownSchema,
    ClustersSchema,
    NodeImportedSchema,
    NodeReferenceSchema,
    NodeSchema,
    NodesImportedSchema,
    NodesSchema,
    PodErrorsSchema,
    PodSchema,
    PodsSchema,
    PodsTakenSchema,
    PodTranslationSchema,
    PreviewSchema,
    ReservationSchema,
    ReservationsSchema,
)
from placement.pods.service import Precondition
from placement.pods.statements import PodFilter

# Manifests of Kubernetes as bodies: what they have at least. The rest is for Kubernetes to say.


Document = dict[str, Any]
_METADATA: Document = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 253}},
    "required": ["name"],
}


def _manifest(kind: str, *required: str, **properties: Document) -> Document:
    return {
        "type": "object",
        "properties": {"kind": {"type": "string", "const": kind}, "metadata": _METADATA, **properties},
        "required": ["kind", "metadata", *required],
    }


POD = _manifest("Pod", "spec", spec={"type": "object"})
RESERVATION = _manifest("Reservation", "spec", spec={"type": "object"})
NODE = _manifest("Node", status={"type": "object"})
TOPOLOGY = _manifest("NodeResourceTopology")


def _or_list(one: Document, *others: Document) -> Document:
    """Return the shape of a manifest, or of several: in YAML as documents, in JSON as a List."""
    items = {"anyOf": [one, *others]} if others else one
    properties = {
        "kind": {"type": "string", "const": "List"},
        "items": {"type": "array", "items": items, "minItems": 1},
    }
    return {"anyOf": [one, {"type": "object", "properties": properties, "required": ["kind", "items"]}]}


NODE_AND_TOPOLOGY = _or_list(NODE, TOPOLOGY)
PODS = _or_list(POD)
PREVIEW: Document = {
    "anyOf": [
        POD,
        {
            "type": "object",
            "properties": {
                "pod": POD,
                "nodeNames": {"type": ["array", "null"], "items": {"type": "string"}},
                "limit": {"type": ["integer", "null"], "minimum": 0},
            },
            "required": ["pod"],
            "additionalProperties": False,
        },
    ]
}


# /ext/v1/clusters/{cluster}/pods: pods placed on nodes, shown and released.


pods_blueprint = Blueprint("pods", __name__)
_pods = partial(route, pods_blueprint, "/ext/v1/clusters/<cluster>/pods")
_pod = partial(route, pods_blueprint, "/ext/v1/clusters/<cluster>/pods/<namespace>/<name>")
_RULE = "placement:clusters:pods:"
_taking = partial(Operation, errors=[409], body_types=JSON_OR_YAML)
_DELETED = Operation({204: EMPTY}, errors=[409])
_CLASSES = tuple(map(str, filter(None, QosClass)))
_FILTERS = (
    Parameter("namespace", "Pods of a namespace."),
    Parameter("node", "Pods on a node."),
    Parameter(
        "qos", "Pods of a QoS class of Koordinator, in any case.", {"type": "string", "enum": list(_CLASSES)}
    ),
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


@_pods("GET", f"{_RULE}list", **shows(PodsSchema, _FILTERS))
def list_pods(cluster: str) -> Response:
    """List pods by namespace, node and QoS class, page by page."""
    given = parameters()
    refuse_unknown(given, names_of(_FILTERS, NEWEST))
    namespace, node, qos = (single(given, name) for name in ("namespace", "node", "qos"))
    scheduled = single(given, "scheduled")
    if scheduled not in (None, "true"):
        raise BadRequest(f"scheduled: must be true, or left out, not {scheduled!r}")
    if qos is not None and qos.upper() not in _CLASSES:
        raise BadRequest(f"qos: must be one of {', '.join(_CLASSES)}, not {qos!r}")
    wanted = PodFilter(namespace, node, qos and qos.upper(), scheduled is not None)
    after, count = page_start(given, "marker"), page_size(given)
    page = use_cases().pods.listed(cluster, wanted, after, count)
    return json_response(dump(ClaimsSchema if wanted.scheduled else PodsSchema, page, context=cluster))


@_pods("POST", f"{_RULE}update", described=_taking({200: PodsTakenSchema}, body=PODS))
def post(cluster: str) -> Response:
    """Place many pods, or record where they run, as a List or several documents.

    New pods are written together. A refused pod keeps only members of its gang from their places.
    """
    given = pods_manifests(manifests(MOST_MANIFESTS))
    outcomes = use_cases().pods.put_all(cluster, given)
    return json_response(dump(PodsTakenSchema, zip(given, outcomes, strict=True), context=cluster))


@_pod("GET", f"{_RULE}show", **shows(PodSchema))
def show_pod(cluster: str, namespace: str, name: str) -> Response:
    """Show one pod with its place and what it was given."""
    return json_response(dump(PodSchema, use_cases().pods.get(cluster, namespace, name), context=cluster))


@_pod(
    "PUT",
    f"{_RULE}update",
    described=_taking({200: PodSchema, 201: PodSchema}, conflict=PodErrorsSchema, body=POD),
)
def put_pod(cluster: str, namespace: str, name: str) -> Response:
    """Place a pod, or record where it runs; the manifest is JSON or YAML."""
    document = PodDocument.named(cluster, namespace, name, manifest_of_kind("Pod", manifests()))
    taken = use_cases().pods.place(cluster, document)
    return json_response(dump(PodSchema, taken.answer, context=cluster), 201 if taken.is_new else 200)


@_pod("DELETE", f"{_RULE}delete", described=Operation({204: EMPTY}, errors=[409], query=_PRECONDITION))
def delete_pod(cluster: str, namespace: str, name: str) -> Response:
    """Release what a pod holds; on request only if it has this uid, or is unchanged since `changed_at`."""
    given = parameters()
    refuse_unknown(given, names_of(_PRECONDITION, NEWEST))
    precondition = Precondition(single(given, "uid"), single(given, "changed_at"))
    use_cases().pods.delete(cluster, namespace, name, precondition)
    return empty_response()


@route(
    pods_blueprint,
    "/ext/v1/clusters/<cluster>/pods/preview",
    "POST",
    f"{_RULE}preview",
    gives_json=True,
    reads=True,
    described=_taking({200: PreviewSchema}, body=PREVIEW),
)
def preview(cluster: str) -> Response:
    """Show where a pod would go, best first, and why not elsewhere; claims nothing."""
    pod, names, most = _previewed(manifests())
    found = use_cases().pods.preview(cluster, pod, names, most, strict=True)
    return json_response(dump(PreviewSchema, found, context=cluster))


@route(
    pods_blueprint,
    "/ext/v1/clusters/<cluster>/pods/translation",
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
        return manifest_of_kind("Pod", [request.get("pod")]), names, most
    return manifest_of_kind("Pod", documents), None, None


# /ext/v1/clusters/{cluster}/reservations: places kept for pods to come.


reservations_blueprint = Blueprint("reservations", __name__)
_reservations = partial(route, reservations_blueprint, "/ext/v1/clusters/<cluster>/reservations")
_reservation = partial(route, reservations_blueprint, "/ext/v1/clusters/<cluster>/reservations/<name>")
_KEPT = "placement:clusters:reservations:"
_KEPT_FILTERS = (
    Parameter("node", "Reservations on a node."),
    LIMIT,
    Parameter("marker", "The `next` of the page before.", ROW_ID),
)


@_reservations("GET", f"{_KEPT}list", **shows(ReservationsSchema, _KEPT_FILTERS))
def list_reservations(cluster: str) -> Response:
    """List reservations by node, page by page, also the ones that are over."""
    given = parameters()
    refuse_unknown(given, names_of(_KEPT_FILTERS, NEWEST))
    node, after, count = single(given, "node"), page_start(given, "marker"), page_size(given)
    page = use_cases().reservations.listed(cluster, node, after, count)
    return json_response(dump(ReservationsSchema, page, context=cluster))


@_reservation("GET", f"{_KEPT}show", **shows(ReservationSchema))
def show_reservation(cluster: str, name: str) -> Response:
    """Show one reservation with its place, what it has left, and the pods that use it."""
    found = use_cases().reservations.get(cluster, name)
    return json_response(dump(ReservationSchema, found, context=cluster))


@_reservation(
    "PUT",
    f"{_KEPT}update",
    described=_taking(
        {200: ReservationSchema, 201: ReservationSchema}, conflict=PodErrorsSchema, body=RESERVATION
    ),
)
def put_reservation(cluster: str, name: str) -> Response:
    """Place a reservation, or change its terms; the manifest is JSON or YAML."""
    created, answer = use_cases().reservations.put(
        cluster, name, manifest_of_kind("Reservation", manifests())
    )
    return json_response(dump(ReservationSchema, answer, context=cluster), 201 if created else 200)


@_reservation("DELETE", f"{_KEPT}delete", described=_DELETED)
def delete_reservation(cluster: str, name: str) -> Response:
    """Release what a reservation has left, and forget it."""
    use_cases().reservations.delete(cluster, name)
    return empty_response()


# /ext/v1/clusters: Kubernetes clusters and their nodes.


clusters_blueprint = Blueprint("clusters", __name__)
_clusters = partial(route, clusters_blueprint, "/ext/v1/clusters")
_cluster = partial(route, clusters_blueprint, "/ext/v1/clusters/<cluster>")
_nodes = partial(route, clusters_blueprint, "/ext/v1/clusters/<cluster>/nodes")
_node = partial(route, clusters_blueprint, "/ext/v1/clusters/<cluster>/nodes/<node>")
_CLUSTERS_RULE = "placement:clusters:"
_USE = Parameter("include", "`use`: with their hosts, capacity and use.", {"type": "string", "const": "use"})
_STATE = Parameter(
    "include",
    "`state`: with their pods, uids, and why they are closed.",
    {"type": "string", "const": "state"},
)


def _includes(part: Parameter) -> bool:
    """Return whether the request includes what the parameter adds. Raises BadRequest for anything else."""
    given = parameters()
    refuse_unknown(given, names_of([part], NEWEST))
    return _has(given, part)


def _has(given: Parameters, part: Parameter) -> bool:
    """Return whether a parameter that may have one value is given. Raises BadRequest for anything else."""
    value, known = single(given, part.name), part.schema["const"]
    if value not in (None, known):
        raise BadRequest(f"{part.name}: must be {known}, or left out, not {value!r}")
    return value is not None


@_clusters("GET", f"{_CLUSTERS_RULE}list", own_only=True, **shows(ClustersSchema, [_USE]))
def list_clusters() -> Response:
    """List all clusters that the caller may see."""
    own = context.current().caller.clusters
    shown = [cluster for cluster in use_cases().clusters.listed() if own is None or cluster.name in own]
    use = use_cases().hosts.look().by_cluster() if _includes(_USE) else None
    return json_response(dump(ClustersSchema, shown, context=use))


@_cluster("GET", f"{_CLUSTERS_RULE}show", **shows(ClusterShownSchema))
def show_cluster(cluster: str) -> Response:
    """Show one cluster."""
    return json_response(dump(ClusterShownSchema, use_cases().clusters.get(cluster)))


@_cluster(
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
    return json_response(dump(ClusterShownSchema, stored), 201 if created else 200)


@_cluster("DELETE", f"{_CLUSTERS_RULE}delete", described=_DELETED)
def delete_cluster(cluster: str) -> Response:
    """Delete a cluster without nodes."""
    use_cases().clusters.delete(cluster)
    return empty_response()


@_nodes("GET", f"{_CLUSTERS_RULE}nodes:list", **shows(NodesSchema, [_STATE]))
def nodes(cluster: str) -> Response:
    """List the nodes of a cluster."""
    states = use_cases().closed_nodes.states(cluster) if _includes(_STATE) else {}
    shown = dumper(NodeReferenceSchema, context=states)
    return list_response("nodes", use_cases().clusters.nodes(cluster), shown)


@_node("GET", f"{_CLUSTERS_RULE}nodes:show", **shows(NodeSchema))
def show_node(cluster: str, node: str) -> Response:
    """Show one node with its tree, capacity and use."""
    return json_response(dump(NodeSchema, use_cases().clusters.node(cluster, node)))


@_node(
    "PUT",
    f"{_CLUSTERS_RULE}nodes:update",
    described=_taking({200: NodeImportedSchema, 201: NodeImportedSchema}, body=NODE_AND_TOPOLOGY),
)
def put_node(cluster: str, node: str) -> Response:
    """Import a Node and its NodeResourceTopology, as JSON or YAML."""
    described = node_manifests(manifests())
    imported = use_cases().nodes.put(cluster, node, described.node, described.topology)
    body = dump(NodeImportedSchema, (node, imported), context=cluster)
    return json_response(body, 201 if imported.created else 200)


@_nodes(
    "POST",
    f"{_CLUSTERS_RULE}nodes:update",
    described=_taking({200: NodesImportedSchema}, body=NODE_AND_TOPOLOGY),
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
    named = zip((each.name for each in described), outcomes, strict=True)
    return json_response(dump(NodesImportedSchema, named, context=cluster))


_CLOSES = Parameter(
    "closes",
    "A node that is in use, so that this is refused (409), is closed to new pods.",
    {"type": "string", "const": "true"},
)
_WITH_RESERVATIONS = Parameter(
    "reservations",
    "Reservations on the node are deleted with it; otherwise they are in the way (409).",
    {"type": "string", "const": "true"},
)


@_node(
    "DELETE",
    f"{_CLUSTERS_RULE}nodes:delete",
    described=Operation({204: EMPTY}, errors=[409], query=[_CLOSES, _WITH_RESERVATIONS]),
)
def delete_node(cluster: str, node: str) -> Response:
    """Delete a node that no consumer uses; on request, close one that is in use."""
    given = parameters()
    refuse_unknown(given, names_of([_CLOSES, _WITH_RESERVATIONS], NEWEST))
    closes, with_reservations = _has(given, _CLOSES), _has(given, _WITH_RESERVATIONS)
    use_cases().nodes.delete(cluster, node, closes=closes, with_reservations=with_reservations)
    return empty_response()
