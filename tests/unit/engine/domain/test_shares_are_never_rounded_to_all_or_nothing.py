"""A share is shown as nothing only if nothing is used, and as the whole only if all is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.client.commands.host import share
from placement.common.host_use import CapacityUse
from placement.engine.domain.units import percent, rounded_share
from placement.engine.forest.fleet import TreeShares
from placement.engine.search.capacity.capacity import Offered, Summary


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        *((0, 368, 0), (1, 368, 1), (184, 368, 50), (367, 368, 99), (368, 368, 100), (369, 368, 101)),
        *((1, 3, 33), (2, 3, 67), (1, 8, 13), (3, 1, 300), (0.5, 400.0, 1), (0, 0, 0), (5, 0, 0), (-1, 3, 0)),
    ],
)
def test_percent(part: float, whole: float, expected: int):
    assert percent(part, whole) == expected


@given(part=st.integers(0, 2000), whole=st.integers(1, 1000))
def test_the_map_and_lists_show_what_figures_show(part: int, whole: int):
    found = percent(part, whole)
    assert (found == 0, found < 100, found > 100) == (part == 0, part < whole, part > whole)
    # A level of the map is a byte.
    assert TreeShares(np.array([part]), np.array([whole])).levels.tolist() == [min(found, 200)]
    assert share(CapacityUse(whole, part)).human_readable() == f"{found}%"


def test_a_fragmentation_is_whole_only_if_nothing_fits():
    def fragmentation(lower: int, ideal: int) -> float:
        classes: dict[str, Offered] = {}
        return Summary(lower, lower, 1, 1, ideal, classes).fragmentation

    assert [fragmentation(lower, 50_000) for lower in (0, 1, 49_999, 50_000)] == [1, 0.9999, 0.0001, 0]
    assert rounded_share(1, 50_000, 10_000) == 1
    assert (fragmentation(7, 9), fragmentation(3, 0)) == (0.2222, 0)
