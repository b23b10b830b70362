"""The pages of consumers and pods: what one holds, drawn on its host, since when and by which user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from flask import Response, request
from markupsafe import Markup

from placement.allocations.candidates import CandidateSearch
from placement.allocations.claims import Claims
from placement.allocations.holdings import Listings
from placement.allocations.schemas import ConsumerPageSchema
from placement.common.titles import consumer_title, short_id
from placement.engine.domain.audit import AuditFilter
from placement.engine.domain.claims import UNKNOWN_CONSUMER_TYPE, AllocationFilter
from placement.engine.domain.errors import BadRequest, Forbidden, NotFound, parameter
from placement.engine.domain.identifiers import normalize_uuid
from placement.http.context import service
from placement.http.schemas import dump
from placement.http.targets import cluster_of_query
from placement.pods.schemas import PodSchema, PodsSchema
from placement.pods.services.finder import Finder
from placement.pods.services.pods import Pods
from placement.pods.services.views import HostView, HostViews
from placement.pods.store.statements import PodFilter
from placement.web import units
from placement.web.answers import (
    HTML,
    PageTable,
    address,
    choices,
    marker,
    refuse_others,
    same_page,
    shown,
    to,
    wanted,
)
from placement.web.callers import clusters, may, require
from placement.web.changes import history_of
from placement.web.host_boxes import HostDrawing
from placement.web.host_drawing import OwnerSigns, drawing_of
from placement.web.hosts import seen
from placement.web.records import rows_of, since_and_last
from placement.web.templating import escaped, page

_PAGE = 50
_MOST_HOSTS, _MOST_NAMES = 4, 2
_NO_TABLE: PageTable = ((), ())
_POD = ("namespace", "name", "node", "qos_class", "phase", "cpuset", "consumer_uuid")
_WHO = ("consumer_uuid", "consumer_type", "project_id", "user_id")


def _host(called: str) -> str:
    """Return the uuid of a host. Raises BadRequest for an unknown name."""
    return service(CandidateSearch).called.providers({called: parameter("host")})[called]


@page("/consumers", rule="allocations:list_all", target=cluster_of_query)
def _consumers() -> Response:
    refuse_others("project_id", "user_id", "consumer_type", "cluster", "host", "after")
    given = choices("project_id", "user_id", "consumer_type", "cluster", "host")
    kind = given["consumer_type"]
    filter_ = AllocationFilter(
        project_id=given["project_id"],
        user_id=given["user_id"],
        consumer_type=None if kind == UNKNOWN_CONSUMER_TYPE else kind,
        untyped=kind == UNKNOWN_CONSUMER_TYPE,
        cluster=given["cluster"],
        host=None if given["host"] is None else _host(given["host"]),
    )
    after = request.args.get("after")
    if after is not None and normalize_uuid(after) is None:
        raise BadRequest("must be the uuid that the page before ends with", place=parameter("after"))
    if wanted() != HTML:
        document = dump(ConsumerPageSchema, service(Listings).allocations(filter_, after, _PAGE))
        return shown("consumers.html", document, lambda: _held_table(document))
    sums, following = service(Listings).consumers(filter_, after, _PAGE)
    held: dict[str, dict[str, int]] = {}
    hosts: dict[str, dict[str, str]] = {}
    counts: Counter[str] = Counter()
    owners = {}
    names = _names_of_pods({row.consumer_uuid for row in sums}, given["cluster"])
    for row in sums:
        held.setdefault(row.consumer_uuid, {})[row.class_name] = row.amount
        kind = row.consumer_type or UNKNOWN_CONSUMER_TYPE
        hosts.setdefault(row.consumer_uuid, {}).update((row.first_host, row.last_host))
        counts[row.consumer_uuid] = max(counts[row.consumer_uuid], row.hosts)
        name = names.get(row.consumer_uuid) or consumer_title(row.consumer_type, row.consumer_uuid)
        owners[row.consumer_uuid] = (
            *(row.consumer_uuid, kind, name),
            *(row.project_id, short_id(row.project_id), row.user_id, short_id(row.user_id)),
        )
    amounts = [
        (_links(hosts[uuid], counts[uuid]), units.summary(held[uuid]), units.pairs(held[uuid]))
        for uuid in owners
    ]
    return shown(
        "consumers.html",
        {},
        _NO_TABLE,
        consumers=list(zip(escaped(owners.values()), amounts, strict=True)),
        given=given,
        following=None if following is None else same_page(after=following),
        clusters=[given["cluster"]] if given["cluster"] else [],
        is_first=after is None,
        sees_consumers=may("allocations:list"),
    )


_HOST = Markup('<a href="{}{}">{}</a>')


def _links(hosts: Mapping[str, str], count: int) -> Markup:
    """Return links to some hosts, by name and uuid, and how many more of `count` there are."""
    pages = address("/hosts/")
    links = [_HOST.format(pages, uuid, name) for name, uuid in sorted(hosts.items())[:_MOST_NAMES]]
    more = Markup(" and {} more").format(count - len(links)) if count > len(links) else ""
    return Markup(", ").join(links) + more


def _names_of_pods(uids: Collection[str], cluster: str | None = None) -> Mapping[str, str]:
    return service(Finder).names_of_pods(uids) if may("clusters:pods:list", cluster) else {}


def _name(holder: Mapping[str, Any] | None) -> str:
    if holder is None:
        return ""
    uuid = holder["consumer_uuid"]
    return _names_of_pods([uuid]).get(uuid) or consumer_title(holder["consumer_type"], uuid)


def _held_table(document: dict[str, Any]) -> Any:
    names = (*_WHO, "provider", "provider_uuid", "class", "amount")
    return names, (
        (*(each[name] for name in _WHO), held["name"], uuid, name, amount)
        for each in document["consumers"]
        for uuid, held in each["allocations"].items()
        for name, amount in held["resources"].items()
    )


@page("/consumers/<uuid>", rule="allocations:list")
def _consumer(uuid: str) -> Response:
    """Show one consumer. Raises NotFound if it holds nothing and the caller sees no record of it."""
    normal = normalize_uuid(uuid)
    if normal is None:
        raise NotFound(f"{uuid} is not a UUID; search for a name above.")
    page_of_one = service(Listings).allocations(AllocationFilter(consumer_uuid=normal), None, 1)
    document = dump(ConsumerPageSchema, page_of_one)
    history = history_of(AuditFilter(consumer_id=normal))
    if not document["consumers"] and not history:
        raise NotFound(f"Consumer {normal} holds nothing (any more).")
    holder = document["consumers"][0] if document["consumers"] else None
    return shown(
        "consumer.html",
        lambda: {
            "consumer": holder,
            "history": None if history is None else [each._asdict() for each in history],
        },
        lambda: _held_table(document),
        uuid=normal,
        holder=holder,
        name=_name(holder),
        changes=None if history is None else rows_of(history),
        records=since_and_last(history or ()),
        held=units.summary(units.summed(each["resources"] for each in holder["allocations"].values()))
        if holder
        else "",
        drawn=_drawn(holder["allocations"] if holder and wanted() == HTML else (), normal),
        claimed=request.args.get("claimed"),
    )


class Drawn(NamedTuple):
    """Some hosts as they are drawn, and how many more there are than a page has room for."""

    hosts: list[tuple[HostView, HostDrawing]]
    more: int


def _drawn(uuids: Collection[str], consumer: str) -> Drawn:
    """Return the hosts of these providers that the caller may see, drawn; the consumer has the first sign."""
    roots = service(HostViews).roots_of(uuids) if uuids else []
    hosts, signs = [], OwnerSigns()
    signs.of(consumer)
    for root in roots[:_MOST_HOSTS]:
        with suppress(Forbidden, NotFound):
            host = seen(root)
            hosts.append((host, drawing_of(host, signs=signs)))
    return Drawn(hosts, len(roots[_MOST_HOSTS:]))


@page("/consumers/<uuid>/release", "POST", "allocations:delete")
def _release(uuid: str) -> Response:
    service(Claims).release(normalize_uuid(uuid) or uuid)
    return to(address(f"/consumers/{uuid}"))


@page("/pods")
def _pods() -> Response:
    refuse_others("cluster", "namespace", "node", "qos", "marker")
    cluster = request.args.get("cluster", "")
    names = [cluster]
    if not cluster:
        names = [each.name for each in clusters() if may("clusters:pods:list", each.name)]
        cluster = names[0] if names else ""
    given = choices("namespace", "node", "qos")
    after = marker() or 0
    if cluster:
        require("clusters:pods:list", cluster)
    filter_ = PodFilter(given["namespace"], given["node"], given["qos"])
    if wanted() != HTML:
        listed = service(Pods).listed(cluster, filter_, after, _PAGE)
        document = dump(PodsSchema, listed, context=cluster)
        return shown(
            "pods.html", document, (_POD, ([pod[name] for name in _POD] for pod in document["pods"]))
        )
    pods, following = service(Pods).heads(cluster, filter_, after, _PAGE) if cluster else ([], None)
    return shown(
        "pods.html",
        {},
        _NO_TABLE,
        pods=escaped(
            [pod.namespace, pod.name, pod.node or "", pod.qos, pod.phase, pod.cpuset] for pod in pods
        ),
        cluster=cluster,
        given=given,
        clusters=names,
        following=None if following is None else same_page(marker=following),
    )


@page("/pods/<cluster>/<namespace>/<name>", rule="clusters:pods:show")
def _pod(cluster: str, namespace: str, name: str) -> Response:
    answer = service(Pods).get(cluster, namespace, name)
    document = dump(PodSchema, answer, context=cluster)
    history = history_of(AuditFilter(targets=(f"{cluster}/{namespace}/{name}",)))
    places = [answer.resource_provider] if answer.resource_provider and wanted() == HTML else ()
    return shown(
        "pod.html",
        document,
        (_POD, [[document[column] for column in _POD]]),
        pod=document,
        changes=None if history is None else rows_of(history),
        records=since_and_last(history or ()),
        drawn=_drawn(places, document["consumer_uuid"]),
        sees_consumers=may("allocations:list"),
        claimed=request.args.get("claimed"),
    )


@page("/pods/<cluster>/<namespace>/<name>/release", "POST", "clusters:pods:delete")
def _release_pod(cluster: str, namespace: str, name: str) -> Response:
    service(Pods).delete(cluster, namespace, name)
    return to(address("/pods", cluster=cluster))
