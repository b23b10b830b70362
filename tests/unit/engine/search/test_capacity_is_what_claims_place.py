"""Capacity is what claims one after another place at most: by trying all of them on random forests."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.domain.inventories import Inventory
from placement.engine.forest.simulation import SimulatedForest
from placement.engine.search.answer import Answer
from placement.engine.search.capacity.capacity import Capacity
from placement.engine.search.capacity.totals import max_flow
from placement.engine.search.search import search
from tests.forests import World
from tests.naive import NaiveProvider
from tests.naive_capacity import TooLong, most_claims
from tests.strategies import Forest, Search, searches, split_searches

# Claims are made one by one up to so many.
_CLAIMS = 60
# VCPU and MEMORY_MB of each group.
_UNEQUAL = [(7, 3), (3, 11), (13, 5), (5, 17)]


def _check(providers: Forest, query: CandidateQuery) -> None:
    """Each host alone and all together, where trying does not take too long."""
    world = World(providers)
    world.load()
    capacity = Capacity(world.forest, world.sharing, world.query(query))
    bounds = {host.uuid: (host.lower, host.upper) for host in capacity.hosts()}
    everywhere = capacity.everywhere
    for root, (lower, upper) in [*bounds.items(), (None, (everywhere.lower, everywhere.upper))]:
        try:
            assert lower <= most_claims(providers, query, root) <= upper
        except TooLong:
            continue
    most = min(everywhere.upper, _CLAIMS)
    assert min(everywhere.lower, most) >= _claims_in_order(world, query, most)
    # Hosts that are not told of take nothing, for all of them would take no less than those.
    assert everywhere.taking == sum(upper > 0 for _, upper in bounds.values())


def _claims_in_order(world: World, query: CandidateQuery, most: int) -> int:
    """How many claims of the first candidate succeed one after another, at most so many."""
    forest = SimulatedForest(world.forest.snapshot())
    for count in range(most):
        answer = Answer(forest, search(forest, world.sharing, world.query(query, maximum=1)))
        if not len(answer):
            return count
        forest.take(answer.draws(0))
    return most


@settings(max_examples=150)
@given(searches())
def test_of_any_request(given_search: Search) -> None:
    _check(*given_search)


@settings(max_examples=80)
@given(split_searches())
def test_of_requests_that_split_amounts(given_search: Search) -> None:
    _check(*given_search)


@pytest.mark.parametrize("seed", range(4))
def test_no_fewer_are_certain_than_claims_one_by_one_reach(seed: int) -> None:
    """Four unequal groups on 14 unequal devices: 24,024 ways to choose the devices of one host."""
    chance = random.Random(seed)
    hosts = [[(chance.randint(20, 90), chance.randint(20, 90)) for _ in range(14)] for _ in range(3)]
    providers = []
    for number, devices in enumerate(hosts):
        root = f"{number:08x}-0000-4000-8000-000000000000"
        providers.append(NaiveProvider(root, None, {"DISK_GB": Inventory(total=1000)}))
        for at, (cpus, memory) in enumerate(devices, start=1):
            offers = {"VCPU": Inventory(total=cpus), "MEMORY_MB": Inventory(total=memory)}
            providers.append(NaiveProvider(f"{root[:-2]}{at:02x}", root, offers))
    groups = tuple(
        RequestGroup(f"_{number}", {"VCPU": cpus, "MEMORY_MB": memory})
        for number, (cpus, memory) in enumerate(_UNEQUAL)
    )
    world = World(providers)
    world.load()
    query = CandidateQuery(groups, isolate=True)
    counted = Capacity(world.forest, world.sharing, world.query(query))
    reached = _claims_in_order(world, query, counted.everywhere.upper)
    # Counting alone is certain of a fifth of these.
    assert 30 < reached <= counted.everywhere.lower <= counted.everywhere.upper
    assert counted.everywhere.lower == sum(host.lower for host in counted.hosts())


def test_most_answers_are_exact() -> None:
    """The bounds of random requests differ in few cases: else wide bounds would pass the tests above."""
    exact = rough = 0

    @settings(max_examples=300, derandomize=True, database=None)
    @given(searches())
    def count(given_search: Search) -> None:
        nonlocal exact, rough
        world = World(given_search[0])
        world.load()
        capacity = Capacity(world.forest, world.sharing, world.query(given_search[1]))
        exact += capacity.everywhere.lower == capacity.everywhere.upper
        rough += capacity.everywhere.lower != capacity.everywhere.upper

    count()
    assert exact > 9 * rough


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_sharing_is_worth_as_much_as_the_smallest_cut(seed: int) -> None:
    """The max-flow min-cut theorem of Ford and Fulkerson, by trying all cuts."""
    chance = random.Random(seed)
    supply = [chance.randint(0, 6) for _ in range(chance.randint(1, 4))]
    takers = range(chance.randint(1, 5))
    givers = [frozenset(at for at in range(len(supply)) if chance.random() < 0.6) for _ in takers]
    wanted = [chance.randint(0, 6) for _ in takers]
    cuts = (
        sum(amount for amount, cut in zip(supply, chosen, strict=True) if cut)
        + sum(
            amount
            for amount, each in zip(wanted, givers, strict=True)
            if any(not chosen[giver] for giver in each)
        )
        for chosen in product((False, True), repeat=len(supply))
    )
    assert max_flow(supply, givers, wanted) == min(cuts)
