"""The nodes of a cluster as columns, as of one moment: the snapshot on which pods are scheduled.

Row by row in the order of names. A snapshot never changes: what changed makes another one, which shares with
it all columns in which nothing changed, so that whoever looks at one needs no lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from placement.forest.arrays import Rows
from placement.scheduling.columns.labels import LabelColumn, LabelKey
from placement.scheduling.columns.node_numbers import NodeNumbers
from placement.scheduling.columns.node_rows import NodeIndex, NodeMarks, NodeRows
from placement.scheduling.columns.table import Guard, Table, Written, kind_of, written
from placement.scheduling.node_info import NodeInfo

# So many keys have columns at a time; the oldest is dropped for another one.
_LABELS_KEPT = 64
# Guards and kinds that no node has any more are kept up to this many, and as many as there are nodes.
_SPARE = 64


@dataclass(frozen=True, eq=False)
class NodeColumns:
    """All nodes of a cluster, or some of them: node `i` in row `i` of the table."""

    nodes: NodeRows = field(default_factory=NodeRows)
    table: Table = field(default_factory=Table)
    _rows: Mapping[str, int] = field(default_factory=dict)
    _roots: Mapping[int, int] = field(default_factory=dict)
    _labels: dict[LabelKey, LabelColumn] = field(default_factory=dict)

    @property
    def by_name(self) -> Mapping[str, NodeInfo]:
        """The nodes by name."""
        return NodeIndex(self._rows, self.nodes)

    @property
    def by_root(self) -> Mapping[int, NodeInfo]:
        """The nodes by the id of their host provider."""
        return NodeIndex(self._roots, self.nodes)

    @property
    def names(self) -> Collection[str]:
        """The names of the nodes, row by row."""
        return self._rows.keys()

    def row_of(self, name: str) -> int:
        """The row of the node of that name. Raises KeyError."""
        return self._rows[name]

    def label(self, key: LabelKey) -> LabelColumn:
        """What the nodes have at a label or field."""
        column = self._labels.get(key)
        if column is None:
            column = LabelColumn.of(key, (node.attributes for node in self.nodes))
            self._labels[key] = column
            if len(self._labels) > _LABELS_KEPT:
                # Others may drop the same one at this moment.
                self._labels.pop(next(iter(list(self._labels))), None)
        return column

    def among(self, names: Collection[str]) -> NodeColumns:
        """The nodes of these names, unknown ones left out."""
        rows = {row for row in map(self._rows.get, names) if row is not None}
        return self if len(rows) == len(self.nodes) else self.rows(sorted(rows))

    def without(self, names: Collection[str]) -> NodeColumns:
        """All nodes but those of these names."""
        left = set(names)
        return self.rows([row for row, node in enumerate(self.nodes) if node.name not in left])

    def updated(self, fresh: Iterable[NodeInfo], gone: Collection[str] = ()) -> NodeColumns:
        """The nodes after some of them changed or came, and those of these names went."""
        coming = {node.name: node for node in fresh}
        columns = self
        stay = all(self._rows.get(name, -1) == self._roots.get(node.root_id) for name, node in coming.items())
        if not stay or any(name in self._rows for name in gone):
            columns = self._rearranged(coming, gone)
        return columns._written([(columns._rows[name], node) for name, node in coming.items()])

    @property
    def order(self) -> object:
        """The same object for as long as the rows are those of the same nodes, whatever becomes of these."""
        return self._rows

    @property
    def marks(self) -> NodeMarks:
        """By which to tell later what changed since."""
        return self.nodes.marks

    def changed_since(self, before: NodeMarks) -> Rows:
        """The rows whose nodes are not what they were when the order was the same."""
        return np.array(self.marks.differing(before), np.intp)

    def rows(self, rows: Sequence[int] | Rows) -> NodeColumns:
        """The nodes in some of the rows, in that order."""
        nodes, places = NodeRows(map(self.nodes.__getitem__, rows)), np.array(rows, np.intp)
        labels = {key: column.among(places) for key, column in list(self._labels.items())}
        return NodeColumns(nodes, self.table.rows(places), *_rows_of(nodes), labels)

    def _rearranged(self, coming: Mapping[str, NodeInfo], gone: Collection[str]) -> NodeColumns:
        """Rows for all nodes there will be; those of nodes that come have still to be written."""
        present = {node.name: node for node in self.nodes if node.name not in gone}
        present.update(coming)
        nodes = NodeRows(present[name] for name in sorted(present))
        source = np.array([self._rows.get(node.name, -1) for node in nodes], np.intp)
        return NodeColumns(nodes, self.table.rearranged(source), *_rows_of(nodes))

    def _written(self, changes: Sequence[tuple[int, NodeInfo]]) -> NodeColumns:
        nodes, numbers = self.nodes.changed(changes), NodeNumbers()
        rows: list[Written] = []
        for row, node in changes:
            guard = Guard(node.attributes.taints, node.attributes.unschedulable)
            rows.append((row, guard, kind_of(node.host), numbers.of(node)))
        table = written(self.table, rows)
        if max(len(table.guards), len(table.kinds)) > 2 * len(nodes) + _SPARE:
            return NodeColumns().updated(nodes)
        others = [
            (row, node.attributes)
            for row, node in changes
            if node.attributes is not self.nodes[row].attributes
        ]
        kept = [(key, column) for key, column in list(self._labels.items()) if not column.is_worn]
        labels = {key: column.with_attributes(others) if others else column for key, column in kept}
        return NodeColumns(nodes, table, self._rows, self._roots, labels)


def _rows_of(nodes: NodeRows) -> tuple[dict[str, int], dict[int, int]]:
    """The rows by name and by host provider."""
    return (
        {node.name: row for row, node in enumerate(nodes)},
        {node.root_id: row for row, node in enumerate(nodes)},
    )
