"""Manifests of Kubernetes as bodies: what they have at least. The rest is for Kubernetes to say."""

from typing import Any

Document = dict[str, Any]
_METADATA: Document = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 253}},
    "required": ["name"],
}


def _manifest(kind: str, *required: str, **properties: Document) -> Document:
    return {
        "type": "object",
        "properties": {"kind": {"type": "string", "const": kind}, "metadata": _METADATA, **properties},
        "required": ["kind", "metadata", *required],
    }


POD = _manifest("Pod", "spec", spec={"type": "object"})
RESERVATION = _manifest("Reservation", "spec", spec={"type": "object"})
NODE = _manifest("Node", status={"type": "object"})
TOPOLOGY = _manifest("NodeResourceTopology")
# In YAML as two documents, in JSON as a List.
NODE_AND_TOPOLOGY: Document = {
    "anyOf": [
        NODE,
        {
            "type": "object",
            "properties": {
                "kind": {"type": "string", "const": "List"},
                "items": {"type": "array", "items": {"anyOf": [NODE, TOPOLOGY]}, "minItems": 1},
            },
            "required": ["kind", "items"],
        },
    ]
}
# The same for pods.
PODS: Document = {
    "anyOf": [
        POD,
        {
            "type": "object",
            "properties": {
                "kind": {"type": "string", "const": "List"},
                "items": {"type": "array", "items": POD, "minItems": 1},
            },
            "required": ["kind", "items"],
        },
    ]
}
PREVIEW: Document = {
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
