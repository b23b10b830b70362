"""Names fold as the collation utf8mb3_general_ci of MySQL and MariaDB has it."""

from __future__ import annotations

import pytest

from placement.common.mysql_names import called_one, folded


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("compute-77", "Compute-77"),
        ("compute-77", "COMPUTE-77   "),
        ("nodé-1", "node-1"),
        ("Häuschen", "HAUSCHEN"),
        ("straße", "STRASE"),
        ("ﬀ" + "ａ", "ﬀ" + "Ａ"),
        ("ελλάς", "ΕΛΛΑΣ"),
        ("Ёлка", "елка"),
        ("ǆ", "ǅ"),
        ("ıſ", "IS"),
        ("\N{GREEK SMALL LETTER IOTA WITH DIALYTIKA AND TONOS}", "Ι"),
        ("\N{GRINNING FACE}", "\N{PILE OF POO}"),
        ("", "  "),
    ],
)
def test_these_are_one(one: str, other: str):
    assert folded(one) == folded(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("straße", "strasse"),
        ("æ", "ae"),
        ("ø", "o"),
        ("đ", "d"),
        ("ł", "l"),
        ("й", "и"),
        ("e\N{COMBINING ACUTE ACCENT}", "e"),
        ("a", "a\t"),
        ("a", " a"),
        ("a", "a\N{NO-BREAK SPACE}"),
        ("が", "か"),
        ("한", "하"),
        ("ŉ", "n"),
        ("node-1", "node_1"),
    ],
)
def test_these_are_two(one: str, other: str):
    assert folded(one) != folded(other)


def test_groups_have_two_different_names_or_more():
    names = ["b", "a", "A ", "b", "é", "E", "c", "A"]
    assert called_one(names) == [["A", "A ", "a"], ["E", "é"]]
    assert called_one(["a", "a"]) == []
