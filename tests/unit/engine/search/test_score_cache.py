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
