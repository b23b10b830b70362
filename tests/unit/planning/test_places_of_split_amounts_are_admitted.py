"""Whoever holds what it asked for, split over providers in another way than a search tells, may stay so."""

from __future__ import annotations

import pytest

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.domain.inventories import Inventory
from placement.engine.forest.inventories import Draw
from placement.planning.board import Spot
from tests.naive import NaiveProvider
from tests.planning import Cluster, Scene

HOST, *PARTS = (f"{number:08x}-0000-0000-0000-000000000000" for number in (1, 2, 3))
SPLIT = CandidateQuery((RequestGroup("_a", {"VCPU": 4}, split=frozenset({"VCPU"})),))


@pytest.mark.parametrize(
    ("amounts", "admitted"), [((4, 0), True), ((2, 2), True), ((1, 1), False), ((5, 3), False)]
)
def test_other_parts_are_a_place_and_other_amounts_are_none(amounts: tuple[int, int], admitted: bool):
    offered = {"VCPU": Inventory(total=8, max_unit=8)}
    parts = [NaiveProvider(uuid, HOST, offered, {}, frozenset()) for uuid in PARTS]
    scene = Scene(Cluster([NaiveProvider(HOST, None, {}, {}, frozenset()), *parts], []), 3)
    rows = [scene.ground.row_of_uuid(uuid) for uuid in PARTS]
    class_id = scene.world.classes["VCPU"]
    draws = tuple(
        sorted(Draw(row, class_id, amount) for row, amount in zip(rows, amounts, strict=True) if amount)
    )
    assert scene.wish(SPLIT).admits(scene.board, Spot(scene.ground.root_of(rows[0]), draws)) is admitted
