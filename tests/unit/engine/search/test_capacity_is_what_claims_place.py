"""Capacity is what claims one after another place at most: by trying all of them on random forests."""

import random
from contextlib import suppress
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
from tests.forests import World, loaded
from tests.naive import NaiveProvider
from tests.naive_capacity import TooLong, most_claims
from tests.strategies import Search, searches, split_searches

# Claims are made one by one up to so many.
_CLAIMS = 60
# VCPU and MEMORY_MB of each group.
_UNEQUAL = [(7, 3), (3, 11), (13, 5), (5, 17)]


def _claims_in_order(world: World, query: CandidateQuery, most: int) -> int:
    """How many claims of the first candidate succeed one after another, at most so many."""
    forest = SimulatedForest(world.forest.snapshot())
    for count in range(most):
        answer = Answer(forest, search(forest, world.sharing, world.query(query, maximum=1)))
        if not len(answer):
            return count
        forest.take(answer.draws(0))
    return most


@settings(max_examples=230)
@given(searches() | split_searches())
def test_each_host_alone_and_all_together_have_what_claims_place(given_search: Search) -> None:
    """Where trying does not take too long."""
    providers, query = given_search
    world = loaded(providers)
    capacity = Capacity(world.forest, world.sharing, world.query(query))
    bounds = {host.uuid: (host.lower, host.upper) for host in capacity.hosts()}
    everywhere = capacity.everywhere
    for root, (lower, upper) in [*bounds.items(), (None, (everywhere.lower, everywhere.upper))]:
        with suppress(TooLong):
            assert lower <= most_claims(providers, query, root) <= upper
    most = min(everywhere.upper, _CLAIMS)
    assert min(everywhere.lower, most) >= _claims_in_order(world, query, most)
    # Hosts that are not told of take nothing, for all of them would take no less.
    assert everywhere.taking == sum(upper > 0 for _, upper in bounds.values())


@pytest.mark.parametrize("seed", range(4))
def test_no_fewer_are_certain_than_claims_one_by_one_reach(seed: int) -> None:
    """Four unequal groups on 14 unequal devices: 24,024 ways to choose the devices of one host."""
    chance = random.Random(seed)
    providers = []
    for number in range(3):
        root = f"{number:08x}-0000-4000-8000-000000000000"
        providers.append(NaiveProvider(root, None, {"DISK_GB": Inventory(total=1000)}))
        for at in range(1, 15):
            offers = {name: Inventory(total=chance.randint(20, 90)) for name in ("VCPU", "MEMORY_MB")}
            providers.append(NaiveProvider(f"{root[:-2]}{at:02x}", root, offers))
    groups = tuple(
        RequestGroup(f"_{number}", {"VCPU": cpus, "MEMORY_MB": memory})
        for number, (cpus, memory) in enumerate(_UNEQUAL)
    )
    world = loaded(providers)
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
        world = loaded(given_search[0])
        everywhere = Capacity(world.forest, world.sharing, world.query(given_search[1])).everywhere
        exact += everywhere.lower == everywhere.upper
        rough += everywhere.lower != everywhere.upper

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
    cuts = []
    for chosen in product((False, True), repeat=len(supply)):
        cut = sum(amount for amount, is_cut in zip(supply, chosen, strict=True) if is_cut)
        left = (
            amount for amount, own in zip(wanted, givers, strict=True) if any(not chosen[of] for of in own)
        )
        cuts.append(cut + sum(left))
    assert max_flow(supply, givers, wanted) == min(cuts)
