"""Consumers and pods: what one holds, drawn on its host, since when and by whom."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any, NamedTuple

from flask import Blueprint, Response, request

from placement.api.context import use_cases
from placement.api.rendering.listings import allocations_body
from placement.api.rendering.pods import page_body, pod_body
from placement.api.route_guard import PAGES, route
from placement.api.targets import cluster_of_query
from placement.domain.allocation import UNKNOWN_CONSUMER_TYPE, AllocationFilter
from placement.domain.audit import AuditFilter
from placement.domain.errors import BadRequest, Forbidden, NotFound
from placement.domain.identifiers import normalize_uuid
from placement.services.clusters.pod_pages import PodFilter
from placement.services.host_views import HostView
from placement.web.changes import history_of, rows_of, told
from placement.web.host_boxes import Drawing
from placement.web.host_drawing import drawing_of
from placement.web.hosts import seen
from placement.web.permissions import clusters, may, require
from placement.web.shown import HTML, address, same_page, shown, to, wanted

_PAGE = 50
_MOST_HOSTS = 4
_WHO = ("consumer_uuid", "consumer_type", "project_id", "user_id")


def register(blueprint: Blueprint) -> None:
    """Add the routes."""
    listing = "placement:allocations:list_all"
    route(blueprint, f"{PAGES}/consumers", "GET", listing, target=cluster_of_query)(_consumers)
    route(blueprint, f"{PAGES}/consumers/<uuid>", "GET", "placement:allocations:list")(_consumer)
    route(blueprint, f"{PAGES}/consumers/<uuid>/release", "POST", "placement:allocations:delete")(_release)
    route(blueprint, f"{PAGES}/pods", "GET", "placement:clusters:list", own_only=True)(_pods)
    pod = f"{PAGES}/pods/<cluster>/<namespace>/<name>"
    route(blueprint, pod, "GET", "placement:clusters:pods:show")(_pod)
    route(blueprint, f"{pod}/release", "POST", "placement:clusters:pods:delete")(_release_pod)


def _consumers() -> Response:
    """Consumers with what they hold, page by page."""
    given = {
        name: request.args.get(name) or None for name in ("project_id", "user_id", "consumer_type", "cluster")
    }
    kind = given["consumer_type"]
    wanted = AllocationFilter(
        project_id=given["project_id"],
        user_id=given["user_id"],
        consumer_type=None if kind == UNKNOWN_CONSUMER_TYPE else kind,
        untyped=kind == UNKNOWN_CONSUMER_TYPE,
        cluster=given["cluster"],
    )
    after = request.args.get("after")
    if after is not None and normalize_uuid(after) is None:
        raise BadRequest("after: must be the uuid that the page before ends with")
    page = use_cases().listings.allocations(wanted, after, _PAGE)
    document = allocations_body(page)
    following = None if page.next is None else same_page(after=page.next)
    return shown(
        "consumers.html",
        document,
        lambda: _held_table(document),
        given=given,
        following=following,
        clusters=[given["cluster"]] if given["cluster"] else [],
        sees_consumers=may("allocations:list"),
    )


def held(consumer: dict[str, Any]) -> dict[str, int]:
    """What a consumer holds of each class over all providers."""
    found: dict[str, int] = {}
    for given in consumer["allocations"].values():
        for name, amount in given["resources"].items():
            found[name] = found.get(name, 0) + amount
    return found


def _held_table(document: dict[str, Any]) -> Any:
    names = (*_WHO, "provider", "provider_uuid", "class", "amount")
    return names, (
        (*(each[name] for name in _WHO), held["name"], uuid, name, amount)
        for each in document["consumers"]
        for uuid, held in each["allocations"].items()
        for name, amount in held["resources"].items()
    )


def _consumer(uuid: str) -> Response:
    """One consumer. Raises NotFound if it holds nothing and nobody remembers it."""
    normal = normalize_uuid(uuid)
    if normal is None:
        raise NotFound(f"{uuid} is no uuid; look for a name above.")
    page = use_cases().listings.allocations(AllocationFilter(consumer_uuid=normal), None, 1)
    document = allocations_body(page)
    history = history_of(AuditFilter(consumer_id=normal))
    if not document["consumers"] and not history:
        raise NotFound(f"Consumer {normal} holds nothing (any more).")
    holder = document["consumers"][0] if document["consumers"] else None
    return shown(
        "consumer.html",
        lambda: {
            "consumer": holder,
            "history": None if history is None else [told(each) for each in history],
        },
        lambda: _held_table(document),
        uuid=normal,
        holder=holder,
        history=None if history is None else rows_of(history),
        drawn=_drawn(holder["allocations"] if holder and wanted() == HTML else ()),
        claimed=request.args.get("claimed"),
    )


class Drawn(NamedTuple):
    """Some hosts as they are drawn, and how many more there are than a page has room for."""

    hosts: list[tuple[HostView, Drawing]]
    more: int


def _drawn(uuids: Collection[str]) -> Drawn:
    """The hosts of these providers that the caller may see."""
    roots = use_cases().host_views.roots_of(uuids) if uuids else []
    hosts = []
    for root in roots[:_MOST_HOSTS]:
        with suppress(Forbidden, NotFound):
            host = seen(root)
            hosts.append((host, drawing_of(host)))
    return Drawn(hosts, len(roots[_MOST_HOSTS:]))


def _release(uuid: str) -> Response:
    """Release what a consumer holds."""
    use_cases().claims.release(normalize_uuid(uuid) or uuid)
    return to(address(f"/consumers/{uuid}"))


def _pods() -> Response:
    """Pods of a cluster, page by page."""
    cluster = request.args.get("cluster", "")
    names = [cluster] if cluster else _with_pods()
    cluster = cluster or (names[0] if names else "")
    given = {name: request.args.get(name) or None for name in ("namespace", "node", "qos")}
    text = request.args.get("marker", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadRequest("marker: must be the one of the page before")
    document: dict[str, Any] = {"pods": [], "next": None}
    if cluster:
        require("clusters:pods:list", cluster)
        wanted = PodFilter(given["namespace"], given["node"], given["qos"])
        page = use_cases().pods.listed(cluster, wanted, int(text), _PAGE)
        document = page_body(cluster, page)
    following = None if document["next"] is None else same_page(marker=document["next"])
    columns = ("namespace", "name", "node", "qos_class", "phase", "cpuset", "consumer_uuid")
    rows = ([pod[column] for column in columns] for pod in document["pods"])
    return shown(
        "pods.html",
        document,
        (columns, rows),
        cluster=cluster,
        given=given,
        clusters=names,
        following=following,
    )


def _with_pods() -> list[str]:
    """The clusters of which the caller may see the pods."""
    return [each.name for each in clusters() if may("clusters:pods:list", each.name)]


def _pod(cluster: str, namespace: str, name: str) -> Response:
    """One pod."""
    answer = use_cases().pods.get(cluster, namespace, name)
    document = pod_body(cluster, answer)
    target = f"{cluster}/{namespace}/{name}"
    history = history_of(AuditFilter(target=target))
    places = [answer.resource_provider] if answer.resource_provider and wanted() == HTML else ()
    columns = ("namespace", "name", "node", "qos_class", "phase", "cpuset", "consumer_uuid")
    return shown(
        "pod.html",
        document,
        (columns, [[document[column] for column in columns]]),
        pod=document,
        history=None if history is None else rows_of(history),
        drawn=_drawn(places),
        sees_consumers=may("allocations:list"),
        claimed=request.args.get("claimed"),
    )


def _release_pod(cluster: str, namespace: str, name: str) -> Response:
    """Release what a pod holds, and forget it."""
    use_cases().pods.delete(cluster, namespace, name)
    return to(address("/pods", cluster=cluster))
