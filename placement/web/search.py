"""The page of search: hosts with their parts, pods, consumers, projects and users by what they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flask import Response, request

from placement.common.titles import consumer_title, short_id
from placement.http.context import service
from placement.pods.services.finder import Finder
from placement.web.answers import HTML, address, refuse_others, shown, to, wanted
from placement.web.callers import caller_clusters, may
from placement.web.templating import page

_COLUMNS = ("kind", "name", "uuid", "beside")
_MOST, _MOST_SHOWN = 50, 5
_LONGEST = 200
_HOST, _PROVIDER, _POD, _CONSUMER = "host", "provider", "pod", "consumer"
# With a host come its parts, which are read together with it.
_PARTS = {_HOST: _PROVIDER}
_HEADINGS = {_HOST: "Hosts", _POD: "Pods", _CONSUMER: "Consumers"}


class Hit(NamedTuple):
    """A thing that was found: kind, name, what stands beside it, the address of its page, and its host."""

    kind: str
    name: str
    uuid: str
    beside: str
    address: str
    host: tuple[str, str] = ("", "")


class FoundItem(NamedTuple):
    """A thing in the list of its kind, with the parts of a host that were found, too."""

    name: str
    beside: str
    address: str
    part_hits: Sequence[Hit] = ()


class FoundGroup(NamedTuple):
    """The things of one kind: the first ones, and the others; `is_cut`: there are more than were read."""

    heading: str
    first_items: Sequence[FoundItem]
    other_items: Sequence[FoundItem]
    is_cut: bool


@page("/search")
def _search() -> Response:
    """Show what is like the text; a single hit is shown at once."""
    refuse_others("q")
    text = request.args.get("q", "").strip()[:_LONGEST]
    own = caller_clusters()
    where = [None] if own is None else sorted(own)
    hits = [each for cluster in where for each in _hits(text, cluster)] if text else []
    if len(hits) == 1 and hits[0].address and wanted() == HTML:
        return to(hits[0].address)
    found = [dict(zip(Hit._fields[:5], each, strict=False)) for each in hits]
    rows = ([each[name] for name in _COLUMNS] for each in found)
    return shown(
        "search.html", {"q": text, "found": found}, (_COLUMNS, rows), text=text, groups=_groups(hits)
    )


def _hits(text: str, cluster: str | None) -> list[Hit]:
    finder = service(Finder)
    found = []
    if may("resource_providers:list", cluster):
        for each in finder.providers(text, cluster, _MOST):
            kind, place = _HOST if each.is_root else _PROVIDER, address(f"/hosts/{each.uuid}")
            host = each.host_uuid, each.host_name
            found.append(Hit(kind, each.name, each.uuid, each.cluster or "", place, host))
    if may("clusters:pods:list", cluster):
        for pod in finder.pods(text, cluster, _MOST):
            place = address(f"/pods/{pod.cluster}/{pod.namespace}/{pod.name}")
            beside = f"{pod.cluster}, {pod.node or 'no node'}"
            found.append(Hit(_POD, f"{pod.namespace}/{pod.name}", "", beside, place))
    if may("allocations:list_all", cluster):
        for held in finder.consumers(text, cluster, _MOST):
            place = address(f"/consumers/{held.uuid}") if may("allocations:list") else ""
            name = consumer_title(held.consumer_type, held.uuid)
            owner = f"of project {short_id(held.project_id)}, user {short_id(held.user_id)},"
            found.append(Hit(_CONSUMER, name, held.uuid, owner, place))
    return found


def _groups(hits: Sequence[Hit]) -> list[FoundGroup]:
    """Return the hits by kind, hosts first; parts of a host are with their host."""
    items: Mapping[str, dict[str, FoundItem]] = {kind: {} for kind in _HEADINGS}
    parts: dict[str, list[Hit]] = {}
    for each in hits:
        if each.kind == _PROVIDER:
            uuid, name = each.host
            of_host = parts.setdefault(uuid, [])
            of_host.append(each)
            beside = "" if uuid not in items[_HOST] else items[_HOST][uuid].beside
            items[_HOST][uuid] = FoundItem(name, beside, address(f"/hosts/{uuid}"), of_host)
        else:
            beside = f"{each.beside} {each.uuid}" if each.kind == _CONSUMER else each.beside
            items[each.kind][each.uuid or each.address] = FoundItem(each.name, beside, each.address)
    groups = []
    for kind, heading in _HEADINGS.items():
        listed = list(items[kind].values())
        is_cut = sum(each.kind in (kind, _PARTS.get(kind)) for each in hits) >= _MOST
        if listed:
            groups.append(FoundGroup(heading, listed[:_MOST_SHOWN], listed[_MOST_SHOWN:], is_cut))
    return groups
