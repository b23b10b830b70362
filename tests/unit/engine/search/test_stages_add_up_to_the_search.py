"""What the stages of a search took is what the search took, and nothing that went before."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.domain.inventories import Inventory
from placement.engine.search.budget import Budget
from placement.engine.search.search import search
from tests.forests import World
from tests.naive import NaiveProvider


def test_stages_begin_with_the_search(monkeypatch: pytest.MonkeyPatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    host = NaiveProvider("00000001-0000-4000-8000-000000000000", None, {"VCPU": Inventory(total=4)})
    world = World([host])
    world.load()
    query = CandidateQuery((RequestGroup("", {"VCPU": 1}),))
    wanted = replace(world.query(query), budget=Budget())
    # As long as the search of other trees may take before this one.
    now = 7.0
    assert len(search(world.forest, world.sharing, wanted).candidates) == 1
    assert wanted.budget.stage_seconds == {"filter": 0.0, "combine": 0.0}
