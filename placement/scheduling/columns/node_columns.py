"""The nodes of a cluster as columns, as of one moment.

Row by row in the order of names. A snapshot never changes: what changed makes another one, which shares with
it all columns in which nothing changed, so that whoever looks at one needs no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from placement.forest.arrays import Amounts, Mask
from placement.kubernetes.taints import Taint
from placement.scheduling.columns.host_kind import HostKind, kind_of
from placement.scheduling.columns.labels import LabelColumn, LabelKey
from placement.scheduling.columns.node_numbers import (
    MOST,
    NUMA_NODES,
    Column,
    Numbers,
    numbers_of,
)
from placement.scheduling.host import Host
from placement.scheduling.node_info import NodeInfo

Node = TypeVar("Node", bound=NodeInfo)
_LABELS_KEPT = 64
"""So many keys have columns at a time; others are looked up node by node when they are asked about."""


class Guard(NamedTuple):
    """What keeps pods off a node unless they tolerate it."""

    taints: tuple[Taint, ...]
    unschedulable: bool


_GUARD, _KIND = Column("guard"), Column("kind of host")
# Guards and kinds that no node has any more are kept up to this many, and as many as there are nodes.
_SPARE = 64


@dataclass(frozen=True, eq=False)
class NodeColumns(Generic[Node]):
    """All nodes of a cluster, or some of them: node `i` in row `i` of every column."""

    nodes: tuple[Node, ...] = ()
    _rows: Mapping[str, int] = field(default_factory=dict)
    _columns: Mapping[Column, Amounts] = field(default_factory=dict)
    _guards: Mapping[Guard, int] = field(default_factory=dict)
    _kinds: Mapping[HostKind, int] = field(default_factory=dict)
    _labels: dict[LabelKey, LabelColumn] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, column: Column) -> Amounts:
        """The numbers of a column, only to be read."""
        found = self._columns.get(column)
        return np.zeros(len(self.nodes), np.int64) if found is None else found

    @property
    def numa_nodes(self) -> int:
        """The most NUMA nodes that any node has."""
        return int(self[NUMA_NODES].max(initial=0))

    def label(self, key: LabelKey) -> LabelColumn:
        """What the nodes have at a label or field."""
        column = self._labels.get(key)
        if column is None:
            column = LabelColumn.of(key, (node.face for node in self.nodes))
            if len(self._labels) < _LABELS_KEPT:
                self._labels[key] = column
        return column

    def where_guard(self, admits: Callable[[Guard], bool]) -> Mask:
        """The nodes whose guard admits somebody, who is asked once per distinct guard."""
        return np.array([admits(guard) for guard in self._guards], np.bool_)[self[_GUARD]]

    def where_kind(self, holds: Callable[[HostKind], bool]) -> Mask:
        """The nodes of whose kind something holds, which is asked once per distinct kind."""
        return np.array([holds(kind) for kind in self._kinds], np.bool_)[self[_KIND]]

    def by_kind(self, number: Callable[[HostKind], int]) -> Amounts:
        """A number that depends on the kind of a node alone, up to what is counted."""
        numbers = [min(MOST, number(kind)) for kind in self._kinds]
        return np.array(numbers, np.int64)[self[_KIND]]

    def among(self, names: Collection[str]) -> NodeColumns[Node]:
        """The nodes of these names, unknown ones left out."""
        rows = sorted(row for name in set(names) if (row := self._rows.get(name)) is not None)
        return self if len(rows) == len(self.nodes) else self._taken(rows)

    def without(self, names: Collection[str]) -> NodeColumns[Node]:
        """All nodes but those of these names."""
        left = set(names)
        return self._taken([row for row, node in enumerate(self.nodes) if node.name not in left])

    def updated(self, fresh: Iterable[Node], gone: Collection[str] = ()) -> NodeColumns[Node]:
        """The nodes after some of them changed or came, and those of these names went."""
        coming = {node.name: node for node in fresh}
        columns = self
        if not all(name in self._rows for name in coming) or any(name in self._rows for name in gone):
            columns = self._rearranged(coming, gone)
        return columns._written([(columns._rows[name], node) for name, node in coming.items()])

    def _taken(self, rows: Sequence[int]) -> NodeColumns[Node]:
        nodes, places = tuple(self.nodes[row] for row in rows), np.array(rows, np.intp)
        return replace(
            self,
            nodes=nodes,
            _rows={node.name: row for row, node in enumerate(nodes)},
            _columns={column: numbers[places] for column, numbers in self._columns.items()},
            _labels={key: column.among(places) for key, column in list(self._labels.items())},
        )

    def _rearranged(self, coming: Mapping[str, Node], gone: Collection[str]) -> NodeColumns[Node]:
        """Rows for all nodes there will be; those of nodes that come have still to be written."""
        present = {node.name: node for node in self.nodes if node.name not in gone} | coming
        names = sorted(present)
        source = np.array([self._rows.get(name, -1) for name in names], np.intp)
        columns = {
            column: np.where(source < 0, 0, numbers[source])
            for column, numbers in self._columns.items()
            if len(numbers)
        }
        return NodeColumns(
            nodes=tuple(present[name] for name in names),
            _rows={name: row for row, name in enumerate(names)},
            _columns={column: numbers for column, numbers in columns.items() if numbers.any()},
            _guards=self._guards,
            _kinds=self._kinds,
        )

    def _written(self, changes: Sequence[tuple[int, Node]]) -> NodeColumns[Node]:
        nodes, guards, kinds = list(self.nodes), dict(self._guards), dict(self._kinds)
        writing, known = _Writing(self._columns, len(nodes)), dict[Host, Numbers]()
        for row, node in changes:
            nodes[row] = node
            guard = Guard(node.face.taints, node.face.unschedulable)
            codes = {_GUARD: _code(guard, guards), _KIND: _code(kind_of(node.host), kinds)}
            writing.write(row, numbers_of(node, known) | codes)
        if max(len(guards), len(kinds)) > 2 * len(nodes) + _SPARE:
            return NodeColumns[Node]().updated(nodes)
        faces = [(row, node.face) for row, node in changes if node.face is not self.nodes[row].face]
        known_labels = [(key, column) for key, column in list(self._labels.items()) if not column.is_worn]
        labels = {key: column.with_faces(faces) if faces else column for key, column in known_labels}
        return NodeColumns(tuple(nodes), self._rows, writing.columns, guards, kinds, labels)


class _Writing:
    """Columns that share with others what is not written to."""

    def __init__(self, columns: Mapping[Column, Amounts], rows: int) -> None:
        self.columns = dict(columns)
        self._rows = rows
        self._own: set[Column] = set()

    def write(self, row: int, numbers: Mapping[Column, int]) -> None:
        """Let a row say these numbers, and 0 in all other columns."""
        for column in numbers.keys() - self.columns.keys():
            self.columns[column] = np.zeros(self._rows, np.int64)
            self._own.add(column)
        for column, present in list(self.columns.items()):
            number = numbers.get(column, 0)
            if present[row] == number:
                continue
            if column not in self._own:
                present = self.columns[column] = present.copy()
                self._own.add(column)
            present[row] = number


_Distinct = TypeVar("_Distinct", Guard, HostKind)


def _code(value: _Distinct, codes: dict[_Distinct, int]) -> int:
    return codes.setdefault(value, len(codes))
