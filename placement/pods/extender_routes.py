"""/ext/v1/clusters/{cluster}/extender: the scheduler extender protocol of Kubernetes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

from flask import Blueprint, Response, request
from werkzeug.exceptions import HTTPException

from placement.common.extender_protocol import BIND, FILTER, PREEMPT, PRIORITIZE, failure, verb_at
from placement.engine.domain.errors import BadRequest
from placement.http.context import (
    ANONYMOUS,
    HttpError,
    current,
    json_body,
    json_body_or,
    json_response,
    problem,
    use_cases,
)
from placement.http.gate import route
from placement.http.operations import Operation
from placement.metrics.catalog import EXTENDER_CALLS
from placement.pods.extender import Binding
from placement.pods.preemption import Victims

# The scheduler extender protocol of Kubernetes, as JSON. Source: k8s.io/kube-scheduler, extender/v1.
#
# The types carry no names for JSON, so members are called as in Go. Go accepts them in any letter case, and
# so does this module.


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
            raise BadRequest("NodeNames: must be a list of names")
        return ExtenderArgs(pod, names, None)
    if members.get("nodes") is None:
        raise BadRequest("NodeNames: is missing, and so is Nodes")
    items = _members(members["nodes"], "Nodes").get("items")
    if not isinstance(items, list):
        raise BadRequest("Nodes.items: must be a list of nodes")
    objects = {}
    for position, item in enumerate(items):
        place = f"Nodes.items[{position}]"
        name = _mapping(_mapping(item, place).get("metadata"), f"{place}.metadata").get("name")
        if not isinstance(name, str) or not name:
            raise BadRequest(f"{place}.metadata.name: must be text that is not empty")
        objects[name] = item
    return ExtenderArgs(pod, list(objects), objects)


def _members_and_pod(document: object) -> tuple[dict[str, Any], dict[str, Any]]:
    members = _members(document, "the body")
    return members, {"apiVersion": "v1", "kind": "Pod", **_mapping(members.get("pod"), "Pod")}


def binding_of(document: object) -> Binding:
    """Read the body of bind. Raises BadRequest naming the member."""
    members = _members(document, "the body")

    def text(member: str) -> str:
        value = members.get(member.lower())
        if not isinstance(value, str) or not value:
            raise BadRequest(f"{member}: must be text that is not empty")
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
            nodes = _mapping(proposed, member)
            return pod, {
                node: _victims(one, f"{member}.{node}", are_whole=are_whole) for node, one in nodes.items()
            }
    raise BadRequest("NodeNameToMetaVictims: is missing, and so is NodeNameToVictims")


def _victims(value: object, place: str, *, are_whole: bool) -> Victims:
    members = _members({} if value is None else value, place)
    pods, violations = members.get("pods") or [], members.get("numpdbviolations") or 0
    if not isinstance(pods, list):
        raise BadRequest(f"{place}.Pods: must be a list")
    if not isinstance(violations, int):
        raise BadRequest(f"{place}.NumPDBViolations: must be a number")
    uids = []
    for position, pod in enumerate(pods):
        at = f"{place}.Pods[{position}]"
        uid: object
        if are_whole:
            uid = _mapping(_mapping(pod, at).get("metadata"), f"{at}.metadata").get("uid")
        else:
            uid = _members(pod, at).get("uid")
        if not isinstance(uid, str) or not uid:
            raise BadRequest(f"{at}: has no uid")
        uids.append(uid)
    return Victims(uids, violations)


def host_priorities(names: Iterable[str], scores: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return a HostPriorityList of these nodes: scores of 0 to 100, 0 if there is none, become 0 to 10."""
    known = scores.get
    return [{"Host": name, "Score": known(name, 0) * _HIGHEST // 100} for name in names]


def _members(value: object, place: str) -> dict[str, Any]:
    return {name.lower(): member for name, member in _mapping(value, place).items()}


def _mapping(value: object, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadRequest(f"{place}: must be an object")
    return value


# Bodies of the scheduler extender protocol. Source: k8s.io/kube-scheduler, extender/v1.
#
# The members of requests may be written in any letter case, which JSON Schema cannot say; see
# pods/extender_routes.py, which reads them.


Document = dict[str, Any]
_OBJECT: Document = {"type": "object"}
_NAMES: Document = {"type": ["array", "null"], "items": {"type": "string"}}
_REASONS: Document = {"type": ["object", "null"], "additionalProperties": {"type": "string"}}
_NODES: Document = {
    "type": ["object", "null"],
    "properties": {"items": {"type": "array", "items": _OBJECT}},
    "description": "A NodeList.",
}


def _extender_members(required: list[str], **properties: Document) -> Document:
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
HOST_PRIORITIES: Document = {
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
_TEXT: Document = {"type": "string", "minLength": 1}
BINDING = _extender_members(
    ["PodNamespace", "PodName", "PodUID", "Node"],
    PodNamespace=_TEXT,
    PodName=_TEXT,
    PodUID=_TEXT,
    Node=_TEXT,
)
BINDING_RESULT = _extender_members(["Error"], Error={"type": "string"})


blueprint = Blueprint("extender", __name__)
_PATH = "/ext/v1/clusters/<cluster>/extender"
_RULE = "placement:clusters:extender:"
LOG = logging.getLogger(__name__)
_call = partial(route, blueprint, method="POST", gives_json=True)
# Whatever happens is answered as `in_its_form` has it.
_described = partial(Operation, errors=None)


@_call(f"{_PATH}/filter", policy=f"{_RULE}filter", described=_described({200: FILTER_RESULT}, body=ARGS))
def filter_nodes(cluster: str) -> Response:
    """Return which nodes fit a pod. A write: it may release vanished pods, and a gang that does not fit."""
    args = extender_args(json_body())
    with _counted(FILTER):
        filtered = use_cases().extender.filter(cluster, args.pod, args.names)
    if not filtered.releases:
        current().reads = True
    failed, unresolvable = filtered.failed, filtered.unresolvable
    left = args.names
    if failed or unresolvable:
        left = [name for name in args.names if name not in failed and name not in unresolvable]
    # The nodes that fit, in the form in which they came.
    objects = args.objects
    whole = None if objects is None else {"metadata": {}, "items": [objects[name] for name in left]}
    return json_response(
        {
            "Nodes": whole,
            "NodeNames": left if objects is None else None,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": unresolvable,
            "Error": "",
        }
    )


@_call(
    f"{_PATH}/prioritize",
    policy=f"{_RULE}prioritize",
    reads=True,
    described=_described({200: HOST_PRIORITIES}, body=ARGS),
)
def prioritize(cluster: str) -> Response:
    """Return how well nodes fit a pod."""
    # The body is kept: the nodes in it have a score, too, where this fails.
    args = extender_args(json_body_or(None))
    with _counted(PRIORITIZE):
        scores = use_cases().extender.prioritize(cluster, args.pod, args.names)
    return json_response(host_priorities(args.names, scores))


@_call(
    f"{_PATH}/preempt",
    policy=f"{_RULE}preempt",
    described=_described({200: PREEMPTION_RESULT}, body=PREEMPTION_ARGS),
)
def preempt(cluster: str) -> Response:
    """Return which pods to evict so that a pod fits. A write: it may release pods that are gone."""
    pod, proposed = preemption_args(json_body())
    with _counted(PREEMPT):
        victims = use_cases().extender.preempt(cluster, pod, proposed)
    # As uids: the protocol has no other form for answers.
    shown = {
        node: {"Pods": [{"UID": uid} for uid in each.uids], "NumPDBViolations": each.violations}
        for node, each in victims.items()
    }
    return json_response({"NodeNameToMetaVictims": shown})


@_call(f"{_PATH}/bind", policy=f"{_RULE}bind", described=_described({200: BINDING_RESULT}, body=BINDING))
def bind(cluster: str) -> Response:
    """Claim a place for a pod on a node, and bind it there."""
    binding = binding_of(json_body())
    with _counted(BIND):
        use_cases().extender.bind(cluster, binding)
    return json_response({"Error": ""})


@contextmanager
def _counted(call: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        EXTENDER_CALLS.labels(call, "error").inc()
        raise
    EXTENDER_CALLS.labels(call, "ok").inc()


def in_its_form(handler: Callable[[Any], Response]) -> Callable[[Any], Response]:
    """Return a handler of errors that answers a verb with 200, in its own form; other paths as before.

    What is logged and counted is the status that another path would have answered.
    """

    @wraps(handler)
    def handled(error: Any) -> Response:
        response, verb = handler(error), verb_at(request.path)
        if verb is None:
            return response
        at = current()
        at.status, message = response.status_code, problem(response.status_code)
        if verb in (PRIORITIZE, PREEMPT):
            # There is no place for it in the answer.
            LOG.info("%s of the extender failed: %s", verb, message)
        return json_response(failure(verb, message, _asked_about() if verb == PRIORITIZE else ()))

    return handled


def _asked_about() -> list[str]:
    """Return the nodes that the body names; none if it cannot be read, or comes from an unknown caller."""
    if current().caller is ANONYMOUS:
        return []
    try:
        return extender_args(json_body()).names
    except (BadRequest, HttpError, HTTPException):
        return []
