"""The nodes of a cluster as columns, as of one moment: the snapshot on which pods are scheduled.

Rows are in the order of names. A snapshot never changes: a change makes another one, which shares with it all
columns in which nothing changed, so that readers need no lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from placement.engine.forest.arrays import Indices, Mask, Rows
from placement.pods.manifests.selection import NodeAttributes, Requirement
from placement.pods.state.columns import NodeGuard, NodeNumbers, NodeTable, Written, kind_of, written
from placement.pods.state.node_info import NodeInfo

_BITS = 6
_PAGE = 1 << _BITS
_LAST = _PAGE - 1

NodeKey = TypeVar("NodeKey", str, int)


NodeMarks = tuple[tuple[int, ...], ...]
"""The number of the node picture in each row, page by page; it keeps no nodes alive for long."""


@dataclass(frozen=True, eq=False)
class NodeColumns:
    """All nodes of a cluster, or some of them: node `i` in row `i` of the table."""

    nodes: NodeRows = field(default_factory=lambda: NO_ROWS)
    _counts: NodeCounts = field(default_factory=lambda: NodeCounts(NO_ROWS.marks, NodeTable))
    order: NodeOrder = field(default_factory=lambda: NodeOrder(()))
    _labels: dict[LabelKey, LabelColumn] = field(default_factory=dict)

    @property
    def table(self) -> NodeTable:
        """Return the table of the nodes; changed nodes are counted at this request."""
        return self._counts.of(self.nodes)

    @cached_property
    def by_name(self) -> Mapping[str, NodeInfo]:
        """Return the nodes by name."""
        return NodeIndex(self.order.by_name, self.nodes)

    @property
    def names(self) -> Collection[str]:
        """Return the names of the nodes, row by row."""
        return self.order.by_name.keys()

    def row_of(self, name: str) -> int:
        """Return the row of the node of that name. Raises KeyError."""
        return self.order.by_name[name]

    def label(self, key: LabelKey) -> LabelColumn:
        """Return the column of a label or field."""
        column = self._labels.get(key)
        if column is None:
            column = LabelColumn.of(key, (node.attributes for node in self.nodes))
            self._labels[key] = column
            if len(self._labels) > _LABELS_KEPT:
                # Other threads may drop the same one at this moment.
                self._labels.pop(next(iter(list(self._labels))), None)
        return column

    def among(self, names: Collection[str]) -> NodeColumns:
        """Return the nodes of these names, unknown ones left out."""
        known, wanted = self.order.by_name, set(names)
        if known.keys() <= wanted:
            return self
        return self.rows(sorted(known[name] for name in known.keys() & wanted))

    def without(self, names: Collection[str]) -> NodeColumns:
        """Return all nodes but the ones with these names."""
        left = set(names)
        return self.rows([row for row, node in enumerate(self.nodes) if node.name not in left])

    def updated(self, fresh_nodes: Iterable[NodeInfo], gone: Collection[str] = ()) -> NodeColumns:
        """Return the nodes after the `fresh_nodes` changed or came, and nodes with the names `gone` went."""
        rows, roots = self.order.by_name, self.order.by_root
        changes, others = list[tuple[int, NodeInfo]](), list[tuple[int, NodeAttributes]]()
        coming, is_same = list(fresh_nodes), rows.keys().isdisjoint(gone)
        for node in coming:
            row = rows.get(node.name, -1)
            if row != roots.get(node.root_id):
                is_same = False
            elif node.attributes is not self.nodes[row].attributes:
                others.append((row, node.attributes))
            changes.append((row, node))
        if not is_same:
            return self._rearranged({node.name: node for node in coming}, gone)
        nodes = self.nodes.changed(changes)
        labels = {}
        for key, column in list(self._labels.items()):
            if not column.is_worn:
                labels[key] = column.with_attributes(others) if others else column
        self._counts.changed(nodes, len(changes))
        return NodeColumns(nodes, self._counts, self.order, labels)

    def rows(self, rows: Sequence[int] | Rows) -> NodeColumns:
        """Return the nodes in some of the rows, in that order."""
        places = np.array(rows, np.intp)
        nodes = NodeRows.of(self.nodes.at(places.tolist()))
        labels = {key: column.among(places) for key, column in list(self._labels.items())}
        counts = NodeCounts(nodes.marks, lambda: self.table.rows(places))
        return NodeColumns(nodes, counts, NodeOrder(nodes), labels)

    def _rearranged(self, coming: Mapping[str, NodeInfo], gone: Collection[str]) -> NodeColumns:
        """Return other nodes, in new rows, with the numbers that are known of the former ones."""
        present = {node.name: node for node in self.nodes if node.name not in gone}
        present.update(coming)
        nodes = NodeRows.of(present[name] for name in sorted(present))
        source = np.array([self.order.by_name.get(node.name, -1) for node in nodes], np.intp)
        order = NodeOrder(nodes)
        rows, _ = order.by_name, order.by_root
        # Both are found out by now, so that it keeps no former nodes.
        order._nodes = ()
        table = recounted(self.table.rearranged(source), nodes, [rows[name] for name in coming])
        return NodeColumns(nodes, NodeCounts(nodes.marks, lambda: table), order)


@dataclass(slots=True, eq=False)
class NodeRows:
    """The node of each row, from 0 on, page by page; never changed.

    A change shares all but a few pages. Thousands of nodes lie all over the memory: a copied list of them
    would take longer than the change.
    """

    pages: tuple[tuple[NodeInfo, ...], ...]
    marks: NodeMarks

    @classmethod
    def of(cls, nodes: Iterable[NodeInfo]) -> NodeRows:
        """Return the rows of these nodes."""
        listed = tuple(nodes)
        pages = tuple([listed[start : start + _PAGE] for start in range(0, len(listed), _PAGE)])
        marks = tuple([tuple([node.serial for node in page]) for page in pages])
        return cls(pages, marks)

    def __len__(self) -> int:
        return _PAGE * (len(self.pages) - 1) + len(self.pages[-1]) if self.pages else 0

    def __iter__(self) -> Iterator[NodeInfo]:
        return chain.from_iterable(self.pages)

    def __getitem__(self, row: int) -> NodeInfo:
        return self.pages[row >> _BITS][row & _LAST]

    def at(self, rows: Iterable[int]) -> list[NodeInfo]:
        """Return the nodes in these rows, in that order; much faster than one by one."""
        pages = self.pages
        return [pages[row >> _BITS][row & _LAST] for row in rows]

    def changed_since(self, before: NodeMarks) -> list[int]:
        """Return the rows where nodes have changed; there were as many nodes before."""
        rows = []
        for number, (page, former) in enumerate(zip(self.marks, before, strict=True)):
            if page is not former:
                for place, (mark, other) in enumerate(zip(page, former, strict=True)):
                    if mark != other:
                        rows.append(number * _PAGE + place)
        return rows

    def changed(self, changes: Iterable[tuple[int, NodeInfo]]) -> NodeRows:
        """Return these rows with other nodes in some of them."""
        pages, marks = list(self.pages), list(self.marks)
        own, serials = dict[int, list[NodeInfo]](), dict[int, list[int]]()
        for row, node in changes:
            page, place = divmod(row, _PAGE)
            if page not in own:
                own[page], serials[page] = list(pages[page]), list(marks[page])
            own[page][place], serials[page][place] = node, node.serial
        for page, nodes in own.items():
            pages[page], marks[page] = tuple(nodes), tuple(serials[page])
        return NodeRows(tuple(pages), tuple(marks))


NO_ROWS: NodeRows = NodeRows((), ())


class NodeOrder:
    """The row of each node; one object for as long as the rows belong to the same nodes."""

    def __init__(self, nodes: Iterable[NodeInfo]) -> None:
        self._nodes = nodes

    @cached_property
    def by_name(self) -> Mapping[str, int]:
        """Return the rows by the names of the nodes, in their order."""
        return {node.name: row for row, node in enumerate(self._nodes)}

    @cached_property
    def by_root(self) -> Mapping[int, int]:
        """Return the rows by the ids of the host providers."""
        return {node.root_id: row for row, node in enumerate(self._nodes)}


@dataclass(slots=True, eq=False)
class NodeIndex(Mapping[NodeKey, NodeInfo]):
    """A mapping of nodes by a key that is unique to each."""

    rows: Mapping[NodeKey, int]
    nodes: NodeRows

    def __getitem__(self, key: NodeKey) -> NodeInfo:
        return self.nodes[self.rows[key]]

    def __iter__(self) -> Iterator[NodeKey]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


# This many changes are left to the next request for the table: counting them takes milliseconds.
_MOST_BEHIND = 64
# Guards and kinds that no node has any more are kept up to this many, and as many as there are nodes.
_SPARE = 64


class NodeCounts:
    """The table that was counted last, shared by all snapshots with the same rows, and by threads.

    A node is counted when the table is requested, not when it changes: pods of a known shape ask for none.
    """

    def __init__(self, marks: NodeMarks, table: Callable[[], NodeTable]) -> None:
        """Keep `table`, which returns the table of the nodes with these marks, and is called at most once."""
        self._marks = marks
        self._first: Callable[[], NodeTable] | None = table
        self._table = NodeTable()
        self._behind = 0
        self._lock = threading.Lock()

    def of(self, nodes: NodeRows) -> NodeTable:
        """Return the table of exactly these nodes: never of older or newer pictures of them."""
        with self._lock:
            if self._first is not None:
                self._table, self._first = self._first(), None
            rows = nodes.changed_since(self._marks)
            if rows:
                self._table = recounted(self._table, nodes, rows)
            self._marks, self._behind = nodes.marks, 0
            return self._table

    def changed(self, nodes: NodeRows, count: int) -> None:
        """Note that `count` more nodes have changed; they are counted now if they have become too many."""
        # Threads may miss the change of another thread here: then a few more are left.
        self._behind += count
        if self._behind > _MOST_BEHIND:
            self.of(nodes)


def recounted(table: NodeTable, nodes: NodeRows, rows: Iterable[int]) -> NodeTable:
    """Return the table after the nodes in some rows changed."""
    numbers, found = NodeNumbers(), list[Written]()
    for row in rows:
        node = nodes[row]
        guard = NodeGuard.of(node.attributes)
        found.append((row, guard, kind_of(node.host), numbers.of(node)))
    after = written(table, found)
    is_full = max(len(after.guards), len(after.kinds)) > 2 * len(nodes) + _SPARE
    return recounted(NodeTable(len(nodes)), nodes, range(len(nodes))) if is_full else after


_ABSENT, _NOWHERE = -1, -2
_NAME = "metadata.name"


class LabelKey(NamedTuple):
    """A label, or a field of the node."""

    key: str
    is_field: bool = False

    def text(self, attributes: NodeAttributes) -> str | None:
        """Return the text that the node has there, if any."""
        if self.is_field:
            return attributes.name if self.key == _NAME else None
        return attributes.labels.get(self.key)


class LabelColumn:
    """The texts that nodes have at one key. Never changed: another text makes another column.

    Each text is one code, so that a requirement is decided once per distinct text, or by comparing codes.
    """

    def __init__(self, key: LabelKey, codes: Indices, code_of: Mapping[str, int]) -> None:
        self._key = key
        self.codes = codes
        """The number of each node's text: equal for equal texts, negative where there is none."""
        self._code_of = code_of

    @classmethod
    def of(cls, key: LabelKey, nodes: Iterable[NodeAttributes]) -> LabelColumn:
        """Return the column of nodes with these attributes."""
        code_of: dict[str, int] = {}
        codes = [_code(key.text(attributes), code_of) for attributes in nodes]
        return cls(key, np.array(codes, np.int32), code_of)

    @property
    def is_worn(self) -> bool:
        """Return whether it should be made anew, as most of its texts are of the past."""
        return len(self._code_of) > 2 * len(self.codes) + _SPARE

    def with_attributes(self, changed: Iterable[tuple[int, NodeAttributes]]) -> LabelColumn:
        """Return the column with other attributes in these rows."""
        codes, code_of = self.codes.copy(), dict(self._code_of)
        for row, attributes in changed:
            codes[row] = _code(self._key.text(attributes), code_of)
        return LabelColumn(self._key, codes, code_of)

    def among(self, rows: Rows) -> LabelColumn:
        """Return the column of some of the nodes."""
        return LabelColumn(self._key, self.codes[rows], self._code_of)

    def equals(self, text: str) -> Mask:
        """Return which nodes have exactly this text."""
        equal: Mask = self.codes == self._code_of.get(text, _NOWHERE)
        return equal

    def holds(self, requirement: Requirement) -> Mask:
        """Return for which nodes a requirement about this key holds."""
        operator = requirement.operator
        present: Mask = self.codes != _ABSENT
        if operator in ("Exists", "DoesNotExist"):
            return present if operator == "Exists" else ~present
        if operator in ("In", "NotIn"):
            codes = [self._code_of[text] for text in requirement.values if text in self._code_of]
            return np.isin(self.codes, codes, invert=operator == "NotIn")
        texts = list(self._code_of)
        decided = [requirement.holds({requirement.key: text}) for text in texts] + [False]
        return np.array(decided, np.bool_)[self.codes]


def _code(text: str | None, code_of: dict[str, int]) -> int:
    return _ABSENT if text is None else code_of.setdefault(text, len(code_of))


# This many keys have columns at a time; the oldest is dropped for another one.
_LABELS_KEPT = 64
