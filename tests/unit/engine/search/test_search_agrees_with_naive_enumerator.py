"""The search finds exactly what a deliberately naive enumerator finds, on random forests and queries."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forests import World, copied, without
from tests.naive import enumerate_candidates, summarised_providers
from tests.strategies import AGGREGATES, Search, searches

EXAMPLES = 400


@settings(max_examples=EXAMPLES)
@given(searches())
def test_same_candidates_each_once_with_the_same_summaries(given_search: Search) -> None:
    providers, query = given_search
    world = World(providers)
    world.load()
    found = world.search(query)
    candidates = world.candidates(found)
    expected = enumerate_candidates(providers, query)
    assert set(candidates) == expected
    assert len(candidates) == len(set(candidates))
    assert world.summarised(found, whole_trees=True) == summarised_providers(providers, expected, query)


@settings(max_examples=EXAMPLES // 2)
@given(searches(one_provider_per_tree=True))
def test_same_candidates_before_nested_candidates(given_search: Search) -> None:
    providers, query = given_search
    world = World(providers)
    world.load()
    found = world.search(query)
    expected = enumerate_candidates(providers, query)
    assert set(world.candidates(found)) == expected
    assert world.summarised(found, whole_trees=False) == summarised_providers(providers, expected, query)


@settings(max_examples=EXAMPLES // 3)
@given(searches(), st.lists(st.frozensets(st.sampled_from(AGGREGATES), min_size=1), min_size=1, max_size=2))
def test_same_candidates_below_roots_in_aggregates(
    given_search: Search, aggregates: list[frozenset[str]]
) -> None:
    providers, drawn = given_search
    query = replace(drawn, root_member_of=tuple(aggregates))
    world = World(providers)
    world.load()
    assert set(world.candidates(world.search(query))) == enumerate_candidates(providers, query)


@settings(max_examples=EXAMPLES // 2)
@given(searches())
def test_a_forest_fed_by_changes_equals_one_loaded_at_once(given_search: Search) -> None:
    """Records that come and change later end as one load does, and a removed leaf was never there."""
    providers, query = given_search
    world = World(providers)
    world.load()
    expected = world.candidates(world.search(query))
    fed = World(providers)
    fed.forest.apply([fed.record(without(provider)) for provider in providers])
    fed.search(query)
    for provider in providers:
        fed.forest.apply([fed.record(provider, revision=2)])
    assert fed.candidates(fed.search(query)) == expected
    parents = {provider.parent for provider in providers}
    leaf = next(provider for provider in reversed(providers) if provider.uuid not in parents)
    remaining = [provider for provider in providers if provider is not leaf]
    for forest in (world, fed):
        forest.forest.remove(forest.ids[leaf.uuid])
        assert set(forest.candidates(forest.search(query))) == enumerate_candidates(remaining, query)


@settings(max_examples=EXAMPLES // 3)
@given(searches())
def test_a_limit_keeps_the_first_of_all_candidates(given_search: Search) -> None:
    providers, query = given_search
    world = World(providers)
    world.load()
    for depth_first in (False, True):
        everything = world.candidates(world.search(query, depth_first=depth_first))
        for limit in (1, 2, 5):
            some = world.candidates(world.search(query, limit, depth_first))
            assert some == everything[:limit]
            at_once = world.search(query, limit, depth_first, first_trees=len(providers))
            assert world.candidates(at_once) == some


@settings(max_examples=EXAMPLES // 6)
@given(searches(), st.integers(2, 4), st.integers(1, 4))
def test_a_limit_keeps_the_first_also_of_many_trees(given_search: Search, copies: int, limit: int) -> None:
    providers, query = given_search
    world = World([copied(provider, number) for number in range(copies) for provider in providers])
    world.load()
    everything = world.candidates(world.search(query))
    assert world.candidates(world.search(query, limit)) == everything[:limit]
