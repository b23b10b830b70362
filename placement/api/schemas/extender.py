"""Bodies of the scheduler extender protocol. Source: k8s.io/kube-scheduler, extender/v1.

The members of requests may be written in any letter case, which JSON Schema cannot say; see
api/extender_bodies.py, which reads them.
"""

from typing import Any

Document = dict[str, Any]
_OBJECT: Document = {"type": "object"}
_NAMES: Document = {"type": ["array", "null"], "items": {"type": "string"}}
_REASONS: Document = {"type": ["object", "null"], "additionalProperties": {"type": "string"}}
_NODES: Document = {
    "type": ["object", "null"],
    "properties": {"items": {"type": "array", "items": _OBJECT}},
    "description": "A NodeList.",
}


def _members(required: list[str], **properties: Document) -> Document:
    return {"type": "object", "properties": properties, "required": required}


ARGS = _members(["Pod"], Pod=_OBJECT, Nodes=_NODES, NodeNames=_NAMES)
FILTER_RESULT = _members(
    ["Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"],
    Nodes=_NODES,
    NodeNames=_NAMES,
    FailedNodes=_REASONS,
    FailedAndUnresolvableNodes=_REASONS,
    Error={"type": "string"},
)
HOST_PRIORITIES: Document = {
    "type": "array",
    "items": _members(
        ["Host", "Score"], Host={"type": "string"}, Score={"type": "integer", "minimum": 0, "maximum": 10}
    ),
}
_META_VICTIMS = _members(
    [],
    Pods={
        "type": ["array", "null"],
        "items": _members(["UID"], UID={"type": "string", "minLength": 1}),
    },
    NumPDBViolations={"type": ["integer", "null"]},
)
_VICTIMS = _members(
    [],
    Pods={"type": ["array", "null"], "items": _OBJECT},
    NumPDBViolations={"type": ["integer", "null"]},
)
PREEMPTION_ARGS = _members(
    ["Pod"],
    Pod=_OBJECT,
    NodeNameToMetaVictims={"type": ["object", "null"], "additionalProperties": _META_VICTIMS},
    NodeNameToVictims={"type": ["object", "null"], "additionalProperties": _VICTIMS},
)
PREEMPTION_RESULT = _members(
    ["NodeNameToMetaVictims"],
    NodeNameToMetaVictims={"type": "object", "additionalProperties": _META_VICTIMS},
)
_TEXT: Document = {"type": "string", "minLength": 1}
BINDING = _members(
    ["PodNamespace", "PodName", "PodUID", "Node"],
    PodNamespace=_TEXT,
    PodName=_TEXT,
    PodUID=_TEXT,
    Node=_TEXT,
)
BINDING_RESULT = _members(["Error"], Error={"type": "string"})
