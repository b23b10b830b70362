"""Columns of integers become text row by row, whatever their size and type, and records keep their places."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.engine.forest.arrays import Pieces, assembled, filled, fractions, lines, numbers

_ANY = st.one_of(st.integers(0, 5), st.integers(0, 1100), st.integers(0, 2**63 - 1))


def _written(texts: np.ndarray) -> list[bytes]:
    return [text.strip() for text in lines(texts)]


@given(st.lists(_ANY), st.booleans())
def test_every_number_is_written_as_it_is(given_numbers: list[int], wide: bool) -> None:
    column = np.array(given_numbers, object if wide else np.int64)
    assert _written(numbers(column)) == [str(number).encode() for number in given_numbers]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint64])
def test_any_width_and_any_stride_will_do(dtype: type) -> None:
    assert _written(numbers(np.arange(6, dtype=dtype)[::2])) == [b"0", b"2", b"4"]
    assert _written(numbers(np.array([[1, 2], [3, 4]], np.int64)[:, 1] * 1000)) == [b"2000", b"4000"]


def test_numbers_beyond_64_bits_are_written_too() -> None:
    assert _written(numbers(np.array([2**70, 1], object))) == [b"1180591620717411303424", b"1"]


def test_numbers_are_as_wide_as_the_longest_of_them() -> None:
    assert lines(numbers(np.array([7, 100, 42]))) == [b"  7", b"100", b" 42"]


@given(st.lists(st.tuples(_ANY, _ANY), min_size=1))
def test_fractions_are_strings_without_a_space(pairs: list[tuple[int, int]]) -> None:
    above, below = np.array(pairs, np.int64).T
    assert [json.loads(text) for text in lines(fractions(above, below))] == [f"{a}/{b}" for a, b in pairs]


def test_a_record_has_the_columns_between_the_pieces() -> None:
    left, right = np.frombuffer(b"abcd", np.uint8).reshape(2, 2), np.frombuffer(b"xy", np.uint8).reshape(2, 1)
    assert lines(filled([b"<", b"|", b">"], [left, right])) == [b"<ab|x>", b"<cd|y>"]


def test_texts_of_several_widths_stand_at_their_places() -> None:
    short, long = (
        np.frombuffer(text, np.uint8).reshape(-1, width) for text, width in ((b"abcd", 2), (b"xyz", 3))
    )
    assert lines(assembled([(np.array([2, 0]), short), (np.array([1]), long)])) == [b"cd ", b"xyz", b"ab "]
    assert len(assembled([])) == 0


def test_pieces_of_some_rows_are_the_texts_of_these():
    whole = Pieces((b"<", numbers(np.array([1, 20, 300, 4000])), b">"))
    assert lines(whole.at(np.array([2, 0])).whole) == [b"< 300>", b"<   1>"]
    assert lines(whole.at(slice(1, 3)).whole) == [b"<  20>", b"< 300>"]
