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
from placement.scheduling.columns.node_counts import NodeCounts, recounted
from placement.scheduling.columns.node_rows import NodeIndex, NodeMarks, NodePlaces, NodeRows
from placement.scheduling.columns.table import Table
from placement.scheduling.node_info import NodeInfo

# So many keys have columns at a time; the oldest is dropped for another one.
_LABELS_KEPT = 64


@dataclass(frozen=True, eq=False)
class NodeColumns:
    """All nodes of a cluster, or some of them: node `i` in row `i` of the table."""

    nodes: NodeRows = field(default_factory=NodeRows)
    _counts: NodeCounts = field(default_factory=lambda: NodeCounts(NodeRows().marks, Table))
    _places: NodePlaces = field(default_factory=lambda: NodePlaces(()))
    _labels: dict[LabelKey, LabelColumn] = field(default_factory=dict)

    @property
    def table(self) -> Table:
        """The numbers of the nodes; those of nodes that changed are counted when somebody asks."""
        return self._counts.of(self.nodes)

    @property
    def by_name(self) -> Mapping[str, NodeInfo]:
        """The nodes by name."""
        return NodeIndex(self._places.by_name, self.nodes)

    @property
    def by_root(self) -> Mapping[int, NodeInfo]:
        """The nodes by the id of their host provider."""
        return NodeIndex(self._places.by_root, self.nodes)

    @property
    def names(self) -> Collection[str]:
        """The names of the nodes, row by row."""
        return self._places.by_name.keys()

    def row_of(self, name: str) -> int:
        """The row of the node of that name. Raises KeyError."""
        return self._places.by_name[name]

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
        known, wanted = self._places.by_name, set(names)
        if known.keys() <= wanted:
            return self
        return self.rows(sorted(known[name] for name in known.keys() & wanted))

    def without(self, names: Collection[str]) -> NodeColumns:
        """All nodes but those of these names."""
        left = set(names)
        return self.rows([row for row, node in enumerate(self.nodes) if node.name not in left])

    def updated(self, fresh: Iterable[NodeInfo], gone: Collection[str] = ()) -> NodeColumns:
        """The nodes after some of them changed or came, and those of these names went."""
        coming = {node.name: node for node in fresh}
        rows, roots = self._places.by_name, self._places.by_root
        stay = all(rows.get(name, -1) == roots.get(node.root_id) for name, node in coming.items())
        if not stay or any(name in rows for name in gone):
            return self._rearranged(coming, gone)
        return self._changed([(rows[name], node) for name, node in coming.items()])

    @property
    def order(self) -> object:
        """The same object for as long as the rows are those of the same nodes, whatever becomes of these."""
        return self._places

    @property
    def marks(self) -> NodeMarks:
        """By which to tell later what changed since."""
        return self.nodes.marks

    def changed_since(self, before: NodeMarks) -> Rows:
        """The rows whose nodes are not what they were when the order was the same."""
        return np.array(self.marks.differing(before), np.intp)

    def rows(self, rows: Sequence[int] | Rows) -> NodeColumns:
        """The nodes in some of the rows, in that order."""
        places = np.array(rows, np.intp)
        nodes = NodeRows(self.nodes.at(places.tolist()))
        labels = {key: column.among(places) for key, column in list(self._labels.items())}
        counts = NodeCounts(nodes.marks, lambda: self.table.rows(places))
        return NodeColumns(nodes, counts, NodePlaces(nodes), labels)

    def _rearranged(self, coming: Mapping[str, NodeInfo], gone: Collection[str]) -> NodeColumns:
        """Other nodes, which have other rows, with all that is known of those that were there before."""
        present = {node.name: node for node in self.nodes if node.name not in gone}
        present.update(coming)
        nodes = NodeRows(present[name] for name in sorted(present))
        source = np.array([self._places.by_name.get(node.name, -1) for node in nodes], np.intp)
        own = NodePlaces(nodes).settled()
        table = recounted(self.table.rearranged(source), nodes, [own.by_name[name] for name in coming])
        return NodeColumns(nodes, NodeCounts(nodes.marks, lambda: table), own)

    def _changed(self, changes: Sequence[tuple[int, NodeInfo]]) -> NodeColumns:
        nodes = self.nodes.changed(changes)
        others = [
            (row, node.attributes)
            for row, node in changes
            if node.attributes is not self.nodes[row].attributes
        ]
        kept = [(key, column) for key, column in list(self._labels.items()) if not column.is_worn]
        labels = {key: column.with_attributes(others) if others else column for key, column in kept}
        self._counts.changed(nodes, len(changes))
        return NodeColumns(nodes, self._counts, self._places, labels)
