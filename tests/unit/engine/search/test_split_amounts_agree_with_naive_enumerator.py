"""What is split is found wherever the naive enumerator finds any way, and never more than providers have."""

from __future__ import annotations

from hypothesis import given, settings

from placement.engine.domain.groups import CandidateQuery, RequestGroup, SplitRule
from placement.engine.search.search import FoundCandidates
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


def single_amount(query: CandidateQuery) -> tuple[RequestGroup, str] | None:
    """The group and the class, if only one amount is split and nobody else asks for its class."""
    splitting = [(group, name) for group in query.groups for name in group.split]
    if len(splitting) != 1:
        return None
    ((group, name),) = splitting
    return (
        None
        if any(name in other.resources for other in query.groups if other is not group)
        else (group, name)
    )


def size(candidate: Candidate, name: str) -> int:
    return sum(kind == name for _, kind, _ in candidate.allocations)


@settings(max_examples=200)
@given(split_searches())
def test_one_way_is_found_where_there_is_any(given_search: Search) -> None:
    """A single amount takes as few or as many providers as its rule says."""
    providers, query = given_search
    world = World(providers)
    world.load()
    found = world.search(query)
    expected = enumerate_splits(providers, query)
    places = keys(world, found)
    assert sorted(places) == sorted(expected)
    single = single_amount(query)
    for key, candidate in zip(places, world.candidates(found), strict=True):
        assert candidate in expected[key]
        if single is not None:
            group, name = single
            best = max if group.split_rule is SplitRule.SPREAD else min
            assert size(candidate, name) == best(size(other, name) for other in expected[key])
