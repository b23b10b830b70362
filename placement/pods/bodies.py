"""Manifests of Kubernetes as bodies, with the members that they have at least; Kubernetes checks the rest."""

from __future__ import annotations

from typing import Any

JsonSchema = dict[str, Any]
_METADATA: JsonSchema = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 253}},
    "required": ["name"],
}


def _manifest(kind: str, *required: str, **properties: JsonSchema) -> JsonSchema:
    return {
        "type": "object",
        "properties": {"kind": {"type": "string", "const": kind}, "metadata": _METADATA, **properties},
        "required": ["kind", "metadata", *required],
    }


POD = _manifest("Pod", "spec", spec={"type": "object"})
RESERVATION = _manifest("Reservation", "spec", spec={"type": "object"})
NODE = _manifest("Node", status={"type": "object"})
TOPOLOGY = _manifest("NodeResourceTopology")


def _or_list(one: JsonSchema, *others: JsonSchema) -> JsonSchema:
    """Return the shape of a manifest, or of several: in YAML as documents, in JSON as a List."""
    items = {"anyOf": [one, *others]} if others else one
    properties = {
        "kind": {"type": "string", "const": "List"},
        "items": {"type": "array", "items": items, "minItems": 1},
    }
    return {"anyOf": [one, {"type": "object", "properties": properties, "required": ["kind", "items"]}]}


NODE_AND_TOPOLOGY = _or_list(NODE, TOPOLOGY)
PODS = _or_list(POD)
PREVIEW: JsonSchema = {
    "anyOf": [
        POD,
        {
            "type": "object",
            "properties": {
                "pod": POD,
                "nodeNames": {"type": ["array", "null"], "items": {"type": "string"}},
                "limit": {"type": ["integer", "null"], "minimum": 0},
            },
            "required": ["pod"],
            "additionalProperties": False,
        },
    ]
}
