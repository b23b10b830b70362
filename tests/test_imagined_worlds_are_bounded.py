"""A world holds no more than some times what there is, is made within the time, and one at a time."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from placement.allocations.world import WorldRequest, imagining, most_imagined
from placement.engine.domain import request_scope
from placement.engine.domain.inventories import Inventory
from placement.engine.forest.simulation import SimulatedForest
from placement.engine.search.budget import SearchEnded
from placement.planning import capacity
from tests import forests
from tests.client import Client, detail
from tests.naive import NaiveProvider

pytestmark = pytest.mark.one_database

KIND = {"query": {"groups": {"": {"resources": {"VCPU": 1}}}}}


def asked(api: Client, *more: dict[str, Any]) -> Any:
    return api.post("/ext/v1/capacity", {"kinds": {"it": KIND}, "world": {"more": list(more)}})


@pytest.mark.parametrize(
    ("providers", "most"), [(3, 1_000), (683, 2_732), (25_000, 100_000), (400_000, 100_000)]
)
def test_so_many_providers_are_imagined_beside_those_there_are(providers, most):
    assert most_imagined(range(providers)) == most


def test_what_is_too_much_is_refused_at_its_field(api):
    api.provider("a", VCPU=1)
    assert asked(api, {"like": "a", "count": 1000}).status_code == 200
    answer = asked(api, {"like": "a", "count": 600}, {"like": "a", "count": 401})
    assert answer.status_code == 400
    assert "world.more[1].count: makes 1001 providers, at most 1000 are allowed here" in detail(answer)


def test_no_more_is_made_once_the_time_is_up_or_the_caller_has_left():
    uuid = "00000001-0000-0000-0000-000000000000"
    made = forests.World([NaiveProvider(uuid, None, {"VCPU": Inventory(total=1)}, {}, frozenset())])
    made.load()
    looks = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise SearchEnded(abandoned=True)

    kept = made.forest.snapshot()
    root = int(kept.roots[0])
    with pytest.raises(SearchEnded):
        SimulatedForest(kept).repeat(root, 100_000, look)
    assert len(looks) == 3
    looks[:] = [1] * 3
    forest = SimulatedForest(kept)
    assert len(forest.repeat(root, 100_000, look)) == 100_000
    assert (kept.count, forest.count) == (1, 100_001)
    # Between two looks no more than some thousand rows are made.
    assert len(looks) >= 100_000 // 4096


def test_one_world_is_looked_at_at_a_time(api):
    api.provider("a", VCPU=1)
    inside, over = threading.Event(), threading.Event()

    def look() -> None:
        with imagining(WorldRequest(without=("a",))):
            inside.set()
            over.wait()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        inside.wait()
        answer = asked(api, {"like": "a", "count": 1})
        assert (answer.status_code, "world: other imagined changes are being computed" in detail(answer)) == (
            503,
            True,
        )
        assert answer.headers["Retry-After"]
        # As everything is may be asked meanwhile.
        assert api.post("/ext/v1/capacity", {"kinds": {"it": KIND}}).status_code == 200
    finally:
        over.set()
        thread.join()
    assert asked(api, {"like": "a", "count": 1}).status_code == 200


def test_a_world_that_only_waited_is_not_blamed_on_the_search(api: Client, monkeypatch: pytest.MonkeyPatch):
    api.provider("a", VCPU=8)

    def late(world: WorldRequest) -> Any:
        request_scope.set_deadline(time.monotonic())
        return imagining(world)

    monkeypatch.setattr(capacity, "imagining", late)
    answer = asked(api, {"like": "a", "count": 1})
    assert answer.status_code == 503
    assert "The time of the request was up ([api] request_timeout) before imagining the hosts" in detail(
        answer
    )
