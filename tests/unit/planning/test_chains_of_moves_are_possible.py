"""Moves that wait for one another are possible in their order; limits and places are heeded."""

import pytest

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.forest.inventories import Draw
from placement.engine.search.budget import Budget
from placement.planning.evictions import EvictionPlanner
from placement.planning.goals import Goals
from placement.planning.limits import AtMost, PlanLimits
from placement.planning.simulation import Spot
from tests.planning import NUMA, Cluster, Guest, Scene, dedicated, guest, provider, shared, ways_to_place

P, DISK, OTHER_DISK, Q, DISK_OF_Q = (provider(number).uuid for number in range(1, 6))
FAST = "CUSTOM_FAST"
MOST = 3


def holder(number: int, query: CandidateQuery, **held: tuple[str, int]) -> Guest:
    return guest(number, query, frozenset((uuid, name, amount) for name, (uuid, amount) in held.items()))


def memory(amount: int, host: str | None = None) -> RequestGroup:
    return RequestGroup("1", {"MEMORY_MB": amount}, in_tree=host)


def disk(*traits: str) -> RequestGroup:
    return RequestGroup("2", {"DISK_GB": 2}, tuple(frozenset((name,)) for name in traits))


def test_what_comes_back_takes_no_room_that_is_promised_before_it_is_there():
    # Room on P needs the first on Q, which needs the second on P, which needs the disk of the third. That one
    # finds another disk of P, but not memory beside the second: the first still is there then.
    providers = [
        provider(1, MEMORY_MB=6),
        provider(2, P, FAST, DISK_GB=2),
        provider(3, P, DISK_GB=2),
        provider(4, MEMORY_MB=4),
        provider(5, Q, FAST, DISK_GB=2),
    ]
    guests = [
        holder(1, CandidateQuery((memory(3),)), MEMORY_MB=(P, 3)),
        holder(2, CandidateQuery((memory(2), disk(FAST))), MEMORY_MB=(Q, 2), DISK_GB=(DISK_OF_Q, 2)),
        holder(3, CandidateQuery((memory(2), disk())), MEMORY_MB=(P, 2), DISK_GB=(DISK, 2)),
    ]
    scene = Scene(Cluster(providers, guests), MOST)
    demand = scene.demand(CandidateQuery((memory(2, P),)))
    reached = Goals(scene.simulation, scene.planner, MOST).fit(demand, 1, lambda: False)
    assert (reached.achieved, reached.complete) == (0, True)
    assert scene.simulation.relocations == []


def test_a_move_that_waits_for_others_counts_for_limits():
    hosts = [
        provider(1, None, "CUSTOM_A", VCPU=1),
        provider(4, None, "CUSTOM_A", "CUSTOM_B", VCPU=1),
        provider(2, None, "CUSTOM_B", VCPU=1),
    ]
    first, second = (
        CandidateQuery((RequestGroup("", {"VCPU": 1}, (frozenset((name,)),)),))
        for name in ("CUSTOM_A", "CUSTOM_B")
    )
    guests = [holder(1, first, VCPU=(P, 1)), holder(2, second, VCPU=(Q, 1))]
    asked = CandidateQuery((RequestGroup("", {"VCPU": 1}, in_tree=P),))
    for allowed in (1, 2):
        scene = Scene(Cluster(hosts, guests), MOST)
        limits = PlanLimits(MOST, at_most=[AtMost(allowed, project_id="p")])
        goals = Goals(scene.simulation, EvictionPlanner(scene.simulation, limits, Budget()), MOST)
        reached = goals.fit(scene.demand(asked), 1, lambda: False)
        # The one on P goes to Q once the other has left it.
        made = [] if allowed == 1 else [guests[1].uuid, guests[0].uuid]
        assert (reached.achieved, reached.complete) == (len(made) // 2, True)
        assert [each.consumer.uuid for each in scene.simulation.relocations] == made


FULL, FIRST, SECOND, OTHER, NODE, FLAT, EMPTY = (provider(number).uuid for number in range(1, 8))


@pytest.fixture
def scene() -> Scene:
    """A guest has 2 of 3 cores of the first of two NUMA nodes, and may go to a host where 3 never fit."""
    providers = [
        provider(1),
        provider(2, FULL, NUMA, PCPU=3, MEMORY_MB=4),
        provider(3, FULL, NUMA, PCPU=3, MEMORY_MB=4),
        provider(4),
        provider(5, OTHER, NUMA, PCPU=2, MEMORY_MB=2),
        provider(6, VCPU=1, MEMORY_MB=1),
        provider(7, VCPU=1, MEMORY_MB=1),
    ]
    settled = holder(1, dedicated(2, 1), PCPU=(FIRST, 2), MEMORY_MB=(FIRST, 1))
    wanderer = holder(2, shared(1, 1), VCPU=(FLAT, 1), MEMORY_MB=(FLAT, 1))
    made = Scene(Cluster(providers, [settled, wanderer]), 3)
    made.forest.take([cores(made, SECOND, 2)])
    return made


def cores(scene: Scene, uuid: str, amount: int) -> Draw:
    return Draw(scene.forest.row_of_uuid(uuid), scene.world.classes["PCPU"], amount)


def test_no_more_is_promised_than_is_free_when_the_host_holds_something_else(scene: Scene):
    demand = scene.demand(dedicated(3, 2))
    assert list(ways_to_place(scene.planner, demand, 1)) == [1]
    # As much in all, but no more at once beside the guest's place.
    scene.forest.take([cores(scene, SECOND, -1)])
    scene.forest.take([cores(scene, FIRST, 1)])
    assert list(ways_to_place(scene.planner, demand, 1)) == []


def test_who_may_move_again_is_moved(scene: Scene):
    simulation, demand = scene.simulation, scene.demand(dedicated(3, 2))
    planner = EvictionPlanner(simulation, PlanLimits(3, at_most=[AtMost(1)]), Budget())
    (wanderer,) = simulation.on[scene.forest.row_of_uuid(FLAT)].values()
    there = scene.forest.row_of_uuid(EMPTY)
    mark = simulation.mark()
    simulation.leave(wanderer)
    simulation.arrive(wanderer, Spot(there, tuple(draw._replace(row=there) for draw in wanderer.spot.draws)))
    assert list(ways_to_place(planner, demand, 1)) == []
    simulation.back(mark)
    assert list(ways_to_place(planner, demand, 1)) == [1]


SPLIT = CandidateQuery((RequestGroup("_a", {"VCPU": 4}, split=frozenset({"VCPU"})),))


@pytest.mark.parametrize(
    ("amounts", "admitted"), [((4, 0), True), ((2, 2), True), ((1, 1), False), ((5, 3), False)]
)
def test_other_parts_are_a_place_and_other_amounts_are_none(amounts: tuple[int, int], admitted: bool):
    parts = [provider(number, P, VCPU=8) for number in (2, 3)]
    scene = Scene(Cluster([provider(1), *parts], []), 3)
    rows = [scene.forest.row_of_uuid(part.uuid) for part in parts]
    class_id = scene.world.classes["VCPU"]
    draws = tuple(
        sorted(Draw(row, class_id, amount) for row, amount in zip(rows, amounts, strict=True) if amount)
    )
    assert (
        scene.demand(SPLIT).admits(scene.simulation, Spot(scene.forest.root_of(rows[0]), draws)) is admitted
    )
