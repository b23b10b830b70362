"""Nodes by row, name or host provider, as of one moment; what changes shares with it all but a few pages.

Thousands of nodes lie all over the memory: copying a list of them would take longer than the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeVar

from placement.scheduling.node_info import NodeInfo

_BITS = 6
_PAGE = 1 << _BITS
_LAST = _PAGE - 1

Key = TypeVar("Key", str, int)


class NodeRows:
    """The node of each row, from 0 on; never changed."""

    __slots__ = ("_count", "_pages")

    def __init__(self, nodes: Iterable[NodeInfo] = ()) -> None:
        listed = tuple(nodes)
        self._count = len(listed)
        self._pages = tuple(listed[start : start + _PAGE] for start in range(0, len(listed), _PAGE))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[NodeInfo]:
        return chain.from_iterable(self._pages)

    def __getitem__(self, row: int) -> NodeInfo:
        return self._pages[row >> _BITS][row & _LAST]

    def changed(self, changes: Iterable[tuple[int, NodeInfo]]) -> NodeRows:
        """The same rows with other nodes in some of them."""
        own: dict[int, list[NodeInfo]] = {}
        for row, node in changes:
            page, place = divmod(row, _PAGE)
            if page not in own:
                own[page] = list(self._pages[page])
            own[page][place] = node
        rows = NodeRows()
        rows._count = self._count
        pages = list(self._pages)
        for page, nodes in own.items():
            pages[page] = tuple(nodes)
        rows._pages = tuple(pages)
        return rows

    def differing(self, others: NodeRows) -> list[int]:
        """The rows, of as many, in which there are others."""
        return [
            number * _PAGE + place
            for number, (page, other) in enumerate(zip(self._pages, others._pages, strict=True))
            if page is not other
            for place, (node, before) in enumerate(zip(page, other, strict=True))
            if node is not before
        ]


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
