"""The table of nodes that change: a node is counted when somebody asks for the table, not when it changes.

Pods of a known shape ask for none, and what was counted for one snapshot holds for the next but for the
nodes that changed in between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from placement.scheduling.columns.node_numbers import NodeNumbers
from placement.scheduling.columns.node_rows import NodeMarks, NodeRows
from placement.scheduling.columns.table import Guard, Table, Written, kind_of, written

# So many changes are left to whoever asks next: counting them takes milliseconds.
_MOST_BEHIND = 64
# Guards and kinds that no node has any more are kept up to this many, and as many as there are nodes.
_SPARE = 64


class NodeCounts:
    """What was counted last, shared by all snapshots with the same rows; threads share it, too."""

    def __init__(self, marks: NodeMarks, table: Callable[[], Table]) -> None:
        """`table` gives that of the nodes with these marks; it is asked at most once."""
        self._marks = marks
        self._first: Callable[[], Table] | None = table
        self._table = Table()
        self._behind = 0
        self._lock = threading.Lock()

    def of(self, nodes: NodeRows) -> Table:
        """The table of these nodes as they are: never that of other pictures of them, older or newer."""
        with self._lock:
            if self._first is not None:
                self._table, self._first = self._first(), None
            rows = nodes.marks.differing(self._marks)
            if rows:
                self._table = recounted(self._table, nodes, rows)
            self._marks, self._behind = nodes.marks, 0
            return self._table

    def changed(self, nodes: NodeRows, count: int) -> None:
        """So many nodes more have changed; they are counted now if they have become too many."""
        # Threads may miss the change of another one here: then it is a few more.
        self._behind += count
        if self._behind > _MOST_BEHIND:
            self.of(nodes)


def recounted(table: Table, nodes: NodeRows, rows: Iterable[int]) -> Table:
    """The table after the nodes in some rows changed."""
    after = written(table, _counted(nodes, rows))
    if max(len(after.guards), len(after.kinds)) > 2 * len(nodes) + _SPARE:
        return written(Table(len(nodes)), _counted(nodes, range(len(nodes))))
    return after


def _counted(nodes: NodeRows, rows: Iterable[int]) -> list[Written]:
    numbers = NodeNumbers()
    found: list[Written] = []
    for row in rows:
        node = nodes[row]
        guard = Guard(node.attributes.taints, node.attributes.unschedulable)
        found.append((row, guard, kind_of(node.host), numbers.of(node)))
    return found
