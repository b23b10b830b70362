"""Plans as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from placement.services.planning.moves.checking import IMPOSSIBLE, Checked
from placement.services.planning.moves.plan import Move, Plan, PlannedHost, Resources


def plan_body(plan: Plan, cluster: str | None) -> dict[str, Any]:
    """A plan, which was made for a cluster or for all hosts."""
    return {
        "goal": plan.goal,
        "wanted": plan.wanted,
        "achieved": plan.achieved,
        "reached": plan.achieved >= plan.wanted,
        "complete": plan.complete,
        "cluster": cluster,
        "bound": asdict(plan.bound),
        "why": plan.why,
        "moves": [_move(each) for each in plan.moves],
        "placements": [_allocations(each) for each in plan.placements],
        "emptied": list(plan.emptied),
        "left": [asdict(each) for each in plan.left],
        "stranded": {
            name: {"before": before, "after": after} for name, (before, after) in plan.stranded.items()
        },
        "hosts": [_host(each) for each in plan.hosts],
    }


def _move(move: Move) -> dict[str, Any]:
    body = {
        "consumer": move.consumer,
        "consumer_generation": move.generation,
        "project_id": move.project_id,
        "user_id": move.user_id,
        "consumer_type": move.consumer_type,
        "kind": move.kind,
        "by": move.by,
        "from_host": move.from_host,
        "to_host": move.to_host,
        "from_allocations": _allocations(move.before),
        "to_allocations": _allocations(move.after),
    }
    return body if move.pod is None else {**body, "pod": asdict(move.pod)}


def _allocations(resources: Resources) -> dict[str, Any]:
    """Return what is held, by provider, in one order: equal questions have equal answers in every process."""
    return {uuid: {"resources": dict(sorted(resources[uuid].items()))} for uuid in sorted(resources)}


def _host(host: PlannedHost) -> dict[str, Any]:
    before, after = host.consumers
    classes = {name: asdict(use) for name, use in sorted(host.classes.items())}
    return {
        "uuid": host.uuid,
        "name": host.name,
        "consumers_before": before,
        "consumers_after": after,
        "classes": classes,
    }


def checked_body(checked: Sequence[Checked]) -> dict[str, Any]:
    """What became of the moves of a plan."""
    return {
        "valid": all(each.state != IMPOSSIBLE for each in checked),
        "moves": [asdict(each) for each in checked],
    }
