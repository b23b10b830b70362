"""The overview: what each cluster and aggregate has and uses, the fleet, what changed, what is refused."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response

from placement.api.context import use_cases
from placement.api.route_guard import PAGES, route
from placement.domain.audit import AuditFilter
from placement.services.capacity import Group
from placement.services.fleet import COMMON_REQUEST, Look
from placement.web.changes import refused_now, rows_of
from placement.web.fleet_map import chosen
from placement.web.permissions import caller_clusters, may
from placement.web.room import common_room
from placement.web.shown import shown

_RECENT = datetime.timedelta(minutes=15)
_SHOWN = 8
# What capacity and the fleet call hosts that are in neither.
_NONE, _NEITHER = "none", "neither"
# These are shown first, in this order.
_FIRST = ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB")


def register(blueprint: Blueprint) -> None:
    """Add the route."""
    route(blueprint, f"{PAGES}/", "GET", "placement:clusters:list", own_only=True)(_overview)


def _overview() -> Response:
    """Clusters and aggregates, with what they have and use."""
    look = use_cases().hosts.look()
    groups = _groups(look)
    document = {"groups": groups}
    rows = [
        (group["name"], group["kind"], group["hosts"], each["class"], each["total"], each["reserved"],
         each["allocation_ratio"], each["capacity"], each["used"])
        for group in groups
        for each in group["resources"]
    ]  # fmt: skip
    names = ("group", "kind", "hosts", "class", "total", "reserved", "allocation_ratio", "capacity", "used")
    only = next(iter(sorted(caller_clusters() or ())), None)
    sees_map = may("resource_providers:list", only)
    return shown(
        "overview.html",
        document,
        (names, rows),
        refused=refused_now(look),
        changes=_recent(),
        changes_known=may("audit:list"),
        map=chosen(look, only) if sees_map else None,
        room=common_room(only) if may("capacity:show", only) else None,
        common=COMMON_REQUEST,
        minutes=int(_RECENT.total_seconds() // 60),
    )


def _groups(look: Look) -> list[dict[str, Any]]:
    known = {cluster.name: cluster for cluster in use_cases().clusters.listed()}
    own = caller_clusters()
    found: dict[str, list[Group]] = defaultdict(list)
    hosts = {group.name: count for group, count in look.counted()}
    for each in use_cases().capacity.groups():
        found[each.name].append(each)
    names = sorted(known) + sorted(found.keys() - known.keys() - {_NONE}) + [_NONE] * (_NONE in found)
    return [
        {
            "name": name,
            "kind": "cluster" if name in known else "none" if name == _NONE else "aggregate",
            "hosts": hosts.get(_NEITHER if name == _NONE else name, 0),
            "description": known[name].settings.get("description", "") if name in known else "",
            "resources": list(_resources(found[name])),
        }
        for name in names
        if own is None or name in own
    ]


def _resources(groups: list[Group]) -> Iterator[dict[str, Any]]:
    def place(group: Group) -> tuple[int, str]:
        name = group.resource_class
        return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)

    for each in sorted(groups, key=place):
        capacity = int((each.total - each.reserved) * each.allocation_ratio)
        yield {
            "class": each.resource_class,
            "total": int(each.total),
            "reserved": int(each.reserved),
            "allocation_ratio": each.allocation_ratio,
            "capacity": capacity,
            "used": int(each.used),
        }


def _recent() -> list[tuple[str, ...]]:
    if not may("audit:list"):
        return []
    since = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - _RECENT
    return rows_of(use_cases().audit.heads(AuditFilter(since=since), None, _SHOWN)[0])
