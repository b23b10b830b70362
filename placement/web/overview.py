"""The overview: the fleet in few figures, its map, what each cluster and aggregate uses, what changed."""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from typing import Any

from flask import Response

from placement.allocations.orphan_routes import RULE as ORPHANS_RULE
from placement.allocations.orphans import Orphans
from placement.audit.service import AuditTrail
from placement.common.host_use import ALL_CPUS, ALL_MEMORY, NODE_CPU, NODE_MEMORY, CapacityUse, cpus, memory
from placement.engine.domain.audit import AuditFilter
from placement.health import Health
from placement.http.context import service
from placement.pods.services.clusters import Clusters
from placement.providers import fleet
from placement.providers.use_history import UseHistory
from placement.web import units
from placement.web.answers import shown
from placement.web.callers import caller_clusters, clusters, may
from placement.web.capacity import MOST_NODES, closed_nodes, common_room, room_for_common
from placement.web.changes import refused_now
from placement.web.fleet_map import chosen
from placement.web.records import ChangeRow, rows_of
from placement.web.templating import page

_RECENT = datetime.timedelta(minutes=15)
_SHOWN = 8
# What capacity and the fleet call hosts in no cluster and no aggregate.
_NONE, _NEITHER = "none", "neither"
_DEDICATED = "PCPU"
_OFTEN = {"PCPU", "VCPU", "MEMORY_MB", NODE_CPU, NODE_MEMORY}


@page("/")
def _overview() -> Response:
    snapshot = service(fleet.Hosts).look()
    groups = _groups(snapshot)
    rows = [
        (group["name"], group["kind"], group["hosts"], *each.values())
        for group in groups
        for each in group["resources"]
    ]
    names = ("group", "kind", "hosts", "class", "total", "reserved", "allocation_ratio", "capacity", "used")
    only = next(iter(sorted(caller_clusters() or ())), None)
    sees_map, sees_changes = may("resource_providers:list", only), may("audit:list")
    dedicated = _DEDICATED in snapshot.classes()
    changes: list[ChangeRow] = []
    if sees_changes:
        since = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - _RECENT
        changes = rows_of(service(AuditTrail).described(AuditFilter(since=since), None, _SHOWN)[0])
    return shown(
        "overview.html",
        {"figures": _figures(snapshot), "groups": groups},
        (names, rows),
        changes=changes,
        changes_known=sees_changes,
        days=service(UseHistory).of_groups(),
        map=chosen(snapshot, only) if sees_map else None,
        room=common_room(only, dedicated=dedicated) if may("capacity:show", only) else None,
        common=_words_for_common(dedicated=dedicated),
        minutes=int(_RECENT.total_seconds() // 60),
    )


def _figures(snapshot: fleet.FleetSnapshot) -> dict[str, Any]:
    """Return the figures of the whole fleet that cost no query of their own, or a small one."""
    refused = refused_now(snapshot)
    return {
        "hosts": snapshot.hosts,
        "closed": snapshot.closed,
        "storage": snapshot.storage,
        "use": _use(snapshot),
        "overfull": refused["overfull_count"],
        # They are counted for all clusters together.
        "refused": sum(each["count"] for each in refused["refused"]) if caller_clusters() is None else None,
        "old_migrations": service(Orphans).old_migrations() if may(ORPHANS_RULE) else None,
        "failing": [each.name for each in service(Health).checks() if not each.ok],
    }


def _use(snapshot: fleet.FleetSnapshot) -> dict[str, dict[str, Any]]:
    """Return the use of all hosts, by name: of memory, of the kinds of CPUs, of all CPUs that pods request.

    With each comes the class that shows it on the map, and the one that has its unit.
    """
    sums: dict[str, list[CapacityUse]] = defaultdict(list)
    for group in snapshot.by_group(_OFTEN).values():
        resources = {name: each._asdict() for name, each in group.resources.items()}
        for name in _OFTEN & resources.keys():
            sums[name].append(CapacityUse(resources[name]["capacity"], resources[name]["used"]))
        if NODE_CPU in resources:
            sums[ALL_CPUS].append(cpus(resources))
        sums[ALL_MEMORY].append(memory(resources))
    shown = {name: (name, name) for name in ("PCPU", "VCPU")}
    shown[ALL_MEMORY] = (NODE_MEMORY if NODE_MEMORY in sums else "MEMORY_MB", "MEMORY_MB")
    if NODE_CPU in sums:
        shown = {ALL_CPUS: (NODE_CPU, "PCPU"), **shown}
    found = {}
    for name, (on_map, unit) in shown.items():
        capacity, used = (sum(amounts) for amounts in zip(*sums[name], strict=True)) if sums[name] else (0, 0)
        if capacity:
            found[name] = {"capacity": capacity, "used": used, "class": on_map, "unit": unit}
    return found


@page("/figures")
def _counted() -> Response:
    """Show the figures that need a search, or the nodes of clusters; the overview asks for them later."""
    only = next(iter(sorted(caller_clusters() or ())), None)
    dedicated = _DEDICATED in service(fleet.Hosts).look(only).classes()
    sees_room = may("capacity:show", only)
    seen = [each for each in clusters() if each.nodes and may("clusters:nodes:show", each.name)]
    small = [each.name for each in seen if each.nodes <= MOST_NODES]
    room, on_tainted = room_for_common(only, dedicated=dedicated) if sees_room else (None, 0)
    # A node has several taints, and several reasons, but is in each state once.
    not_open = {(node.provider, str(node.closure)) for node in closed_nodes(only)}
    document = {
        "room": None if room is None else room.lower,
        "room_at_most": None if room is None else room.upper,
        "room_on_tainted_nodes": on_tainted,
        "nodes_not_open": len({node for node, _ in not_open}),
        "states": dict(sorted(Counter(state for _, state in not_open).items())),
        "nodes": sum(each.nodes for each in seen if each.name in small),
        "large_clusters": len(seen) - len(small),
    }
    # The words of `placement node list`.
    states = ", ".join(f"{units.number(count)} {state}" for state, count in document["states"].items())
    table = (tuple(document), [tuple({**document, "states": states}.values())])
    return shown(
        "figures.html",
        document,
        table,
        cluster=only,
        states=states,
        room=common_room(only, dedicated=dedicated),
        common=_words_for_common(dedicated=dedicated),
    )


def _words_for_common(*, dedicated: bool) -> str:
    cores, mebibytes = fleet.COMMON_REQUEST
    kind = "dedicated CPUs" if dedicated else "vCPU"
    return f"{cores} {kind}, {units.amount(mebibytes, 'MEMORY_MB')}"


def _groups(snapshot: fleet.FleetSnapshot) -> list[dict[str, Any]]:
    known = {cluster.name: cluster for cluster in service(Clusters).listed()}
    own = caller_clusters()
    found: dict[str, list[fleet.CapacityGroup]] = defaultdict(list)
    counted, members, called = snapshot.counted(), snapshot.members(), snapshot.called()
    for each in service(fleet.FleetCapacity).groups(overlapping=True):
        found[each.name].append(each)
    aggregates = sorted(
        found.keys() - known.keys() - {_NONE}, key=lambda name: (called.get(name, name), name)
    )
    names = sorted(known) + aggregates + [_NONE] * (_NONE in found)
    return [
        {
            "name": name,
            "shown": called.get(name, name),
            "kind": "cluster" if name in known else "none" if name == _NONE else "aggregate",
            "hosts": members.get(_NEITHER if name == _NONE else name, 0),
            # On the map a host is in one group.
            "elsewhere": 0 if name == _NONE else members.get(name, 0) - counted.get(name, 0),
            "description": known[name].settings.get("description", "") if name in known else "",
            "resources": _resources(found[name]),
        }
        for name in names
        if own is None or name in own
    ]


def _resources(groups: list[fleet.CapacityGroup]) -> list[dict[str, Any]]:
    return [
        {
            "class": each.resource_class,
            "total": int(each.total),
            "reserved": int(each.reserved),
            "allocation_ratio": each.allocation_ratio,
            "capacity": int((each.total - each.reserved) * each.allocation_ratio),
            "used": int(each.used),
        }
        for each in sorted(groups, key=lambda group: units.order(group.resource_class))
    ]
