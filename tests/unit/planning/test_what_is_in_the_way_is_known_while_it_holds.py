"""Who is in the way on a host is remembered until the host holds something else, or others may move."""

from __future__ import annotations

import pytest

from placement.engine.domain.inventories import Inventory
from placement.engine.forest.inventories import Draw
from placement.engine.search.budget import Budget
from placement.planning.board import Spot
from placement.planning.making_room import AtMost, EvictionPlanner, PlanLimits
from tests.naive import NaiveProvider
from tests.planning import NUMA, Cluster, Guest, Scene, dedicated, shared

FULL, FIRST, SECOND, OTHER, NODE, FLAT, EMPTY = (
    f"{at:08x}-0000-0000-0000-000000000000" for at in range(1, 8)
)
GUEST, WANDERER = (f"{at:08x}-1111-0000-0000-000000000000" for at in (1, 2))


def provider(uuid: str, parent: str | None = None, **amounts: int) -> NaiveProvider:
    inventories = {name: Inventory(total=amount, max_unit=amount) for name, amount in amounts.items()}
    return NaiveProvider(uuid, parent, inventories, {}, frozenset((NUMA,)) if parent else frozenset())


@pytest.fixture
def scene() -> Scene:
    """A guest has 2 of 3 cores of the first of two NUMA nodes, and may go to a host where 3 never fit."""
    providers = [
        provider(FULL),
        provider(FIRST, FULL, PCPU=3, MEMORY_MB=4),
        provider(SECOND, FULL, PCPU=3, MEMORY_MB=4),
        provider(OTHER),
        provider(NODE, OTHER, PCPU=2, MEMORY_MB=2),
        provider(FLAT, VCPU=1, MEMORY_MB=1),
        provider(EMPTY, VCPU=1, MEMORY_MB=1),
    ]
    guest = Guest(GUEST, dedicated(2, 1), frozenset({(FIRST, "PCPU", 2), (FIRST, "MEMORY_MB", 1)}))
    wanderer = Guest(WANDERER, shared(1, 1), frozenset({(FLAT, "VCPU", 1), (FLAT, "MEMORY_MB", 1)}))
    made = Scene(Cluster(providers, [guest, wanderer]), 3)
    made.ground.take([cores(made, SECOND, 2)])
    return made


def cores(scene: Scene, uuid: str, amount: int) -> Draw:
    return Draw(scene.ground.row_of_uuid(uuid), scene.world.classes["PCPU"], amount)


def test_no_more_is_promised_than_is_free_when_the_host_holds_something_else(scene: Scene):
    wish = scene.wish(dedicated(3, 2))
    assert list(scene.maker.requests(wish, 1)) == [1]
    # As much in all, but no more at once beside the guest's place.
    scene.ground.take([cores(scene, SECOND, -1)])
    scene.ground.take([cores(scene, FIRST, 1)])
    assert list(scene.maker.requests(wish, 1)) == []


def test_who_may_move_again_is_moved(scene: Scene):
    board, wish = scene.board, scene.wish(dedicated(3, 2))
    maker = EvictionPlanner(board, PlanLimits(3, at_most=[AtMost(1)]), Budget())
    (wanderer,) = board.on[scene.ground.row_of_uuid(FLAT)].values()
    there = scene.ground.row_of_uuid(EMPTY)
    mark = board.mark()
    board.leave(wanderer)
    board.arrive(wanderer, Spot(there, tuple(draw._replace(row=there) for draw in wanderer.spot.draws)))
    assert list(maker.requests(wish, 1)) == []
    board.back(mark)
    assert list(maker.requests(wish, 1)) == [1]
