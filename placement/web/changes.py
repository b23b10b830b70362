"""The pages of changes, and of what is refused at present."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from flask import Response, request

from placement.audit.routes import moment
from placement.audit.service import AuditTrail
from placement.audit.statements.targets import AuditTarget
from placement.engine.domain.audit import AuditFilter, DescribedRecord, StoredRecord, TargetKind
from placement.engine.domain.errors import BadRequest, NotFound, parameter
from placement.http.context import service
from placement.http.schemas import dump
from placement.metrics.sharing import counts
from placement.pods.decide.reservation_ends import AVAILABLE
from placement.pods.schemas import ReservationsSchema
from placement.pods.services.closed_nodes import ClosedNodes
from placement.pods.services.reservations import Reservations
from placement.pods.services.views import HostViews
from placement.providers.fleet import FleetSnapshot, Hosts, Overfull
from placement.web.answers import HTML, choices, marker, refuse_others, same_page, shown, wanted
from placement.web.callers import caller_clusters, clusters, may
from placement.web.differences import differences, providers_in
from placement.web.records import rows_of
from placement.web.requests import answered
from placement.web.templating import page

_PAGE = 50
_HISTORY = 20
_KINDS = [str(each) for each in TargetKind]
_COLUMNS = ("time", "action", "kind", "target", "consumer", "user", "project", "request_id")
_MOST_OVERFULL = 50
_MOST_NODES = 2000
_MOST_RESERVATIONS, _READ_AT_ONCE = 200, 1000
_CLAIMS = "placement_claims"
# A consumer that already holds what it asks for is not refused.
_GRANTED = {"won", "repeated"}
_REASONS = {
    "no_room": "nothing fitted",
    "concurrent": "another caller was faster",
    "conflict": "it conflicts with the present state",
    "bad_request": "the request was malformed",
    "not_found": "it named something that is not there",
    "unavailable": "the service or its database was not ready",
}


def shown_record(record: StoredRecord) -> dict[str, Any]:
    """Return a record as data, with what was before and after as documents."""
    return {
        "id": record.id,
        "time": record.recorded_at,
        "action": record.action,
        "kind": record.kind,
        "target": record.target,
        "consumer": record.consumer_id,
        "user": record.user_id,
        "project": record.project_id,
        "request_id": record.request_id,
        "before": None if record.before is None else orjson.loads(record.before),
        "after": None if record.after is None else orjson.loads(record.after),
    }


def history_of(filter_: AuditFilter) -> list[DescribedRecord] | None:
    """Return the last changes that match the filter, or None if the caller may not see any."""
    if not may("audit:list"):
        return None
    return service(AuditTrail).described(filter_, None, _HISTORY)[0]


_Asked = tuple[Sequence[AuditTarget], datetime.datetime | None, datetime.datetime | None]


@page("/changes", rule="audit:list")
def _changes() -> Response:
    refuse_others("user_id", "project_id", "kind", "since", "until", "target", "marker")
    given = choices("user_id", "project_id", "kind", "since", "until")
    called = tuple(filter(None, request.args.getlist("target")))
    kind = given["kind"]
    if kind is not None and kind not in _KINDS:
        raise BadRequest(f"{kind!r} is not one of {', '.join(TargetKind)}", place=parameter("kind"))
    before = marker()
    found, mistakes = answered(lambda: _asked(given, called), request.args, ("target", "since", "until"))
    targets, since, until = found or ((), None, None)
    if mistakes:
        document = {"problems": [each.message for each in mistakes]}
        rows_of_problems = (("problem",), [(each.message,) for each in mistakes])
        return shown(
            "changes.html",
            document,
            rows_of_problems,
            mistakes[0].status,
            changes=[],
            given={**given, "targets": called},
            kinds=_KINDS,
            following=None,
            mistakes=mistakes,
            targets=(),
        )
    ids = tuple(dict.fromkeys(each.id for each in targets))
    filter_ = AuditFilter(
        given["user_id"], given["project_id"], kind=kind, targets=ids, since=since, until=until
    )
    if wanted() != HTML:
        records, following = service(AuditTrail).listed(filter_, before, _PAGE)
        changes = [shown_record(each) for each in records]
        rows = ([each[name] for name in _COLUMNS] for each in changes)
        return shown("changes.html", {"changes": changes, "next": following}, (_COLUMNS, rows))
    described, following = service(AuditTrail).described(filter_, before, _PAGE)
    return shown(
        "changes.html",
        {},
        ((), ()),
        changes=rows_of(described),
        given={**given, "targets": called},
        kinds=_KINDS,
        following=None if following is None else same_page(marker=following),
        mistakes=(),
        targets=targets if len(targets) > len(called) else (),
    )


def _asked(given: Mapping[str, str | None], called: Sequence[str]) -> _Asked:
    """Return what a form asks for. Raises BadRequest naming the field."""
    pairs = [(name, text) for name, text in given.items() if text is not None]
    since, until = moment(pairs, "since"), moment(pairs, "until")
    return [target for each in called for target in service(AuditTrail).targets(each)], since, until


@page("/changes/<text>", rule="audit:list")
def _change(text: str) -> Response:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    found = service(AuditTrail).listed(AuditFilter(), number + 1, 1)[0]
    if not found or found[0].id != number:
        raise NotFound(f"There is no change {text}; records are kept for a limited time.")
    document = shown_record(found[0])
    before, after = document["before"], document["after"]
    places = service(HostViews).places(providers_in((before, after)))
    described = service(AuditTrail).described(AuditFilter(), number + 1, 1)[0]
    return shown(
        "change.html",
        document,
        (_COLUMNS, [[document[name] for name in _COLUMNS]]),
        changes=rows_of(described),
        change=document,
        differences=differences(before, after, places),
    )


@page("/refusals")
def _refusals() -> Response:
    known = refused_now()
    seen = clusters()
    shown_nodes = [each for each in seen if may("clusters:nodes:show", each.name)]
    small = [each.name for each in shown_nodes if each.nodes <= _MOST_NODES]
    nodes = [each._asdict() for name in small for each in service(ClosedNodes).of(name)]
    kept = [each for cluster in seen for each in _kept(cluster.name)]
    document = {
        **known,
        "closed_nodes": nodes,
        "not_looked_at": [each.name for each in shown_nodes if each.name not in small],
        "reservations": kept,
    }
    rows = [
        ("overfull", each["name"], f"{each['used']}/{each['capacity']} {each['resource_class']}")
        for each in known["overfull"]
    ]
    rows += [(f"{each['closure']} node", f"{each['cluster']}/{each['node']}", each["why"]) for each in nodes]
    rows += [("kept", f"{each['cluster']}/{each['name']}", f"on {each['node']}") for each in kept]
    rows += [("refused", each["kind"], f"{each['count']}: {each['reason']}") for each in known["refused"]]
    return shown("refusals.html", document, (("what", "name", "why"), rows))


def refused_now(snapshot: FleetSnapshot | None = None) -> dict[str, Any]:
    """Return the overfull inventories that the caller may see, and how often claims were refused so far.

    Refusals are counted for all clusters together, so callers bound to clusters see none.
    """
    overfull: list[Overfull] = []
    count = 0
    if all(may("resource_providers:list", each) for each in caller_clusters() or (None,)):
        overfull, count = (snapshot or service(Hosts).look()).overfull(_MOST_OVERFULL)
    refused = [
        {
            "kind": labels["kind"],
            "outcome": labels["outcome"],
            "reason": _REASONS.get(labels["outcome"], "another reason"),
            "count": count,
        }
        for labels, count in (counts(_CLAIMS) if caller_clusters() is None else ())
        if labels["outcome"] not in _GRANTED
    ]
    return {
        "overfull": [each._asdict() for each in overfull],
        "overfull_count": count,
        "refused": sorted(refused, key=lambda each: (-each["count"], each["kind"], each["outcome"])),
    }


def _kept(cluster: str) -> list[dict[str, Any]]:
    """Return the reservations that keep something from others."""
    if not may("clusters:reservations:list", cluster):
        return []
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None and len(found) < _MOST_RESERVATIONS:
        listed = service(Reservations).listed(cluster, None, after, _READ_AT_ONCE)
        page = dump(ReservationsSchema, listed, context=cluster)
        found += [each for each in page["reservations"] if each["phase"] == AVAILABLE and each["node"]]
        after = page["next"]
    return found[:_MOST_RESERVATIONS]
