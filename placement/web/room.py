"""How much fits: how many more of a query, a flavor or a pod there is room for, and what runs out first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flask import Blueprint, Response, request

from placement.api import capacity_question, queries
from placement.api.context import use_cases
from placement.api.rendering.capacity import capacity_body
from placement.api.route_guard import PAGES, route
from placement.services.planning.planning import BY, Kind, Question
from placement.services.planning.world import WorldRequest
from placement.web.permissions import require
from placement.web.requests import (
    EXAMPLES,
    answered,
    chosen_kind,
    cluster_of_pod,
    flavor_document,
    manifest_of,
    offered_clusters,
    parsed,
)
from placement.web.shown import shown

_HOSTS_SHOWN = 100
_COLUMNS = ("of", "name", "uuid", "lower", "upper", "runs_out_first", "fragmentation")


def register(blueprint: Blueprint) -> None:
    """Add the route; counting asks for a rule of its own."""
    route(blueprint, f"{PAGES}/room", "GET", "placement:clusters:list", own_only=True)(_room)


def _room() -> Response:
    """The form, and how many more there is room for."""
    kind, given = chosen_kind(), request.args.to_dict()
    document, problems = answered(lambda: _counted(_ASKED[kind](given)), given)
    return shown(
        "room.html",
        document or {"problems": problems},
        lambda: (_COLUMNS, list(_rows(document)) if document else []),
        400 if problems else 200,
        kind=kind,
        given=given,
        problems=problems,
        examples=EXAMPLES,
        clusters=offered_clusters(document, given),
        hosts=_best(document),
    )


def _counted(question: Question) -> dict[str, Any]:
    """The answer of the API for the only kind of the question."""
    require("capacity:show", question.cluster)
    (found,) = capacity_body(use_cases().planning.capacity(question, parsed))["kinds"].values()
    return dict(found)


def _query(given: Mapping[str, str]) -> Question:
    pairs = queries.read(given.get("query", "").strip().lstrip("?"))
    if given.get("cluster") and all(name != "cluster" for name, _ in pairs):
        pairs.append(("cluster", given["cluster"]))
    asked = capacity_question.of_parameters([pair for pair in pairs if pair[0] != "by"])
    return _asked(asked.kinds["query"], asked.cluster, given)


def _flavor(given: Mapping[str, str]) -> Question:
    return _asked(Kind(flavor=flavor_document(given)), given.get("cluster") or None, given)


def _pod(given: Mapping[str, str]) -> Question:
    return _asked(Kind(pod=manifest_of(given)), cluster_of_pod(given), given)


def _asked(kind: Kind, cluster: str | None, given: Mapping[str, str]) -> Question:
    without = tuple(filter(None, (name.strip() for name in given.get("without", "").split(","))))
    return Question({"it": kind}, cluster, BY, WorldRequest(without), place=lambda _: "")


_ASKED: dict[str, Callable[[Mapping[str, str]], Question]] = {
    "query": _query,
    "flavor": _flavor,
    "pod": _pod,
}


def _best(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The hosts with most room."""
    hosts = document.get("hosts") or ()
    return sorted(hosts, key=lambda host: (-host["lower"], host["name"] or ""))[:_HOSTS_SHOWN]


def _rows(document: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    yield _row("all", None, None, document["total"])
    for of, key, name, uuid in (
        ("cluster", "clusters", "cluster", None),
        ("aggregate", "aggregates", None, "aggregate"),
        ("host", "hosts", "name", "uuid"),
    ):
        for each in document.get(key) or ():
            yield _row(of, each[name] if name else None, each[uuid] if uuid else None, each)


def _row(of: str, name: str | None, uuid: str | None, room: Mapping[str, Any]) -> tuple[Any, ...]:
    return of, name, uuid, room["lower"], room["upper"], room["runs_out_first"], room.get("fragmentation")
