"""Stored NodeResourceTopologies, of which those of like nodes are read once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from placement.dialects.koordinator.node.canonical_form import anonymous_report

# So many different ones are kept. Where nodes differ more than that, each is read by itself.
_KEPT = 64


class CanonicalReport(NamedTuple):
    """A topology, or None, reduced to what an import depends on; those of like nodes have the same key."""

    document: Mapping[str, Any] | None
    key: bytes


def canonical_report(nrt: Mapping[str, Any] | None) -> CanonicalReport:
    """The canonical form of a NodeResourceTopology that was imported before."""
    document = None if nrt is None else anonymous_report(nrt)
    return CanonicalReport(document, canonical(document))


def canonical(document: Mapping[str, Any] | None) -> bytes:
    """Bytes that are the same for equal documents."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


class _Around(NamedTuple):
    """The text of a topology but for the name of its node."""

    head: str
    tail: str

    def named(self, name: str) -> str:
        return f"{self.head}{_naming(name)}{self.tail}"


class TopologyTexts:
    """Reads stored topologies of nodes, some kilobytes each, as their imports depend on them.

    Two share what was read only if their texts are the same but for `metadata.name`, on which nothing that is
    read depends. Whether the name stands there is found out by reading another one in its place, not by how
    the text looks: a zone may have the same name. A text that names its node nowhere, or elsewhere first, is
    read by itself.
    """

    def __init__(self) -> None:
        self._known: dict[_Around, CanonicalReport] = {}

    def read(self, text: str | None, name: str) -> CanonicalReport:
        """The topology of the node of that name; it was imported before, so it can be read."""
        if text is None:
            return canonical_report(None)
        head, found, tail = text.partition(_naming(name))
        around = _Around(head, tail)
        known = self._known.get(around) if found else None
        if known is not None:
            return known
        report = canonical_report(orjson.loads(text))
        if found and _names_the_node(around, name):
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[around] = report
        return report


def _naming(name: str) -> str:
    return f'"name": {json.dumps(name)}'


def _names_the_node(around: _Around, name: str) -> bool:
    """Whether what stands between these texts is `metadata.name`, and that alone."""
    other = f"not {name}"
    metadata = orjson.loads(around.named(other)).get("metadata")
    return isinstance(metadata, dict) and metadata.get("name") == other
