"""Scores are worked out once per tree and question, and what is kept stays within its bounds."""

from __future__ import annotations

import numpy as np

from placement.engine.search.ranking import ScoreCache
from tests.forests import World
from tests.naive import NaiveProvider

_UUID = "{:08x}-0000-4000-8000-000000000000"


class _Scorer:
    """Counts the trees it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, roots: np.ndarray) -> np.ndarray:
        self.asked += roots.tolist()
        return roots * 10


def _world(hosts: int) -> World:
    world = World([NaiveProvider(uuid=_UUID.format(number), parent=None) for number in range(hosts)])
    world.load()
    return world


def test_only_trees_that_changed_are_scored_again() -> None:
    world, scorer, score_cache = _world(4), _Scorer(), ScoreCache()
    roots = np.arange(4, dtype=np.int32)
    assert score_cache.of(world.forest, "q", roots[:3], scorer).tolist() == [0, 10, 20]
    world.forest.apply([world.record(world.providers[1], revision=2)])
    assert score_cache.of(world.forest, "q", roots[::-1], scorer).tolist() == [30, 20, 10, 0]
    assert scorer.asked == [0, 1, 2, 3, 1]


def test_each_question_has_scores_of_its_own() -> None:
    world, scorer, score_cache = _world(2), _Scorer(), ScoreCache()
    roots = np.arange(2, dtype=np.int32)
    score_cache.of(world.forest, "q", roots, scorer)
    assert score_cache.of(world.forest, "other", roots, lambda some: some + 7).tolist() == [7, 8]


def test_the_question_asked_longest_ago_is_forgotten_first() -> None:
    world, scorer, score_cache = _world(8), _Scorer(), ScoreCache(most_rows=20)
    roots = np.arange(8, dtype=np.int32)
    for question in ("first", "second", "first", "third"):
        score_cache.of(world.forest, question, roots, scorer)
    del scorer.asked[:]
    score_cache.of(world.forest, "first", roots, scorer)
    assert not scorer.asked
    score_cache.of(world.forest, "second", roots, scorer)
    assert scorer.asked == roots.tolist()


def test_a_forest_that_grows_is_followed() -> None:
    scorer, score_cache = _Scorer(), ScoreCache(most_rows=1)
    for hosts in (1, 100, 3):
        roots = np.arange(hosts, dtype=np.int32)
        assert score_cache.of(_world(hosts).forest, "q", roots, scorer).tolist() == (roots * 10).tolist()
