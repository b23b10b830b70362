"""Which providers have room is the same as flags and as rows, in whatever order they came and went."""

from __future__ import annotations

import numpy as np
import pytest

from placement.engine.forest.inventories import InventoryColumn
from placement.engine.forest.providers import InventoryRow

PROVIDERS = 6
FREE = {0: 4, 1: 9, 2: 8, 3: 0, 5: 8}


def _offer(free: int) -> InventoryRow:
    return InventoryRow(
        class_id=0,
        capacity=10,
        min_unit=1,
        max_unit=10,
        step_size=1,
        used=10 - free,
        total=10,
        reserved=0,
        ratio_millionths=10**6,
    )


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 3, 4, 0, 2, 1]], ids=["in order", "in any order"])
def test_flags_are_set_where_rows_fit(order: list[int]) -> None:
    column = InventoryColumn()
    for provider in order:
        column.put(provider, _offer(FREE.get(provider, 10)))
    column.drop(4)
    for amount, wanted in ((1, [0, 1, 2, 5]), (8, [1, 2, 5]), (10, [])):
        assert sorted(column.fitting(amount).tolist()) == wanted
        assert np.flatnonzero(column.fitting_flags(amount, PROVIDERS)).tolist() == wanted


def test_providers_that_the_class_does_not_reach_have_no_room() -> None:
    column = InventoryColumn()
    column.put(0, _offer(5))
    assert column.fitting_flags(5, 3).tolist() == [True, False, False]
