"""Rows of nodes after a change share what did not change, and tell what did."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.pods.node_info import NodeInfo
from placement.pods.snapshot import NodeIndex, NodeRows


@dataclass(eq=False)
class _Node:
    """A thing that is only told apart by identity and by its serial."""

    serial: int


_serials = itertools.count()


def nodes(count: int) -> list[NodeInfo]:
    return [cast(NodeInfo, _Node(next(_serials))) for _ in range(count)]


@given(st.data())
def test_rows_are_a_list_that_changes(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 200))
    listed = nodes(count)
    rows = NodeRows(listed)
    places = data.draw(st.lists(st.integers(0, count - 1)))
    changes = list(zip(places, nodes(len(places)), strict=True))
    after = rows.changed(changes)
    assert list(rows) == listed, "what was there before has not changed"
    for row, node in changes:
        listed[row] = node
    assert list(after) == listed
    assert len(after) == count
    assert [after[row] for row in range(count)] == listed
    assert after.marks.differing(rows.marks) == rows.marks.differing(after.marks) == sorted(set(places))


def test_there_are_no_rows_beyond_the_last() -> None:
    with pytest.raises(IndexError):
        NodeRows(nodes(3))[3]
    with pytest.raises(IndexError):
        NodeRows()[0]


def test_an_index_has_the_keys_it_was_given() -> None:
    listed = nodes(2)
    index = NodeIndex({"a": 1, "b": 0}, NodeRows(listed))
    assert dict(index) == {"a": listed[1], "b": listed[0]}
    assert len(index) == 2
    assert index.get("c") is None
