"""Stored NodeResourceTopologies; the topologies of like nodes are read once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from placement.pods.koordinator.host_cpus import anonymous_report
from placement.storage import json_text

# This many different ones are kept. Where nodes differ more than that, each is read alone.
_KEPT = 64


class CanonicalReport(NamedTuple):
    """A topology, or None, reduced to the members on which imports depend; like nodes have equal keys."""

    document: Mapping[str, Any] | None
    key: bytes


def canonical_report(nrt: Mapping[str, Any] | None) -> CanonicalReport:
    """Return the canonical form of a NodeResourceTopology that can be imported."""
    document = None if nrt is None else anonymous_report(nrt)
    return CanonicalReport(document, canonical(document))


def canonical(document: Mapping[str, Any] | None) -> bytes:
    """Return bytes that are equal for equal documents."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


class TopologyTexts:
    """The stored topologies, some kilobytes each, reduced to the members on which imports depend.

    Two topologies share a report only if their texts are equal except for `metadata.name`, as no result
    depends on that. Whether the name stands there is checked by reading another name in its place: a zone may
    have the same name. A text that names its node nowhere, or elsewhere first, is read by itself.
    """

    def __init__(self) -> None:
        # By the texts before and after the name.
        self._known: dict[tuple[str, str], CanonicalReport] = {}

    def read(self, text: str | None, name: str) -> CanonicalReport:
        """Return the topology of the node of that name; it was imported before, so it can be read."""
        if text is None:
            return canonical_report(None)
        # Former releases wrote a blank behind the colon.
        for colon in (":", ": "):
            naming, other = (f'"name"{colon}{json.dumps(each)}' for each in (name, f"not {name}"))
            head, found, tail = text.partition(naming)
            if found:
                break
        known = self._known.get((head, tail)) if found else None
        if known is not None:
            return known
        report = canonical_report(json_text.read(text))
        metadata = json_text.read(f"{head}{other}{tail}").get("metadata") if found else None
        if isinstance(metadata, dict) and metadata.get("name") == f"not {name}":
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[head, tail] = report
        return report
