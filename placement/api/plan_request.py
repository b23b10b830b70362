"""Bodies of plans as what they ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placement.api.capacity_question import kind_of
from placement.domain.errors import BadRequest
from placement.services.planning.moves.limits import AtMost, Limits
from placement.services.planning.moves.plan import Move, PodMove
from placement.services.planning.plans import EMPTY, FIT, FREE, Goal, PlanRequest

_MOVES = 100


def of_body(body: Mapping[str, Any]) -> PlanRequest:
    """What a body, which keeps to its schema, asks for. Raises BadRequest naming the place."""
    limits = body.get("limits", {})
    return PlanRequest(
        _goal(body["goal"]),
        Limits(
            limits.get("moves", _MOVES),
            frozenset(limits.get("never", ())),
            tuple(limits["clusters"]) if "clusters" in limits else None,
            [_at_most(at, each) for at, each in enumerate(limits.get("at_most", ()))],
        ),
        body.get("cluster"),
        limits.get("seconds"),
    )


def _at_most(at: int, given: Mapping[str, Any]) -> AtMost:
    if "label" in given and "=" not in given["label"]:
        raise BadRequest(f"limits.at_most[{at}].label: must be KEY=VALUE, not {given['label']!r}")
    if len(given) < 2:
        raise BadRequest(f"limits.at_most[{at}]: must have project_id, consumer_type or label")
    return AtMost(**given)


def _goal(given: Mapping[str, Any]) -> Goal:
    if len(given) != 1:
        raise BadRequest("goal: must have one of fit, empty, free and defragment")
    ((name, said),) = given.items()
    if name == EMPTY:
        return Goal(EMPTY, hosts=said)
    if name == FREE:
        return Goal(FREE, count=said)
    kind = {key: part for key, part in said.items() if key not in ("count", "resource_class")}
    count = said.get("count", 1) if name == FIT else 1
    return Goal(name, kind_of(kind, f"goal.{name}"), count, resource_class=said.get("resource_class"))


def moves_of(given: Sequence[Mapping[str, Any]]) -> list[Move]:
    """The moves of a plan that was written as JSON and keeps to its schema."""
    return [_move(each) for each in given]


def _move(given: Mapping[str, Any]) -> Move:
    pod = given.get("pod")
    rest = {
        name: given[name]
        for name in (
            "consumer",
            "project_id",
            "user_id",
            "consumer_type",
            "kind",
            "by",
            "from_host",
            "to_host",
        )
    }
    return Move(
        **rest,
        generation=given["consumer_generation"],
        before=_resources(given["from_allocations"]),
        after=_resources(given["to_allocations"]),
        pod=None if pod is None else PodMove(**pod),
    )


def _resources(allocations: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return {uuid.lower(): dict(each["resources"]) for uuid, each in allocations.items()}
