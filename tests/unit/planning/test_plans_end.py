"""Plans end by themselves, or with their time; what hosts cannot hold in all is called impossible at once."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.search.budget import Budget, SearchEnded
from placement.planning.evictions import EvictionPlanner
from placement.planning.goal_results import IMPOSSIBLE, Bound
from placement.planning.goals import Goals
from placement.planning.limits import PlanLimits
from placement.planning.simulation import PlacedConsumer, Spot
from tests.naive import NaiveProvider
from tests.planning import Cluster, Guest, Scene, provider, shared, ways_to_place
from tests.planning import guest as consumer

ALLOWED = 10_000


def host(number: int, vcpu: int) -> NaiveProvider:
    return provider(number, VCPU=vcpu, MEMORY_MB=vcpu)


def only_on(hosts: list[NaiveProvider]) -> CandidateQuery:
    """One CPU of hosts, of which the search knows the first only."""
    return CandidateQuery((RequestGroup("", {"VCPU": 1}, in_tree=hosts[0].uuid),))


def guest(number: int, at: NaiveProvider, query: CandidateQuery) -> Guest:
    amounts = query.groups[0].resources.items()
    return consumer(number, query, frozenset((at.uuid, name, amount) for name, amount in amounts))


def goals_of(scene: Scene) -> Goals:
    return Goals(scene.simulation, scene.planner, ALLOWED)


def test_what_no_moves_can_do_is_impossible():
    hosts = [host(1, 2), host(2, 2)]
    scene = Scene(Cluster(hosts, [guest(at, each, shared(1, 1)) for at, each in enumerate(hosts)]), ALLOWED)
    goals = goals_of(scene)
    reached = goals.fit(scene.demand(shared(2, 2)), 2, lambda: False)
    # One fits after one move; for two there is no room.
    assert (reached.achieved, reached.complete, reached.bound.moves) == (1, True, 1)
    reached = goals.fit(scene.demand(shared(3, 3)), 1, lambda: False)
    assert (reached.achieved, reached.complete, reached.bound) == (0, True, Bound(0, IMPOSSIBLE))


def test_no_more_moves_are_tried_than_there_are_consumers():
    # Each host has one CPU left, and no consumer on it may be anywhere else.
    hosts = [host(1, 2), host(2, 2)]
    guests = [guest(at, each, only_on([each])) for at, each in enumerate(hosts)]
    scene = Scene(Cluster(hosts, guests), ALLOWED)
    tried = []
    ways = scene.planner.place
    scene.planner.place = lambda demand, spare: tried.append(spare) or ways(demand, spare)  # type: ignore[method-assign]
    reached = goals_of(scene).fit(scene.demand(shared(2, 2)), 1, lambda: False)
    assert reached.bound == Bound(0, IMPOSSIBLE)
    assert tried == [0, 1, 2]


def test_a_long_chain_does_not_exhaust_the_stack():
    # Each guest may be on its host or the next one, and only the last host has room.
    count = 400
    hosts = [host(at, 1) for at in range(count + 1)]
    places = [replace(each, aggregates=frozenset((f"p{at}", f"p{at - 1}"))) for at, each in enumerate(hosts)]
    chained = [
        CandidateQuery((RequestGroup("", {"VCPU": 1}, member_of=(frozenset((f"p{at}",)),)),))
        for at in range(count)
    ]
    scene = Scene(Cluster(places, [guest(at, hosts[at], chained[at]) for at in range(count)]), ALLOWED)
    reached = goals_of(scene).fit(scene.demand(only_on(hosts)), 1, lambda: False)
    assert (reached.achieved, reached.complete) == (0, False)


def test_time_is_looked_at_before_hosts_are():
    hosts = [host(at, 2) for at in range(3)]
    scene = Scene(Cluster(hosts, [guest(at, each, shared(1, 1)) for at, each in enumerate(hosts)]), ALLOWED)
    planner = EvictionPlanner(scene.simulation, PlanLimits(ALLOWED), Budget(0))
    with pytest.raises(SearchEnded):
        list(ways_to_place(planner, scene.demand(shared(2, 2)), 3))


@pytest.mark.parametrize("moves_itself", [False, True])
def test_consumers_are_where_they_were_when_the_time_ends_a_look_at_their_host(moves_itself: bool):
    hosts = [host(1, 2), host(2, 2)]
    guests = [guest(at, hosts[at // 2], shared(1, 1)) for at in range(4)]
    scene = Scene(Cluster(hosts, guests), ALLOWED)
    demand = scene.demand(shared(2, 2))
    before = {root: set(on_host) for root, on_host in scene.simulation.on.items()}
    free = [scene.forest.amounts(root) for root in scene.forest.roots.tolist()]

    def ended(*_: object) -> list[Spot]:
        raise SearchEnded(abandoned=False)

    demand.spots_on = ended  # type: ignore[method-assign]
    moving = next(iter(scene.simulation.on[scene.forest.roots.tolist()[0]].values()))
    planner = scene.planner
    ways = planner.move(replace(moving, demand=demand), 2) if moves_itself else planner.place(demand, 2)
    with pytest.raises(SearchEnded):
        list(ways)
    assert {root: set(on_host) for root, on_host in scene.simulation.on.items()} == before
    assert [scene.forest.amounts(root) for root in scene.forest.roots.tolist()] == free


def crowded(vcpu: int, each: int, *, is_searched: bool = True) -> Scene:
    """Three hosts with so many VCPUs, on each of which so many consumers hold one."""
    hosts = [host(number, vcpu) for number in (1, 2, 3)]
    scene = Scene(Cluster(hosts, [guest(at, hosts[at % 3], shared(1, 1)) for at in range(3 * each)]), ALLOWED)
    if not is_searched:
        scene.planner.move = lambda *_: pytest.fail("places were looked for")  # type: ignore[method-assign]
    return scene


@pytest.mark.parametrize(
    ("vcpu", "each", "more", "achieved", "why"),
    [
        (10, 8, 1, 0, ["24 ", "at least 3 hosts"]),  # two hosts offer 20
        (12, 6, 2, 1, ["at least 2 hosts"]),
    ],
)
def test_as_many_hosts_as_sums_allow_are_freed(vcpu, each, more, achieved, why):
    scene = crowded(vcpu, each, is_searched=achieved > 0)
    reached = goals_of(scene).free(more, scene.forest.roots.tolist())
    assert (reached.achieved, reached.complete) == (achieved, True)
    assert achieved or reached.bound == Bound(0, IMPOSSIBLE)
    assert all(words in reached.why for words in why)


def test_a_host_that_is_hard_to_leave_does_not_use_up_the_time():
    # The guest of the first host has to wait for that of the second, which goes nowhere; two others can go.
    hosts = [host(1, 1), host(2, 1), host(3, 4), host(4, 9)]
    pair = [replace(each, aggregates=frozenset({"pair"})) for each in hosts[:2]]
    of_pair = CandidateQuery((RequestGroup("", {"VCPU": 1}, member_of=(frozenset({"pair"}),)),))
    movable = [guest(at, hosts[2 if at < 4 else 3], shared(1, 1)) for at in range(2, 7)]
    guests = [guest(0, pair[0], of_pair), guest(1, pair[1], only_on([pair[1]])), *movable]
    scene = Scene(Cluster([*pair, *hosts[2:]], guests), ALLOWED)

    def evictions(_: object, spare: int, __: object) -> Iterator[tuple[list[PlacedConsumer], Spot]]:
        # To look for others that could leave takes longer than there is.
        if spare:
            raise SearchEnded(abandoned=False)
        return iter(())

    scene.planner._evictions = evictions  # type: ignore[method-assign,assignment]
    reached = goals_of(scene).free(1, scene.forest.roots.tolist())
    assert (reached.achieved, len(scene.simulation.relocations)) == (1, 2)
    assert reached.emptied == [scene.forest.row_of_uuid(hosts[2].uuid)]


def test_hosts_that_the_others_cannot_take_in_are_not_emptied():
    # 6 are to go, and the two others have 4 left. Those that found a place go all the same.
    scene = crowded(8, 6)
    reached = goals_of(scene).empty([scene.forest.row_of_uuid(host(1, 8).uuid)])
    assert (reached.achieved, reached.complete, reached.bound) == (0, True, Bound(0, IMPOSSIBLE))
    assert "left in all, 6 are needed" in reached.why
    assert (len(reached.left), len(scene.simulation.relocations)) == (2, 4)


@pytest.mark.parametrize(
    ("each", "size", "wanted", "achieved", "why"),
    [
        # No consumer is moved for a fourth one, as nothing is left of six.
        (6, 2, 4, 3, ["hosts have at most 6 ", "8 are needed"]),
        (8, 1, 1, 0, ["hosts have at most 0 "]),
    ],
)
def test_requests_that_take_more_than_is_left_do_not_fit(each, size, wanted, achieved, why):
    scene = crowded(8, each, is_searched=False)
    reached = goals_of(scene).fit(scene.demand(shared(size, size)), wanted, lambda: False)
    assert (reached.achieved, reached.complete) == (achieved, True)
    assert achieved or reached.bound == Bound(0, IMPOSSIBLE)
    assert all(words in reached.why for words in why)
