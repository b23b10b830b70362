"""Manifests of pods for the service: the ones of Kubernetes with additions of the loop.

Nothing of it is written to Kubernetes, except for the node in the affinity of a pod that loses its gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from placement.common.manifest import LOOP_NODE

_TOLERATION = {"key": LOOP_NODE, "operator": "Exists"}
SelectorTerm = Mapping[str, Any]
"""A node selector term of Kubernetes: matchExpressions and matchFields, all of which a node must meet."""


def tailored(
    manifest: Mapping[str, Any],
    *,
    only_marked: bool,
    tolerates: bool,
    terms: Sequence[Sequence[SelectorTerm]] = (),
    without: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the manifest to be placed: without gates, on nodes that meet one of each of the `terms`.

    `only_marked`: on nodes of the loop only. `tolerates`: nodes of the loop keep off other pods, but not
    this one. `without` are nodes that it must not be placed on.
    """
    spec = {**manifest["spec"]}
    spec.pop("schedulingGates", None)
    if tolerates:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), _TOLERATION]
    added: list[SelectorTerm] = []
    if only_marked:
        added.append({"matchExpressions": [{"key": LOOP_NODE, "operator": "Exists"}]})
    added += (
        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [name]}]} for name in without
    )
    for alternatives in (*([each] for each in added), *terms):
        spec["affinity"] = required(spec.get("affinity"), alternatives)
    return {**manifest, "spec": spec}


def required(affinity: Any, alternatives: Sequence[SelectorTerm]) -> dict[str, Any]:
    """Return an affinity that also requires one of the alternatives, which Kubernetes has as terms."""
    found: dict[str, Any] = {**affinity} if isinstance(affinity, Mapping) else {}
    node_affinity = found.get("nodeAffinity") or {}
    wanted = "requiredDuringSchedulingIgnoredDuringExecution"
    stated = (node_affinity.get(wanted) or {}).get("nodeSelectorTerms") or ()
    # A term without requirements is met by no node, so it stays as it is.
    both = [_both(one, other) if one else {} for one in stated for other in alternatives]
    both = both or [dict(other) for other in alternatives]
    found["nodeAffinity"] = {**node_affinity, wanted: {"nodeSelectorTerms": both}}
    return found


def _both(one: SelectorTerm, other: SelectorTerm) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("matchExpressions", "matchFields"):
        requirements = [*(one.get(name) or ()), *(other.get(name) or ())]
        if requirements:
            found[name] = requirements
    return found


def on_node(name: str) -> list[SelectorTerm]:
    """Return the terms that only this node meets."""
    return [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]
