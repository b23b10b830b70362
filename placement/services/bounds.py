"""Limits on the depth and size of texts, checked before they are parsed, in time linear in their size."""

from __future__ import annotations

import re
from itertools import accumulate

import yaml

from placement.domain.errors import BadRequest

DEEPEST = 100
# One Pod or Node has some hundred values.
MOST_MANIFEST_BYTES = 2**20
MOST_MANIFEST_VALUES = 50_000
# A form of the pages holds a manifest at most, and no page has more than 30 fields.
MOST_FORM_BYTES, MOST_FORM_FIELDS = 2**20, 100
# So many times as large may the manifests of many things be.
MOST_MANIFESTS = 16
# Python needs hundreds of bytes for a value that takes two in the text; real documents have longer ones.
_FREE_VALUES, _BYTES_PER_VALUE = 100_000, 24
# A text that does not end counts as text up to the end: what follows is malformed anyway.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
# The parser compares each of these with all before.
_TAG_DIRECTIVE, _MOST_TAG_DIRECTIVES = "%TAG", 100


def check_json(text: bytes) -> None:
    """Raises BadRequest if the text is nested too deep or consists of too many values for its size."""
    opened = text.count(b"[") + text.count(b"{")
    if opened + text.count(b",") > _FREE_VALUES + len(text) // _BYTES_PER_VALUE:
        raise BadRequest("Malformed JSON: too many values")
    if opened > DEEPEST and _depth(text) > DEEPEST:
        raise BadRequest(f"Malformed JSON: nested deeper than {DEEPEST} levels")


def _depth(text: bytes) -> int:
    brackets = _TEXT.sub(b"", text).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def check_yaml(text: str, loader: type, most_values: int | None) -> None:
    """Raises BadRequest for what is nested too deep, for too many values, and for aliases; or YAMLError.

    The events of the parser are read one by one, without recursion; building values of them recurses.
    """
    if text.count(_TAG_DIRECTIVE) > _MOST_TAG_DIRECTIVES:
        raise BadRequest(f"Malformed YAML: more than {_MOST_TAG_DIRECTIVES} directives")
    depth = values = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            # They could blow a small text up to any size.
            raise BadRequest("Malformed YAML: aliases are not supported")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.NodeEvent):
            values += 1
        if depth > DEEPEST:
            raise BadRequest(f"Malformed YAML: nested deeper than {DEEPEST} levels")
        if most_values is not None and values > most_values:
            raise BadRequest(f"Malformed YAML: more than {most_values} values")
