"""Plans end by themselves, or with their time, however many moves are allowed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.domain.inventories import Inventory
from placement.engine.search.budget import Budget, SearchEnded
from placement.planning.goals import IMPOSSIBLE, Bound, Goals
from placement.planning.making_room import EvictionPlanner, PlanLimits
from tests.naive import NaiveProvider
from tests.planning import Cluster, Guest, Scene, shared

ALLOWED = 10_000


def host(number: int, vcpu: int) -> NaiveProvider:
    inventories = {name: Inventory(total=vcpu, max_unit=vcpu) for name in ("VCPU", "MEMORY_MB")}
    return NaiveProvider(f"{number:08x}-0000-0000-0000-000000000000", None, inventories, {}, frozenset())


def only_on(hosts: list[NaiveProvider]) -> CandidateQuery:
    """One CPU of hosts, of which the search knows the first only."""
    return CandidateQuery((RequestGroup("", {"VCPU": 1}, in_tree=hosts[0].uuid),))


def guest(number: int, at: NaiveProvider, query: CandidateQuery) -> Guest:
    held = frozenset((at.uuid, name, amount) for name, amount in query.groups[0].resources.items())
    return Guest(f"{number:08x}-1111-0000-0000-000000000000", query, held)


def test_what_no_moves_can_do_is_impossible():
    hosts = [host(1, 2), host(2, 2)]
    scene = Scene(Cluster(hosts, [guest(at, each, shared(1, 1)) for at, each in enumerate(hosts)]), ALLOWED)
    goals = Goals(scene.board, scene.maker, ALLOWED)
    reached = goals.fit(scene.wish(shared(2, 2)), 2, lambda: False)
    # One fits after one move; for two there is no room.
    assert (reached.achieved, reached.complete, reached.bound.moves) == (1, True, 1)
    reached = goals.fit(scene.wish(shared(3, 3)), 1, lambda: False)
    assert (reached.achieved, reached.complete, reached.bound) == (0, True, Bound(0, IMPOSSIBLE))


def test_no_more_moves_are_tried_than_there_are_consumers():
    # Each host has one CPU left, and no consumer on it may be anywhere else.
    hosts = [host(1, 2), host(2, 2)]
    guests = [guest(at, each, only_on([each])) for at, each in enumerate(hosts)]
    scene = Scene(Cluster(hosts, guests), ALLOWED)
    tried = []
    ways = scene.maker.requests
    scene.maker.requests = lambda wish, spare: tried.append(spare) or ways(wish, spare)  # type: ignore[method-assign]
    reached = Goals(scene.board, scene.maker, ALLOWED).fit(scene.wish(shared(2, 2)), 1, lambda: False)
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
    reached = Goals(scene.board, scene.maker, ALLOWED).fit(scene.wish(only_on(hosts)), 1, lambda: False)
    assert (reached.achieved, reached.complete) == (0, False)


def test_time_is_looked_at_before_hosts_are():
    hosts = [host(at, 2) for at in range(3)]
    scene = Scene(Cluster(hosts, [guest(at, each, shared(1, 1)) for at, each in enumerate(hosts)]), ALLOWED)
    maker = EvictionPlanner(scene.board, PlanLimits(ALLOWED), Budget(0))
    with pytest.raises(SearchEnded):
        list(maker.requests(scene.wish(shared(2, 2)), 3))
