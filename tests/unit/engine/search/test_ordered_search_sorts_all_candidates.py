"""An ordered answer is what sorting all candidates by their scores gives, whatever the limit."""

from __future__ import annotations

import uuid
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.scoring.order import Order
from placement.engine.search.ranking import ScoreCache
from tests.forests import World
from tests.naive import SHARING_TRAIT, NaiveProvider, enumerate_candidates
from tests.naive_scoring import SoftCondition, score_of
from tests.scoring_strategies import orders, soft_conditions
from tests.strategies import Forest, Search, forests, searches

EXAMPLES = 150


@settings(max_examples=EXAMPLES)
@given(searches(), orders(), soft_conditions(), st.booleans())
def test_the_ordered_answer_is_the_sorted_unordered_one_and_a_limit_keeps_the_best(
    given_search: Search, order: Order, preferences: tuple[SoftCondition, ...], depth_first: bool
) -> None:
    providers, query = given_search
    world = World(providers)
    world.load()
    unordered = world.candidates(world.search(query, depth_first=depth_first))
    assert set(unordered) == enumerate_candidates(providers, query)
    scores = {candidate: score_of(providers, candidate, order, preferences) for candidate in unordered}
    ordered = world.search(query, depth_first=depth_first, order=world.ordered(order, preferences))
    found = world.candidates(ordered)
    assert found == sorted(unordered, key=lambda candidate: -scores[candidate])
    if found:
        assert ordered.ranking is not None
        table = ordered.ranking.table(ordered.candidates)
        assert table.scores.tolist() == [scores[candidate] for candidate in found]
        assert all(0 <= score <= table.max_score for score in table.scores)
    for limit in (1, 2, 5):
        some = world.search(query, limit, depth_first, world.ordered(order, preferences))
        assert world.candidates(some) == found[:limit]


@settings(max_examples=EXAMPLES)
@given(searches(), searches(), orders(), soft_conditions(), st.data())
def test_kept_scores_are_those_of_the_trees_as_they_are(
    given_search: Search,
    other_search: Search,
    order: Order,
    preferences: tuple[SoftCondition, ...],
    data: st.DataObject,
) -> None:
    """Trees change, vanish and come back between searches; another query may have the same question."""
    providers, query = given_search
    world = World(providers)
    world.load()
    by_score = world.ordered(order, preferences)
    for wanted in (query, other_search[1]):
        world.search(wanted, order=by_score)
    roots = [provider for provider in providers if provider.parent is None]
    for root in data.draw(st.lists(st.sampled_from(roots), unique_by=lambda root: root.uuid)):
        if not any(other.parent == root.uuid for other in providers):
            world.forest.remove(world.ids[root.uuid])
    world.providers = [
        replace(provider, used={name: data.draw(st.integers(0, 4)) for name in provider.used})
        for provider in providers
    ]
    world.forest.apply(
        [world.record(provider, revision=2) for provider in world.providers if data.draw(st.booleans())]
        or [world.record(provider, revision=2) for provider in world.providers]
    )
    for wanted in (query, other_search[1]):
        kept = world.search(wanted, order=by_score)
        world.score_cache = ScoreCache()
        anew = world.search(wanted, order=by_score)
        assert world.candidates(kept) == world.candidates(anew)


@settings(max_examples=8)
@given(st.lists(forests(), min_size=1, max_size=40), st.data())
def test_many_trees_are_taken_in_batches_without_a_seam(many: list[Forest], data: st.DataObject) -> None:
    """Trees beyond one batch, with few and with many different scores, come in the order of all."""
    order = data.draw(orders())
    world = World(_widened(many))
    world.load()
    query = data.draw(searches())[1]
    by_score = world.ordered(order)
    for depth_first in (False, True):
        everything = world.candidates(world.search(query, 10**6, depth_first, by_score))
        for limit in (1, 3, 17):
            some = world.search(query, limit, depth_first, by_score)
            assert world.candidates(some) == everything[:limit]


def _widened(many: list[Forest]) -> list[NaiveProvider]:
    """The same small forests over and over, under uuids of their own, until there are 1500 providers."""
    providers: list[NaiveProvider] = []
    number = 0
    while len(providers) < 1500:
        for forest in many:
            number += 1
            names = {
                provider.uuid: str(uuid.UUID(int=(number << 64) + uuid.UUID(provider.uuid).int))
                for provider in forest
            }
            providers += [
                replace(
                    provider,
                    uuid=names[provider.uuid],
                    parent=names[provider.parent] if provider.parent else None,
                    traits=provider.traits - {SHARING_TRAIT},
                )
                for provider in forest
            ]
    return providers
