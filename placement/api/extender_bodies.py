"""The scheduler extender protocol of Kubernetes, as JSON. Source: k8s.io/kube-scheduler, extender/v1.

The types carry no names for JSON, so members are called as in Go; Go takes them in any case, and so do we.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from placement.domain.errors import BadRequest
from placement.services.extender import Binding

_HIGHEST = 10


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """A pod and the nodes in question, in order; with their objects if the caller sent those."""

    pod: Mapping[str, Any]
    names: list[str]
    objects: Mapping[str, Any] | None


def extender_args(document: object) -> ExtenderArgs:
    """The body of filter and prioritize. Raises BadRequest naming the member."""
    members = _members(document, "the body")
    pod = {"apiVersion": "v1", "kind": "Pod", **_mapping(members.get("pod"), "Pod")}
    if members.get("nodenames") is not None:
        names = members["nodenames"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise BadRequest("NodeNames: must be a list of names")
        return ExtenderArgs(pod, names, None)
    if members.get("nodes") is None:
        raise BadRequest("NodeNames: is missing, and so is Nodes")
    items = _members(members["nodes"], "Nodes").get("items")
    if not isinstance(items, list):
        raise BadRequest("Nodes.items: must be a list of nodes")
    objects = {_name(item, f"Nodes.items[{position}]"): item for position, item in enumerate(items)}
    return ExtenderArgs(pod, list(objects), objects)


def binding_of(document: object) -> Binding:
    """The body of bind. Raises BadRequest naming the member."""
    members = _members(document, "the body")

    def text(member: str) -> str:
        value = members.get(member.lower())
        if not isinstance(value, str) or not value:
            raise BadRequest(f"{member}: must be text that is not empty")
        return value

    return Binding(text("PodNamespace"), text("PodName"), text("PodUID"), text("Node"))


def filter_result(
    args: ExtenderArgs, failed: Mapping[str, str], unresolvable: Mapping[str, str]
) -> dict[str, Any]:
    """The nodes that are left, in the form they came in, and why the others are not; (name, reason) each."""
    left = [name for name in args.names if name not in failed and name not in unresolvable]
    nodes = None
    if args.objects is not None:
        nodes = {"metadata": {}, "items": [args.objects[name] for name in left]}
    return {
        "Nodes": nodes,
        "NodeNames": left if args.objects is None else None,
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": unresolvable,
        "Error": "",
    }


def filter_error(message: str) -> dict[str, Any]:
    """No answer, and why."""
    return {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": None,
        "FailedAndUnresolvableNodes": None,
        "Error": message,
    }


def host_priorities(scores: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """(node, score from 0 to 100) as a HostPriorityList, whose scores go from 0 to 10."""
    return [{"Host": node, "Score": score * _HIGHEST // 100} for node, score in scores]


def binding_result(error: str = "") -> dict[str, Any]:
    """Done, or why not."""
    return {"Error": error}


def _members(value: object, place: str) -> dict[str, Any]:
    return {name.lower(): member for name, member in _mapping(value, place).items()}


def _mapping(value: object, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadRequest(f"{place}: must be an object")
    return value


def _name(node: object, place: str) -> str:
    metadata = _mapping(_mapping(node, place).get("metadata"), f"{place}.metadata")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise BadRequest(f"{place}.metadata.name: must be text that is not empty")
    return name
