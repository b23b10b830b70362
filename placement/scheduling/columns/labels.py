"""The labels of nodes, a column per key that pods have asked about.

Each text is one code, so that a requirement is decided once per distinct text, or by comparing codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from placement.forest.arrays import Indices, Mask, Rows
from placement.kubernetes.node_selection import NodeAttributes, Requirement

_ABSENT, _NOWHERE = -1, -2
_NAME = "metadata.name"
# Codes of texts that no node has any more are kept up to this many, and as many as there are nodes.
_SPARE = 64


class LabelKey(NamedTuple):
    """A label, or a field of the node."""

    key: str
    is_field: bool = False

    def text(self, attributes: NodeAttributes) -> str | None:
        """What the node has there."""
        if self.is_field:
            return attributes.name if self.key == _NAME else None
        return attributes.labels.get(self.key)


class LabelColumn:
    """The texts that nodes have at one key. Never changed: another text makes another column."""

    def __init__(self, key: LabelKey, codes: Indices, code_of: Mapping[str, int]) -> None:
        self._key = key
        self._codes = codes
        self._code_of = code_of

    @classmethod
    def of(cls, key: LabelKey, nodes: Iterable[NodeAttributes]) -> LabelColumn:
        """The column of nodes with these attributes."""
        code_of: dict[str, int] = {}
        codes = [_code(key.text(attributes), code_of) for attributes in nodes]
        return cls(key, np.array(codes, np.int32), code_of)

    @property
    def is_worn(self) -> bool:
        """Whether it had better be made anew, as most of its texts are those of the past."""
        return len(self._code_of) > 2 * len(self._codes) + _SPARE

    def with_attributes(self, changed: Iterable[tuple[int, NodeAttributes]]) -> LabelColumn:
        """The column with other attributes in these rows."""
        codes, code_of = self._codes.copy(), dict(self._code_of)
        for row, attributes in changed:
            codes[row] = _code(self._key.text(attributes), code_of)
        return LabelColumn(self._key, codes, code_of)

    def among(self, rows: Rows) -> LabelColumn:
        """The column of some of the nodes."""
        return LabelColumn(self._key, self._codes[rows], self._code_of)

    @property
    def codes(self) -> Indices:
        """The number of each node's text; the same for the same text, negative where there is none."""
        return self._codes

    def equals(self, text: str) -> Mask:
        """Which nodes have exactly this text."""
        equal: Mask = self._codes == self._code_of.get(text, _NOWHERE)
        return equal

    def holds(self, requirement: Requirement) -> Mask:
        """For which nodes a requirement about this key holds."""
        operator = requirement.operator
        present: Mask = self._codes != _ABSENT
        if operator in ("Exists", "DoesNotExist"):
            return present if operator == "Exists" else ~present
        if operator in ("In", "NotIn"):
            codes = [self._code_of[text] for text in requirement.values if text in self._code_of]
            return np.isin(self._codes, codes, invert=operator == "NotIn")
        texts = list(self._code_of)
        decided = [requirement.holds({requirement.key: text}) for text in texts] + [False]
        return np.array(decided, np.bool_)[self._codes]


def _code(text: str | None, code_of: dict[str, int]) -> int:
    return _ABSENT if text is None else code_of.setdefault(text, len(code_of))
