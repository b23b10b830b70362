"""Capacity is what claims one after another place at most: by trying all of them on random forests."""

from __future__ import annotations

import random
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.domain.groups import CandidateQuery
from placement.search.capacity.capacity import Capacity
from placement.search.capacity.totals import max_flow
from tests.forests import World
from tests.naive_capacity import TooLong, most_claims
from tests.strategies import Forest, Search, searches, split_searches


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
    # Hosts that are not told of take nothing, for all of them would take no less than those.
    assert everywhere.taking == sum(upper > 0 for _, upper in bounds.values())


@settings(max_examples=400)
@given(searches())
def test_of_any_request(given_search: Search) -> None:
    _check(*given_search)


@settings(max_examples=200)
@given(split_searches())
def test_of_requests_that_split_amounts(given_search: Search) -> None:
    _check(*given_search)


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
