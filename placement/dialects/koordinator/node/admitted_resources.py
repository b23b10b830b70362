"""Which resources of a node may be offered where an operator lists their prefixes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from placement.dialects.koordinator.resources import is_built_in


def with_admitted(
    node: Mapping[str, Any], topology: Mapping[str, Any] | None, prefixes: Sequence[str]
) -> tuple[Mapping[str, Any], Mapping[str, Any] | None, list[str]]:
    """Return the manifests with resources of these prefixes only, and the names that are left out, sorted.

    Built-in resources always stay. The manifests need not be well-formed; what is no list of resources stays.
    """
    left_out: set[str] = set()

    def admits(name: object) -> bool:
        if not isinstance(name, str) or is_built_in(name) or name.startswith(tuple(prefixes)):
            return True
        left_out.add(name)
        return False

    status = node.get("status")
    allocatable = status.get("allocatable") if isinstance(status, Mapping) else None
    if isinstance(status, Mapping) and isinstance(allocatable, Mapping):
        kept = {name: amount for name, amount in allocatable.items() if admits(name)}
        node = {**node, "status": {**status, "allocatable": kept}}
    zones = topology.get("zones") if topology is not None else None
    if topology is not None and isinstance(zones, list):
        topology = {**topology, "zones": [_zone(zone, admits) for zone in zones]}
    return node, topology, sorted(left_out)


def _zone(zone: Any, admits: Callable[[object], bool]) -> Any:
    resources = zone.get("resources") if isinstance(zone, Mapping) else None
    if not isinstance(resources, list):
        return zone
    kept = [entry for entry in resources if not isinstance(entry, Mapping) or admits(entry.get("name"))]
    return {**zone, "resources": kept}
