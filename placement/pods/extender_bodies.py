"""The scheduler extender protocol of Kubernetes as JSON: bodies that are read, and their shapes.

The types carry no names for JSON, so members are called as in Go. Go accepts them in any letter case, and so
does this module; JSON Schema cannot say that. Source: k8s.io/kube-scheduler, extender/v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from placement.engine.domain.errors import BODY, BadRequest, RequestPlace
from placement.pods.bodies import JsonSchema
from placement.pods.services.binding import Binding
from placement.pods.services.preemption import Victims

_HIGHEST = 10


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """A pod and the nodes in question, in order; with their objects if the caller sent them."""

    pod: Mapping[str, Any]
    names: list[str]
    objects: Mapping[str, Any] | None


def extender_args(document: object) -> ExtenderArgs:
    """Read the body of filter and prioritize. Raises BadRequest naming the member."""
    members, pod = _members_and_pod(document)
    if members.get("nodenames") is not None:
        names = members["nodenames"]
        if not isinstance(names, list) or not set(map(type, names)) <= {str}:
            raise BadRequest("must be a list of names", place=BODY / "NodeNames")
        return ExtenderArgs(pod, names, None)
    if members.get("nodes") is None:
        raise BadRequest("is missing, and so is Nodes", place=BODY / "NodeNames")
    items = _members(members["nodes"], BODY / "Nodes").get("items")
    if not isinstance(items, list):
        raise BadRequest("must be a list of nodes", place=BODY / "Nodes" / "items")
    objects = {}
    for position, item in enumerate(items):
        place = BODY / "Nodes" / "items" / position
        name = _mapping(_mapping(item, place).get("metadata"), place / "metadata").get("name")
        if not isinstance(name, str) or not name:
            raise BadRequest("must be text that is not empty", place=place / "metadata" / "name")
        objects[name] = item
    return ExtenderArgs(pod, list(objects), objects)


def _members_and_pod(document: object) -> tuple[dict[str, Any], dict[str, Any]]:
    members = _members(document, RequestPlace("the body"))
    return members, {"apiVersion": "v1", "kind": "Pod", **_mapping(members.get("pod"), BODY / "Pod")}


def binding_of(document: object) -> Binding:
    """Read the body of bind. Raises BadRequest naming the member."""
    members = _members(document, RequestPlace("the body"))

    def text(member: str) -> str:
        value = members.get(member.lower())
        if not isinstance(value, str) or not value:
            raise BadRequest("must be text that is not empty", place=BODY / member)
        return value

    return Binding(text("PodNamespace"), text("PodName"), text("PodUID"), text("Node"))


def preemption_args(document: object) -> tuple[dict[str, Any], dict[str, Victims]]:
    """Read the body of preempt: a pod, and the pods that would be evicted for it from each node.

    Raises BadRequest naming the member.
    """
    members, pod = _members_and_pod(document)
    for member, are_whole in (("NodeNameToMetaVictims", False), ("NodeNameToVictims", True)):
        proposed = members.get(member.lower())
        if proposed is not None:
            nodes = _mapping(proposed, BODY / member)
            return pod, {
                node: _victims(one, BODY / member / node, are_whole=are_whole) for node, one in nodes.items()
            }
    raise BadRequest("is missing, and so is NodeNameToVictims", place=BODY / "NodeNameToMetaVictims")


def _victims(value: object, place: RequestPlace, *, are_whole: bool) -> Victims:
    members = _members({} if value is None else value, place)
    pods, violations = members.get("pods") or [], members.get("numpdbviolations") or 0
    if not isinstance(pods, list):
        raise BadRequest("must be a list", place=place / "Pods")
    if not isinstance(violations, int):
        raise BadRequest("must be a number", place=place / "NumPDBViolations")
    uids = []
    for position, pod in enumerate(pods):
        at = place / "Pods" / position
        uid: object
        if are_whole:
            uid = _mapping(_mapping(pod, at).get("metadata"), at / "metadata").get("uid")
        else:
            uid = _members(pod, at).get("uid")
        if not isinstance(uid, str) or not uid:
            raise BadRequest("has no uid", place=at)
        uids.append(uid)
    return Victims(uids, violations)


def host_priorities(names: Iterable[str], scores: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return a HostPriorityList of these nodes: scores of 0 to 100, 0 if there is none, become 0 to 10."""
    known = scores.get
    return [{"Host": name, "Score": known(name, 0) * _HIGHEST // 100} for name in names]


def _members(value: object, place: RequestPlace) -> dict[str, Any]:
    return {name.lower(): member for name, member in _mapping(value, place).items()}


def _mapping(value: object, place: RequestPlace) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadRequest("must be an object", place=place)
    return value


_OBJECT: JsonSchema = {"type": "object"}
_NAMES: JsonSchema = {"type": ["array", "null"], "items": {"type": "string"}}
_REASONS: JsonSchema = {"type": ["object", "null"], "additionalProperties": {"type": "string"}}
_NODES: JsonSchema = {
    "type": ["object", "null"],
    "properties": {"items": {"type": "array", "items": _OBJECT}},
    "description": "A NodeList.",
}


def _extender_members(required: list[str], **properties: JsonSchema) -> JsonSchema:
    return {"type": "object", "properties": properties, "required": required}


ARGS = _extender_members(["Pod"], Pod=_OBJECT, Nodes=_NODES, NodeNames=_NAMES)
FILTER_RESULT = _extender_members(
    ["Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"],
    Nodes=_NODES,
    NodeNames=_NAMES,
    FailedNodes=_REASONS,
    FailedAndUnresolvableNodes=_REASONS,
    Error={"type": "string"},
)
HOST_PRIORITIES: JsonSchema = {
    "type": "array",
    "items": _extender_members(
        ["Host", "Score"], Host={"type": "string"}, Score={"type": "integer", "minimum": 0, "maximum": 10}
    ),
}
_META_VICTIMS = _extender_members(
    [],
    Pods={
        "type": ["array", "null"],
        "items": _extender_members(["UID"], UID={"type": "string", "minLength": 1}),
    },
    NumPDBViolations={"type": ["integer", "null"]},
)
_VICTIMS = _extender_members(
    [],
    Pods={"type": ["array", "null"], "items": _OBJECT},
    NumPDBViolations={"type": ["integer", "null"]},
)
PREEMPTION_ARGS = _extender_members(
    ["Pod"],
    Pod=_OBJECT,
    NodeNameToMetaVictims={"type": ["object", "null"], "additionalProperties": _META_VICTIMS},
    NodeNameToVictims={"type": ["object", "null"], "additionalProperties": _VICTIMS},
)
PREEMPTION_RESULT = _extender_members(
    ["NodeNameToMetaVictims"],
    NodeNameToMetaVictims={"type": "object", "additionalProperties": _META_VICTIMS},
)
_TEXT: JsonSchema = {"type": "string", "minLength": 1}
BINDING = _extender_members(
    ["PodNamespace", "PodName", "PodUID", "Node"],
    PodNamespace=_TEXT,
    PodName=_TEXT,
    PodUID=_TEXT,
    Node=_TEXT,
)
BINDING_RESULT = _extender_members(["Error"], Error={"type": "string"})
