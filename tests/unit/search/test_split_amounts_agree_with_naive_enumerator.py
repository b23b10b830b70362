"""What is split is found wherever the naive enumerator finds any way, and never more than providers have."""

from __future__ import annotations

from hypothesis import given, settings

from placement.domain.groups import SplitRule
from placement.search.search import FoundCandidates
from tests.forests import World
from tests.naive import Candidate, enumerate_splits
from tests.strategies import Search, split_searches


def keys(world: World, found: FoundCandidates) -> list[tuple[str, ...]]:
    """The anchor of each candidate, and who gives what is not split."""
    uuids = {world.forest.row_of_uuid(uuid): uuid for uuid in world.ids}
    split = next(number for number, slot in enumerate(found.slots) if slot.rule)
    return [
        (
            uuids[int(world.forest.providers.root[row[split]])],
            *(uuids[each] for each, slot in zip(row, found.slots, strict=True) if not slot.rule),
        )
        for row in found.candidates.tolist()
    ]


@settings(max_examples=500)
@given(split_searches())
def test_one_way_is_found_where_there_is_any(given_search: Search) -> None:
    providers, query = given_search
    world = World(providers)
    world.load()
    found = world.search(query)
    expected = enumerate_splits(providers, query)
    places = keys(world, found)
    assert sorted(places) == sorted(expected)
    for key, candidate in zip(places, world.candidates(found), strict=True):
        assert candidate in expected[key]


@settings(max_examples=500)
@given(split_searches())
def test_a_single_amount_takes_as_few_or_as_many_providers_as_its_rule_says(given_search: Search) -> None:
    providers, query = given_search
    splitting = [group for group in query.groups if group.split]
    if len(splitting) != 1 or len(splitting[0].split) != 1:
        return
    (group,) = splitting
    (name,) = group.split

    def size(candidate: Candidate) -> int:
        return sum(kind == name for _, kind, _ in candidate.allocations)

    world = World(providers)
    world.load()
    found = world.search(query)
    expected = enumerate_splits(providers, query)
    best = max if group.split_rule is SplitRule.SPREAD else min
    for key, candidate in zip(keys(world, found), world.candidates(found), strict=True):
        if all(name not in other.resources for other in query.groups if other is not group):
            assert size(candidate) == best(map(size, expected[key]))
