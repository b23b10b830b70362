"""Nodes by row, name or host provider, as of one moment; what changes shares with it all but a few pages.

Thousands of nodes lie all over the memory: copying a list of them would take longer than the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import TypeVar

from placement.scheduling.node_info import NodeInfo

_BITS = 6
_PAGE = 1 << _BITS
_LAST = _PAGE - 1

Key = TypeVar("Key", str, int)


class NodeMarks:
    """Which picture of a node was in each row: what it takes to tell later what changed since.

    Nodes are not kept by it: whoever remembers something about each of them may do so for long.
    """

    __slots__ = ("_pages", "count")

    def __init__(self, count: int, pages: tuple[tuple[int, ...], ...]) -> None:
        self.count = count
        self._pages = pages

    def differing(self, others: NodeMarks) -> list[int]:
        """The rows, of as many, in which there are others."""
        return [
            number * _PAGE + place
            for number, (page, other) in enumerate(zip(self._pages, others._pages, strict=True))
            if page is not other
            for place, (mark, before) in enumerate(zip(page, other, strict=True))
            if mark != before
        ]

    def changed(self, pages: Mapping[int, Iterable[NodeInfo]]) -> NodeMarks:
        """The same rows with other nodes in these pages."""
        others = list(self._pages)
        for page, nodes in pages.items():
            others[page] = tuple(node.serial for node in nodes)
        return NodeMarks(self.count, tuple(others))


class NodeRows:
    """The node of each row, from 0 on; never changed."""

    __slots__ = ("_pages", "marks")

    def __init__(self, nodes: Iterable[NodeInfo] = ()) -> None:
        listed = tuple(nodes)
        self._pages = tuple(listed[start : start + _PAGE] for start in range(0, len(listed), _PAGE))
        marks = tuple(tuple([node.serial for node in page]) for page in self._pages)
        self.marks = NodeMarks(len(listed), marks)

    def __len__(self) -> int:
        return self.marks.count

    def __iter__(self) -> Iterator[NodeInfo]:
        return chain.from_iterable(self._pages)

    def __getitem__(self, row: int) -> NodeInfo:
        return self._pages[row >> _BITS][row & _LAST]

    def at(self, rows: Iterable[int]) -> list[NodeInfo]:
        """The nodes in these rows, in that order; much faster than one by one."""
        pages = self._pages
        return [pages[row >> _BITS][row & _LAST] for row in rows]

    def changed(self, changes: Iterable[tuple[int, NodeInfo]]) -> NodeRows:
        """The same rows with other nodes in some of them."""
        own: dict[int, list[NodeInfo]] = {}
        for row, node in changes:
            page, place = divmod(row, _PAGE)
            if page not in own:
                own[page] = list(self._pages[page])
            own[page][place] = node
        rows = NodeRows()
        rows.marks = self.marks.changed(own)
        pages = list(self._pages)
        for page, nodes in own.items():
            pages[page] = tuple(nodes)
        rows._pages = tuple(pages)
        return rows


class NodePlaces:
    """In which row each node is: the same object for as long as the rows are those of the same nodes."""

    def __init__(self, nodes: Iterable[NodeInfo]) -> None:
        self._nodes = nodes

    @cached_property
    def by_name(self) -> Mapping[str, int]:
        """The rows by the names of the nodes, in their order."""
        return {node.name: row for row, node in enumerate(self._nodes)}

    @cached_property
    def by_root(self) -> Mapping[int, int]:
        """The rows by the ids of the host providers."""
        return {node.root_id: row for row, node in enumerate(self._nodes)}

    def settled(self) -> NodePlaces:
        """The same, found out now: nodes as they were are not kept for it."""
        _ = self.by_name, self.by_root
        self._nodes = ()
        return self


class NodeIndex(Mapping[Key, NodeInfo]):
    """The nodes by something that tells them apart, each of which has a row."""

    __slots__ = ("_nodes", "_rows")

    def __init__(self, rows: Mapping[Key, int], nodes: NodeRows) -> None:
        self._rows: Mapping[Key, int] = rows
        self._nodes = nodes

    def __getitem__(self, key: Key) -> NodeInfo:
        return self._nodes[self._rows[key]]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
