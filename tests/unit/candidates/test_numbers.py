"""Columns of integers become text number by number, whatever their size and type."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.candidates.numbers import to_text

_ANY = st.one_of(st.integers(0, 1100), st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(_ANY), st.booleans())
def test_every_number_is_written_as_it_is(numbers: list[int], wide: bool) -> None:
    column = np.array(numbers, object if wide else np.int64)
    assert to_text(column) == [str(number).encode() for number in numbers]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint64])
def test_any_width_and_any_stride_will_do(dtype: type) -> None:
    assert to_text(np.arange(6, dtype=dtype)[::2]) == [b"0", b"2", b"4"]
    assert to_text(np.array([[1, 2], [3, 4]], np.int64)[:, 1] * 1000) == [b"2000", b"4000"]


def test_numbers_beyond_64_bits_are_written_too() -> None:
    assert to_text(np.array([2**70, 1], object)) == [b"1180591620717411303424", b"1"]
