"""An ordered answer is what sorting all candidates by their scores gives, whatever the limit."""

import time
import uuid
from dataclasses import replace
from itertools import count, cycle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.domain.inventories import Inventory
from placement.engine.forest.forest import Forest
from placement.engine.scoring.order import Order
from placement.engine.search.budget import Budget
from placement.engine.search.ranking import ScoreCache
from placement.engine.search.search import search
from tests.forests import loaded
from tests.naive import SHARING_TRAIT, NaiveProvider, enumerate_candidates
from tests.naive_scoring import SoftCondition, score_of
from tests.scoring_strategies import orders, soft_conditions
from tests.strategies import Search, forests, searches

EXAMPLES = 150


@settings(max_examples=EXAMPLES)
@given(searches(), orders(), soft_conditions(), st.booleans())
def test_the_ordered_answer_is_the_sorted_unordered_one_and_a_limit_keeps_the_best(
    given_search: Search, order: Order, preferences: tuple[SoftCondition, ...], depth_first: bool
) -> None:
    providers, query = given_search
    world = loaded(providers)
    unordered = world.candidates(world.search(query, depth_first=depth_first))
    assert set(unordered) == enumerate_candidates(providers, query)
    scores = {candidate: score_of(providers, candidate, order, preferences) for candidate in unordered}
    ordered = world.search(query, depth_first=depth_first, order=world.ordered(order, preferences))
    found = world.candidates(ordered)
    assert found == sorted(unordered, key=lambda candidate: -scores[candidate])
    if found:
        assert ordered.scores is not None
        table = ordered.scores.table(ordered.candidates)
        assert table.scores.tolist() == [scores[candidate] for candidate in found]
        assert all(0 <= score <= table.max_score for score in table.scores)
    for limit in (1, 2, 5):
        some = world.search(query, limit, depth_first, world.ordered(order, preferences))
        assert world.candidates(some) == found[:limit]


@settings(max_examples=EXAMPLES)
@given(searches(), searches(), orders(), soft_conditions(), st.data())
def test_kept_scores_are_those_of_the_trees_as_they_are(given_search, other_search, order, preferences, data):
    """Trees change, vanish and come back between searches; another query may have the same question."""
    providers, query = given_search
    world = loaded(providers)
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
def test_many_trees_are_taken_in_batches_without_a_seam(many, data):
    """Trees beyond one batch, with few and with many different scores, come in the order of all."""
    order = data.draw(orders())
    # The same small forests over and over, under uuids of their own, until there are 1500 providers.
    providers: list[NaiveProvider] = []
    for number, forest in zip(count(1), cycle(many)):
        if len(providers) >= 1500:
            break
        names = {each.uuid: str(uuid.UUID(int=(number << 64) + uuid.UUID(each.uuid).int)) for each in forest}
        for each in forest:
            place = {"uuid": names[each.uuid], "parent": names.get(each.parent or "")}
            providers.append(replace(each, **place, traits=each.traits - {SHARING_TRAIT}))
    world = loaded(providers)
    query = data.draw(searches())[1]
    by_score = world.ordered(order)
    for depth_first in (False, True):
        everything = world.candidates(world.search(query, 10**6, depth_first, by_score))
        for limit in (1, 3, 17):
            some = world.search(query, limit, depth_first, by_score)
            assert world.candidates(some) == everything[:limit]


def test_kept_scores_are_bounded_by_what_was_asked_longest_ago_and_follow_forests() -> None:
    asked: list[int] = []

    def scorer(roots: np.ndarray) -> np.ndarray:
        asked.extend(roots.tolist())
        return roots * 10

    def forest_of(hosts: int) -> Forest:
        return loaded([NaiveProvider(str(uuid.UUID(int=number)), None) for number in range(hosts)]).forest

    forest, score_cache = forest_of(8), ScoreCache(most_rows=20)
    roots = np.arange(8, dtype=np.int32)
    for question in ("first", "second", "first", "third"):
        score_cache.of(forest, question, roots, scorer)
    del asked[:]
    score_cache.of(forest, "first", roots, scorer)
    assert not asked
    score_cache.of(forest, "second", roots, scorer)
    assert asked == roots.tolist()
    score_cache = ScoreCache(most_rows=1)
    for hosts in (1, 100, 3):
        roots = np.arange(hosts, dtype=np.int32)
        assert score_cache.of(forest_of(hosts), "q", roots, scorer).tolist() == (roots * 10).tolist()


def test_stages_begin_with_the_search(monkeypatch: pytest.MonkeyPatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    world = loaded([NaiveProvider(str(uuid.UUID(int=1)), None, {"VCPU": Inventory(total=4)})])
    query = CandidateQuery((RequestGroup("", {"VCPU": 1}),))
    wanted = replace(world.query(query), budget=Budget())
    # As long as the search of other trees may take before this one.
    now = 7.0
    assert len(search(world.forest, world.sharing, wanted).candidates) == 1
    assert wanted.budget.stage_seconds == {"filter": 0.0, "combine": 0.0}
