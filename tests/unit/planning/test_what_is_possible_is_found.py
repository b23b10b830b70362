"""Plans reach what so few moves can, in small clusters, and never call impossible what is not."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import pytest

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.planning.defragmentation import Defragmentation
from placement.planning.demands import QueryPlanDemand
from placement.planning.goal_results import GoalResult
from placement.planning.goals import Goals
from tests.naive import SHARING_TRAIT, NaiveProvider, enumerate_candidates
from tests.planning import (
    NUMA,
    Cluster,
    Scene,
    dedicated,
    filled_up,
    key_of,
    provider,
    random_cluster,
    replayed,
    shared,
    ways_to_place,
)

MOST = 3
CASES = 480
# So many of a thousand that are possible are found at least.
pytestmark = pytest.mark.thorough
FOUND = 995

Way = tuple[tuple[tuple[str, str], int], ...]
State = tuple[Way, ...]


def with_trait(vcpu: int, trait: str) -> CandidateQuery:
    return CandidateQuery((RequestGroup("", {"VCPU": vcpu}, (frozenset((trait,)),)),))


PLAIN = (shared(1, 1), shared(2, 2), shared(1, 3), with_trait(1, "T"), with_trait(2, "T"), with_trait(1, "U"))
NODES = (dedicated(1, 1), dedicated(2, 2), dedicated(3, 2), dedicated(1, 3))


def cluster_of(chance: random.Random) -> tuple[Cluster, Sequence[CandidateQuery]]:
    """Two to four hosts, flat ones with traits or such with two NUMA nodes, and up to six consumers."""
    numbers, providers = count(1), []

    def add(parent: str | None, *traits: str, **amounts: int) -> NaiveProvider:
        providers.append(provider(next(numbers), parent, *traits, **amounts))
        return providers[-1]

    flat = chance.random() < 0.7
    for _ in range(chance.randint(2, 4 if flat else 3)):
        if flat:
            traits = [name for name in "TU" if chance.random() < 0.5]
            add(None, *traits, VCPU=chance.randint(1, 5), MEMORY_MB=chance.randint(2, 6))
            continue
        root = add(None)
        for _ in range(2):
            add(root.uuid, NUMA, PCPU=chance.randint(1, 4), MEMORY_MB=chance.randint(2, 5))
    kinds = PLAIN if flat else NODES
    queries = (chance.choice(kinds) for _ in range(chance.randint(1, 6)))
    return filled_up(chance, providers, queries), kinds


class Walk:
    """All states that so few moves lead to, by trying them."""

    def __init__(self, cluster: Cluster, asked: CandidateQuery) -> None:
        self._room = {
            (each.uuid, name): inventory.capacity
            for each in cluster.providers
            for name, inventory in each.inventories.items()
        }
        parents = {each.uuid: each.parent for each in cluster.providers}
        self.host_of = {uuid: parent or uuid for uuid, parent in parents.items()}
        self.hosts = [each.uuid for each in cluster.providers if each.parent is None]
        self.asked = self._ways(cluster, asked)
        known = {key_of(guest.query): self._ways(cluster, guest.query) for guest in cluster.guests}
        self._of = [known[key_of(guest.query)] for guest in cluster.guests]
        self.start: State = tuple(
            tuple(((provider, name), amount) for provider, name, amount in sorted(guest.held))
            for guest in cluster.guests
        )

    @staticmethod
    def _ways(cluster: Cluster, query: CandidateQuery) -> list[Way]:
        found = {each.allocations for each in enumerate_candidates(cluster.providers, query)}
        return [tuple(((p, name), amount) for p, name, amount in sorted(way)) for way in found]

    def left(self, state: State) -> dict[tuple[str, str], int]:
        """What is free in a state."""
        left = dict(self._room)
        for way in state:
            for place, amount in way:
                left[place] -= amount
        return left

    def states(self) -> Iterator[tuple[int, State]]:
        """Each state, and how few moves lead to it."""
        reached, seen = [self.start], {self.start}
        yield 0, self.start
        for moves in range(1, MOST + 1):
            following = []
            for state in reached:
                left = self.left(state)
                for at, ways in enumerate(self._of):
                    own = dict(state[at])
                    for way in ways:
                        if all(left[place] + own.get(place, 0) >= amount for place, amount in way):
                            after = (*state[:at], way, *state[at + 1 :])
                            if after not in seen:
                                seen.add(after)
                                following.append(after)
                                yield moves, after
            reached = following

    def occupied(self, state: State) -> set[str]:
        """The hosts that anybody is on."""
        return {self.host_of[place[0]] for way in state for place, _ in way}

    def has_room(self, left: dict[tuple[str, str], int], wanted: int, ways: Sequence[Way]) -> bool:
        """Whether so many more requests fit side by side."""
        if not wanted:
            return True
        for at, way in enumerate(ways):
            if all(left[place] >= amount for place, amount in way):
                less = dict(left)
                for place, amount in way:
                    less[place] -= amount
                if self.has_room(less, wanted - 1, ways[at:]):
                    return True
        return False


@dataclass(frozen=True)
class Aim:
    """A goal, and whether a state is one where it is reached."""

    name: str
    run: Callable[[Scene, Goals], GoalResult]
    is_met: Callable[[State], bool]


def aims(chance: random.Random, walk: Walk, asked: CandidateQuery) -> list[Aim]:
    """Several requests that fit, one or two hosts left empty, and one or two more that are empty."""
    wanted, more = chance.randint(1, 3), chance.randint(1, 2)
    hosts = chance.sample(walk.hosts, chance.randint(1, min(2, len(walk.hosts) - 1)))
    before = len(walk.occupied(walk.start))

    def fit(scene: Scene, goals: Goals) -> GoalResult:
        return goals.fit(scene.demand(asked), wanted, lambda: True)

    return [
        Aim("fit", fit, lambda state: walk.has_room(walk.left(state), wanted, walk.asked)),
        Aim(
            "empty",
            lambda scene, goals: goals.empty([scene.forest.row_of_uuid(host) for host in hosts]),
            lambda state: not walk.occupied(state) & {*hosts},
        ),
        Aim(
            "free",
            lambda scene, goals: goals.free(more, scene.forest.roots.tolist()),
            lambda state: len(walk.occupied(state)) + more <= before,
        ),
    ]


@pytest.fixture(scope="module")
def outcomes() -> list[tuple[int, str, bool, GoalResult]]:
    """Seed, goal, whether trying everything reaches it, and what the plan says."""
    found = []
    for seed in range(CASES):
        chance = random.Random(seed)
        cluster, kinds = cluster_of(chance)
        asked = chance.choice(kinds)
        walk = Walk(cluster, asked)
        goals = aims(chance, walk, asked)
        open_ = {aim.name: aim for aim in goals}
        for _, state in walk.states():
            open_ = {name: aim for name, aim in open_.items() if not aim.is_met(state)}
            if not open_:
                break
        for aim in goals:
            scene = Scene(cluster, MOST)
            reached = aim.run(scene, Goals(scene.simulation, scene.planner, MOST))
            moves = list(scene.moves())
            assert len(moves) <= MOST
            guests = replayed(cluster, moves)
            if reached.achieved >= reached.wanted:
                held = tuple(
                    tuple(((p, name), amount) for p, name, amount in sorted(guest.held)) for guest in guests
                )
                assert aim.is_met(held), (seed, aim.name)
            found.append((seed, aim.name, aim.name not in open_, reached))
    return found


def test_what_is_possible_is_found_and_never_called_impossible(outcomes):
    possible = [(seed, name, reached) for seed, name, exists, reached in outcomes if exists]
    missed = [(seed, name, of) for seed, name, of in possible if of.achieved < of.wanted]
    assert len(possible) > CASES
    assert 1000 * (len(possible) - len(missed)) >= FOUND * len(possible), missed
    assert [(seed, name) for seed, name, reached in missed if reached.complete] == []


def test_what_is_out_of_reach_is_told_so_with_the_reason(outcomes):
    beyond = [reached for _, _, exists, reached in outcomes if not exists]
    assert len(beyond) > CASES // 4
    assert all(reached.achieved < reached.wanted and reached.why for reached in beyond)
    assert sum(reached.complete for reached in beyond) > 0.99 * len(beyond)


@pytest.mark.parametrize("seed", range(150))
def test_with_as_few_moves_as_trying_all_of_them(seed):
    chance = random.Random(seed)
    cluster = random_cluster(chance)
    wanted = chance.choice([dedicated(4, 2), dedicated(3, 4), dedicated(2, 3), shared(2, 5), shared(4, 4)])
    walk = Walk(cluster, wanted)
    enough = (moves for moves, state in walk.states() if walk.has_room(walk.left(state), 1, walk.asked))
    expected = next(enough, None)
    scene = Scene(cluster, MOST)
    demand = scene.demand(wanted)
    bound = scene.planner.bound(demand)
    found = next(
        (k for k in range(MOST + 1) if next(ways_to_place(scene.planner, demand, k), None) is not None), None
    )
    assert found == expected
    if found is None:
        return
    assert found == 0 or bound <= found
    checked = Scene(cluster, MOST).simulation
    for each in scene.simulation.relocations:
        consumer = checked.on[each.consumer.root][each.consumer.uuid]
        checked.leave(consumer)
        assert isinstance(consumer.demand, QueryPlanDemand)
        assert consumer.demand.admits(checked, each.spot)
        checked.arrive(consumer, each.spot)
    moves = list(scene.moves())
    assert len(moves) == found
    guests = replayed(cluster, moves)
    (placed,) = scene.simulation.placed_spots
    after = enumerate_candidates(cluster.filled(guests), wanted)
    assert scene.held(placed) in {each.allocations for each in after}


DEFRAGMENTED, MOST_OF_THESE = 100, 10
POOLS = ("pool 1", "pool 2")


def asked(chance: random.Random) -> CandidateQuery:
    most = {"VCPU": 2, "MEMORY_MB": 3, "DISK_GB": 2}
    return CandidateQuery((RequestGroup("", {name: chance.randint(1, at) for name, at in most.items()}),))


def sharing_cluster(chance: random.Random) -> Cluster:
    """Hosts without disk, each in some pools, and a sharing provider for each of these."""
    providers = [
        provider(
            number,
            pools=frozenset(pool for pool in POOLS if chance.random() < 0.7),
            VCPU=chance.randint(2, 8),
            MEMORY_MB=chance.randint(2, 9),
        )
        for number in range(1, chance.randint(3, 6))
    ]
    for number, pool in enumerate(POOLS, start=10):
        disk = chance.randint(1, 8)
        providers.append(provider(number, None, SHARING_TRAIT, pools=frozenset({pool}), DISK_GB=disk))
    return filled_up(chance, providers, (asked(chance) for _ in range(chance.randint(2, 8))))


def test_the_rest_is_what_counting_finds_after_the_moves():
    moved = 0
    for seed in range(DEFRAGMENTED):
        chance = random.Random(seed)
        scene = Scene(sharing_cluster(chance), MOST_OF_THESE)
        demand = scene.demand(asked(chance))
        forest, class_id = scene.forest, scene.world.classes["VCPU"]
        hosts = [root for root in forest.roots.tolist() if root not in forest.sharing_roots]
        reached = Defragmentation(scene.simulation, scene.planner, demand, class_id, hosts).run(MOST_OF_THESE)
        stranded = forest.stranded(demand.queries, class_id)
        assert reached.wanted - reached.achieved == sum(stranded.get(root, 0) for root in hosts), seed
        moved += bool(scene.simulation.relocations)
    assert moved > DEFRAGMENTED // 20
