"""Moves that wait for one another are possible in their order, and limits hold for all of them."""

from __future__ import annotations

from collections.abc import Mapping

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.domain.inventories import Inventory
from placement.engine.search.budget import Budget
from placement.planning.goals import Goals
from placement.planning.making_room import AtMost, EvictionPlanner, PlanLimits
from tests.naive import NaiveProvider
from tests.planning import Cluster, Guest, Scene

P, DISK, OTHER_DISK, Q, DISK_OF_Q = (f"{number:08x}-0000-0000-0000-000000000000" for number in range(1, 6))
FAST = "CUSTOM_FAST"
MOST = 3


def provider(uuid: str, parent: str | None, *traits: str, **amounts: int) -> NaiveProvider:
    inventories = {name: Inventory(total=amount, max_unit=amount) for name, amount in amounts.items()}
    return NaiveProvider(uuid, parent, inventories, {}, frozenset(traits))


def guest(number: int, query: CandidateQuery, held: Mapping[str, tuple[str, int]]) -> Guest:
    amounts = frozenset((uuid, name, amount) for name, (uuid, amount) in held.items())
    return Guest(f"{number:08x}-1111-0000-0000-000000000000", query, amounts)


def memory(amount: int, host: str | None = None) -> RequestGroup:
    return RequestGroup("1", {"MEMORY_MB": amount}, in_tree=host)


def disk(*traits: str) -> RequestGroup:
    return RequestGroup("2", {"DISK_GB": 2}, tuple(frozenset((name,)) for name in traits))


def test_what_comes_back_takes_no_room_that_is_promised_before_it_is_there():
    # Room on P needs the first on Q, which needs the second on P, which needs the disk of the third. That one
    # finds another disk of P, but not memory beside the second: the first still is there then.
    providers = [
        provider(P, None, MEMORY_MB=6),
        provider(DISK, P, FAST, DISK_GB=2),
        provider(OTHER_DISK, P, DISK_GB=2),
        provider(Q, None, MEMORY_MB=4),
        provider(DISK_OF_Q, Q, FAST, DISK_GB=2),
    ]
    guests = [
        guest(1, CandidateQuery((memory(3),)), {"MEMORY_MB": (P, 3)}),
        guest(2, CandidateQuery((memory(2), disk(FAST))), {"MEMORY_MB": (Q, 2), "DISK_GB": (DISK_OF_Q, 2)}),
        guest(3, CandidateQuery((memory(2), disk())), {"MEMORY_MB": (P, 2), "DISK_GB": (DISK, 2)}),
    ]
    scene = Scene(Cluster(providers, guests), MOST)
    wish = scene.wish(CandidateQuery((memory(2, P),)))
    reached = Goals(scene.board, scene.maker, MOST).fit(wish, 1, lambda: False)
    assert (reached.achieved, reached.complete) == (0, True)
    assert scene.board.moved == []


def test_a_move_that_waits_for_others_counts_for_limits():
    hosts = [
        provider(P, None, "CUSTOM_A", VCPU=1),
        provider(Q, None, "CUSTOM_A", "CUSTOM_B", VCPU=1),
        provider(DISK, None, "CUSTOM_B", VCPU=1),
    ]
    first, second = (
        CandidateQuery((RequestGroup("", {"VCPU": 1}, (frozenset((name,)),)),))
        for name in ("CUSTOM_A", "CUSTOM_B")
    )
    guests = [guest(1, first, {"VCPU": (P, 1)}), guest(2, second, {"VCPU": (Q, 1)})]
    asked = CandidateQuery((RequestGroup("", {"VCPU": 1}, in_tree=P),))
    for allowed in (1, 2):
        scene = Scene(Cluster(hosts, guests), MOST)
        limits = PlanLimits(MOST, at_most=[AtMost(allowed, project_id="p")])
        goals = Goals(scene.board, EvictionPlanner(scene.board, limits, Budget()), MOST)
        reached = goals.fit(scene.wish(asked), 1, lambda: False)
        # The one on P goes to Q once the other has left it.
        made = [] if allowed == 1 else [guests[1].uuid, guests[0].uuid]
        assert (reached.achieved, reached.complete) == (len(made) // 2, True)
        assert [each.consumer.uuid for each in scene.board.moved] == made
