"""Columns of integers become text row by row, whatever their size and type, and records keep their places."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement.engine.forest.arrays import assembled, fractions, lines, numbers

_ANY = st.one_of(st.integers(0, 5), st.integers(0, 1100), st.integers(0, 2**63 - 1))


def _written(texts: np.ndarray) -> list[bytes]:
    return [text.strip() for text in lines(texts)]


@given(st.lists(_ANY), st.booleans())
def test_every_number_is_written_as_it_is(given_numbers: list[int], wide: bool) -> None:
    column = np.array(given_numbers, object if wide else np.int64)
    assert _written(numbers(column)) == [str(number).encode() for number in given_numbers]


@given(st.lists(st.tuples(_ANY, _ANY), min_size=1))
def test_fractions_are_strings_without_a_space(pairs: list[tuple[int, int]]) -> None:
    above, below = np.array(pairs, np.int64).T
    assert [json.loads(text) for text in lines(fractions(above, below))] == [f"{a}/{b}" for a, b in pairs]


def test_texts_of_several_widths_stand_at_their_places() -> None:
    short, long = (
        np.frombuffer(text, np.uint8).reshape(-1, width) for text, width in ((b"abcd", 2), (b"xyz", 3))
    )
    assert lines(assembled([(np.array([2, 0]), short), (np.array([1]), long)])) == [b"cd ", b"xyz", b"ab "]
    assert len(assembled([])) == 0
