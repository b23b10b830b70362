"""/ext/v1/clusters: clusters of Kubernetes, their nodes, their pods and their reservations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from flask import Blueprint, Response, request

from placement.common import documents as common_documents
from placement.common.microversions import NEWEST
from placement.engine.domain.errors import BODY, BadRequest, BadValues, Finding, parameter
from placement.http import context, query_strings
from placement.http.answers import empty_response, json_response, list_response
from placement.http.bodies import json_body_or, manifests, parameters, validated
from placement.http.context import service
from placement.http.gate import route
from placement.http.operations import EMPTY, JSON_OR_YAML, Operation, Parameter, names_of, shows
from placement.http.schemas import dump, dumper
from placement.pods import bodies, schemas
from placement.pods.decide.reading import PodDocument
from placement.pods.services.bound_pods import BoundPod, BoundPods
from placement.pods.services.closed_nodes import ClosedNodes
from placement.pods.services.clusters import Clusters
from placement.pods.services.nodes import NodeDocuments, NodeImports
from placement.pods.services.pods import Pods, Precondition
from placement.pods.services.preemption import Preemption
from placement.pods.services.reservations import Reservations
from placement.pods.services.scheduler import check_decided
from placement.pods.services.translation import PodTranslation
from placement.pods.state.model import QosClass
from placement.pods.store.statements import PodFilter
from placement.providers.fleet import Hosts

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
    query_strings.LIMIT,
    Parameter("marker", "The `next` of the previous page.", query_strings.ROW_ID),
)
_STRICT = Parameter(
    "strict",
    "Refuse a pod, also a placed one, that asks for what is not decided here, such as a volume claim.",
    {"type": "string", "const": "true"},
)
_PRECONDITION = (
    Parameter("uid", "Only the pod of this uid."),
    Parameter(
        "changed_at",
        "Only if it was not written since. A claim that is given back so never ran: the reservation that it "
        "ended comes back.",
    ),
)


@_pods("GET", f"{_RULE}list", **shows(schemas.PodsSchema, _FILTERS))
def list_pods(cluster: str) -> Response:
    """List pods by namespace, node and QoS class, page by page."""
    given = parameters()
    query_strings.refuse_unknown(given, names_of(_FILTERS, NEWEST))
    namespace, node, qos = (query_strings.single(given, name) for name in ("namespace", "node", "qos"))
    scheduled = query_strings.single(given, "scheduled")
    if scheduled not in (None, "true"):
        raise BadRequest(f"must be true, or left out, not {scheduled!r}", place=parameter("scheduled"))
    if qos is not None and qos.upper() not in _CLASSES:
        raise BadRequest(f"must be one of {', '.join(_CLASSES)}, not {qos!r}", place=parameter("qos"))
    pod_filter = PodFilter(namespace, node, qos and qos.upper(), scheduled is not None)
    after, count = query_strings.page_start(given, "marker"), query_strings.page_size(given)
    page = service(Pods).listed(cluster, pod_filter, after, count)
    return json_response(
        dump(schemas.ClaimsSchema if pod_filter.scheduled else schemas.PodsSchema, page, context=cluster)
    )


@_pods(
    "POST",
    f"{_RULE}update",
    described=_taking({200: schemas.PodsTakenSchema}, body=bodies.PODS, query=[_STRICT]),
)
def post(cluster: str) -> Response:
    """Place many pods, or record where they run, as a List or several documents.

    New pods are written together. A refused pod keeps only members of its gang from their places.
    """
    given = common_documents.pods_manifests(manifests(common_documents.MOST_MANIFESTS))
    outcomes = service(Pods).put_all(cluster, given, strict=_includes(_STRICT))
    return json_response(dump(schemas.PodsTakenSchema, zip(given, outcomes, strict=True), context=cluster))


@route(
    pods_blueprint,
    "/ext/v1/clusters/<cluster>/pods/bound",
    "POST",
    f"{_RULE}update",
    gives_json=True,
    described=Operation({200: schemas.ConfirmedPodsSchema}, body=schemas.BoundPodsSchema),
)
def confirm_bound(cluster: str) -> Response:
    """Confirm that pods were bound where they have their places, in place of reports with their manifests."""
    bound_pods = [BoundPod(**each) for each in validated()["pods"]]
    outcomes = zip(bound_pods, service(BoundPods).confirm(cluster, bound_pods), strict=True)
    return json_response(dump(schemas.ConfirmedPodsSchema, outcomes))


@_pod("GET", f"{_RULE}show", **shows(schemas.PodSchema))
def show_pod(cluster: str, namespace: str, name: str) -> Response:
    """Show one pod with its place and what it was given."""
    return json_response(
        dump(schemas.PodSchema, service(Pods).get(cluster, namespace, name), context=cluster)
    )


@_pod(
    "PUT",
    f"{_RULE}update",
    described=_taking(
        {200: schemas.PodSchema, 201: schemas.PodSchema},
        conflict=schemas.PodErrorsSchema,
        body=bodies.POD,
        query=[_STRICT],
    ),
)
def put_pod(cluster: str, namespace: str, name: str) -> Response:
    """Place a pod, or record where it runs; the manifest is JSON or YAML."""
    document = PodDocument.named(
        cluster, namespace, name, common_documents.manifest_of_kind("Pod", manifests())
    )
    if _includes(_STRICT):
        check_decided(document)
    taken = service(Pods).place(cluster, document)
    return json_response(dump(schemas.PodSchema, taken.answer, context=cluster), 201 if taken.is_new else 200)


@_pod("DELETE", f"{_RULE}delete", described=Operation({204: EMPTY}, errors=[409], query=_PRECONDITION))
def delete_pod(cluster: str, namespace: str, name: str) -> Response:
    """Release what a pod holds; on request only if it has this uid, or is unchanged since `changed_at`."""
    given = parameters()
    query_strings.refuse_unknown(given, names_of(_PRECONDITION, NEWEST))
    precondition = Precondition(query_strings.single(given, "uid"), query_strings.single(given, "changed_at"))
    service(Pods).delete(cluster, namespace, name, precondition)
    return empty_response()


@route(
    pods_blueprint,
    "/ext/v1/clusters/<cluster>/pods/preview",
    "POST",
    f"{_RULE}preview",
    gives_json=True,
    reads=True,
    described=_taking({200: schemas.PreviewSchema}, body=bodies.PREVIEW, query=[_STRICT]),
)
def preview(cluster: str) -> Response:
    """Show where a pod would go, best first, and why not elsewhere; claims nothing."""
    pod, names, most = _previewed(manifests())
    strict = _includes(_STRICT)
    found = service(Pods).preview(cluster, pod, names, most, knows_nodes=True, strict=strict)
    return json_response(dump(schemas.PreviewSchema, found, context=cluster))


@route(
    pods_blueprint,
    "/ext/v1/clusters/<cluster>/pods/translation",
    "POST",
    f"{_RULE}translate",
    gives_json=True,
    reads=True,
    described=Operation({200: schemas.PodTranslationSchema}, body=bodies.PREVIEW, body_types=JSON_OR_YAML),
)
def translation(cluster: str) -> Response:
    """Translate a pod to queries for allocation candidates."""
    pod, _, _ = _previewed(manifests())
    return json_response(dump(schemas.PodTranslationSchema, service(PodTranslation).translate(cluster, pod)))


@route(
    pods_blueprint,
    "/ext/v1/clusters/<cluster>/pods/preemption",
    "POST",
    f"{_RULE}preemption",
    gives_json=True,
    reads=True,
    described=Operation({200: schemas.PreemptionSchema}, body=schemas.PreemptionBodySchema),
)
def preemption(cluster: str) -> Response:
    """Choose the node from which less important pods should be evicted so that a pod fits; writes nothing."""
    body = validated()
    pod = common_documents.manifest_of_kind("Pod", [body["pod"]])
    chosen = service(Preemption).choice(cluster, pod, body.get("protected", ()), body.get("nodes"))
    return json_response(dump(schemas.PreemptionSchema, chosen))


def _previewed(documents: list[Any]) -> tuple[Any, list[str] | None, int | None]:
    """Read a Pod alone, or {"pod": Pod, "nodeNames": [...], "limit": n}."""
    if len(documents) == 1 and isinstance(documents[0], dict) and "kind" not in documents[0]:
        request = documents[0]
        unknown = sorted(str(key) for key in request.keys() - {"pod", "nodeNames", "limit"})
        if unknown:
            raise BadValues(Finding("not part of a preview", BODY / name) for name in unknown)
        names, most = request.get("nodeNames"), request.get("limit")
        if names is not None and not (
            isinstance(names, list) and all(isinstance(name, str) for name in names)
        ):
            raise BadRequest("must be a list of names of nodes", place=BODY / "nodeNames")
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 0):
            raise BadRequest(f"must be 0 or more, not {most!r}", place=BODY / "limit")
        return _pod_of(request), names, most
    return common_documents.manifest_of_kind("Pod", documents), None, None


def _pod_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the Pod of a preview. Raises BadRequest, also where it is missing."""
    if request.get("pod") is None:
        raise BadRequest("is missing", place=BODY / "pod")
    return common_documents.manifest_of_kind("Pod", [request["pod"]])


# /ext/v1/clusters/{cluster}/reservations: places kept for pods to come.


reservations_blueprint = Blueprint("reservations", __name__)
_reservations = partial(route, reservations_blueprint, "/ext/v1/clusters/<cluster>/reservations")
_reservation = partial(route, reservations_blueprint, "/ext/v1/clusters/<cluster>/reservations/<name>")
_KEPT = "placement:clusters:reservations:"
_KEPT_FILTERS = (
    Parameter("node", "Reservations on a node."),
    query_strings.LIMIT,
    Parameter("marker", "The `next` of the previous page.", query_strings.ROW_ID),
)


@_reservations("GET", f"{_KEPT}list", **shows(schemas.ReservationsSchema, _KEPT_FILTERS))
def list_reservations(cluster: str) -> Response:
    """List reservations by node, page by page, also the ones that are over."""
    given = parameters()
    query_strings.refuse_unknown(given, names_of(_KEPT_FILTERS, NEWEST))
    node, after, count = (
        query_strings.single(given, "node"),
        query_strings.page_start(given, "marker"),
        query_strings.page_size(given),
    )
    page = service(Reservations).listed(cluster, node, after, count)
    return json_response(dump(schemas.ReservationsSchema, page, context=cluster))


@_reservation("GET", f"{_KEPT}show", **shows(schemas.ReservationSchema))
def show_reservation(cluster: str, name: str) -> Response:
    """Show one reservation with its place, what it has left, and the pods that use it."""
    found = service(Reservations).get(cluster, name)
    return json_response(dump(schemas.ReservationSchema, found, context=cluster))


@_reservation(
    "PUT",
    f"{_KEPT}update",
    described=_taking(
        {200: schemas.ReservationSchema, 201: schemas.ReservationSchema},
        conflict=schemas.PodErrorsSchema,
        body=bodies.RESERVATION,
    ),
)
def put_reservation(cluster: str, name: str) -> Response:
    """Place a reservation, or change its terms; the manifest is JSON or YAML."""
    created, answer = service(Reservations).put(
        cluster, name, common_documents.manifest_of_kind("Reservation", manifests())
    )
    return json_response(dump(schemas.ReservationSchema, answer, context=cluster), 201 if created else 200)


@_reservation("DELETE", f"{_KEPT}delete", described=_DELETED)
def delete_reservation(cluster: str, name: str) -> Response:
    """Release what a reservation has left, and forget it."""
    service(Reservations).delete(cluster, name)
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
    if not request.query_string:
        return False
    given = parameters()
    query_strings.refuse_unknown(given, names_of([part], NEWEST))
    return _has(given, part)


def _has(given: query_strings.Parameters, part: Parameter) -> bool:
    """Return whether a parameter that may have one value is given. Raises BadRequest for anything else."""
    value, known = query_strings.single(given, part.name), part.schema["const"]
    if value not in (None, known):
        raise BadRequest(f"must be {known}, or left out, not {value!r}", place=parameter(part.name))
    return value is not None


@_clusters("GET", f"{_CLUSTERS_RULE}list", own_only=True, **shows(schemas.ClustersSchema, [_USE]))
def list_clusters() -> Response:
    """List all clusters that the caller may see."""
    own = context.current().caller.clusters
    shown = [cluster for cluster in service(Clusters).listed() if own is None or cluster.name in own]
    use = service(Hosts).look().by_cluster() if _includes(_USE) else None
    return json_response(dump(schemas.ClustersSchema, shown, context=use))


@_cluster("GET", f"{_CLUSTERS_RULE}show", **shows(schemas.ClusterShownSchema))
def show_cluster(cluster: str) -> Response:
    """Show one cluster."""
    return json_response(dump(schemas.ClusterShownSchema, service(Clusters).get(cluster)))


@_cluster(
    "PUT",
    f"{_CLUSTERS_RULE}update",
    described=Operation(
        {200: schemas.ClusterShownSchema, 201: schemas.ClusterShownSchema},
        errors=[409],
        body=schemas.ClusterSettingsSchema,
        body_required=False,
    ),
)
def put_cluster(cluster: str) -> Response:
    """Create a cluster or change its settings; the body may be empty."""
    settings: Any = json_body_or({})
    if not isinstance(settings, dict):
        raise BadRequest("the body must be an object with the cluster's settings")
    created, stored = service(Clusters).put(cluster, settings)
    return json_response(dump(schemas.ClusterShownSchema, stored), 201 if created else 200)


@_cluster("DELETE", f"{_CLUSTERS_RULE}delete", described=_DELETED)
def delete_cluster(cluster: str) -> Response:
    """Delete a cluster without nodes."""
    service(Clusters).delete(cluster)
    return empty_response()


@_nodes("GET", f"{_CLUSTERS_RULE}nodes:list", **shows(schemas.NodesSchema, [_STATE]))
def nodes(cluster: str) -> Response:
    """List the nodes of a cluster."""
    states = service(ClosedNodes).states(cluster) if _includes(_STATE) else {}
    shown = dumper(schemas.NodeReferenceSchema, context=states)
    return list_response("nodes", service(Clusters).nodes(cluster), shown)


@_node("GET", f"{_CLUSTERS_RULE}nodes:show", **shows(schemas.NodeSchema))
def show_node(cluster: str, node: str) -> Response:
    """Show one node with its tree, capacity and use."""
    return json_response(dump(schemas.NodeSchema, service(Clusters).node(cluster, node)))


@_node(
    "PUT",
    f"{_CLUSTERS_RULE}nodes:update",
    described=_taking(
        {200: schemas.NodeImportedSchema, 201: schemas.NodeImportedSchema}, body=bodies.NODE_AND_TOPOLOGY
    ),
)
def put_node(cluster: str, node: str) -> Response:
    """Import a Node and its NodeResourceTopology, as JSON or YAML."""
    described = common_documents.node_manifests(manifests())
    imported = service(NodeImports).put(cluster, node, described.node, described.topology)
    body = dump(schemas.NodeImportedSchema, (node, imported), context=cluster)
    return json_response(body, 201 if imported.created else 200)


@_nodes(
    "POST",
    f"{_CLUSTERS_RULE}nodes:update",
    described=_taking({200: schemas.NodesImportedSchema}, body=bodies.NODE_AND_TOPOLOGY),
)
def post_nodes(cluster: str) -> Response:
    """Import many Nodes with their NodeResourceTopologies, as a List or several documents.

    All are written in one transaction, but a refused node keeps no other from being imported. Nodes with the
    manifests that were imported last are not looked at again.
    """
    described = [
        NodeDocuments(name, each.node, each.topology)
        for name, each in common_documents.nodes_manifests(manifests(common_documents.MOST_MANIFESTS)).items()
    ]
    outcomes = service(NodeImports).put_all(cluster, described)
    named = zip((each.name for each in described), outcomes, strict=True)
    return json_response(dump(schemas.NodesImportedSchema, named, context=cluster))


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
    query_strings.refuse_unknown(given, names_of([_CLOSES, _WITH_RESERVATIONS], NEWEST))
    closes, with_reservations = _has(given, _CLOSES), _has(given, _WITH_RESERVATIONS)
    service(NodeImports).delete(cluster, node, closes=closes, with_reservations=with_reservations)
    return empty_response()
