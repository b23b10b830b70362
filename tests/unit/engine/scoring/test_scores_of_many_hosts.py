"""Scores of many hosts, of one host, and word by word are the same, for amounts of any size."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.allocations.rendering import score_members
from placement.engine.forest.arrays import lines
from placement.engine.scoring.order import (
    DEFAULT_SCORING,
    Order,
    Strategy,
    score_host,
    score_hosts,
    score_with_parts,
    sum_scorer,
)
from placement.engine.search.ranking import ScoreTable, StrategyScores
from tests.naive_scoring import naive_score, naive_sum
from tests.scoring_strategies import KUBERNETES_NAMES, scorers

_AMOUNTS = st.one_of(st.integers(0, 12), st.integers(0, 2**31), st.integers(0, 2**60))
_CAPACITIES = st.one_of(st.integers(1, 8), st.integers(0, 12), st.integers(0, 2**40), st.integers(0, 2**60))


@st.composite
def hosts(draw: st.DrawFn, strategy: Strategy) -> list[dict[str, tuple[int, int]]]:
    """A few hosts: capacity and use of every listed class."""
    record = st.tuples(_CAPACITIES, _AMOUNTS)
    return draw(
        st.lists(
            st.fixed_dictionaries({name: record for name, _ in strategy.resources}), min_size=1, max_size=6
        )
    )


@settings(max_examples=300)
@given(st.data(), st.one_of(scorers(), scorers(KUBERNETES_NAMES)), st.booleans())
def test_vectors_agree_with_single_hosts(data: st.DataObject, strategy: Strategy, wide: bool) -> None:
    many = data.draw(hosts(strategy))
    request = {name: data.draw(st.integers(0, 9)) for name, _ in strategy.resources}
    dtype = object if wide else np.int64
    columns = {
        name: (
            np.array([host[name][1] for host in many], dtype),
            np.array([host[name][0] for host in many], dtype),
        )
        for name in request
    }
    found = score_hosts(strategy, columns, request)
    assert found.dtype == np.int64
    scored = StrategyScores(strategy, *score_with_parts(strategy, columns, request))
    table = ScoreTable(scored.scores, strategy.max_score, [scored], [])
    shown = [json.loads(b"{%b}" % members) for members in lines(score_members(table, ()).whole)]
    for at, host in enumerate(many):
        capacity = {name: record[0] for name, record in host.items()}
        used = {name: record[1] for name, record in host.items()}
        expected = naive_score(strategy, request, capacity, used)
        assert found[at] == expected.score
        assert score_host(strategy, used, capacity, request) == expected.score
        assert shown[at]["score_parts"][0]["resources"] == expected.resources
        assert 0 <= expected.score <= strategy.max_score


@settings(max_examples=100)
@given(st.data(), st.lists(scorers(KUBERNETES_NAMES), min_size=1, max_size=3))
def test_a_host_is_scored_by_the_weighted_sum_of_all_strategies(
    data: st.DataObject, several: list[Strategy]
) -> None:
    weighed = [replace(each, weight=data.draw(st.integers(1, 9))) for each in several]
    order = Order(tuple(weighed))
    names = {name for each in several for name, _ in each.resources}
    capacity = {name: data.draw(_CAPACITIES) for name in names}
    used, request = ({name: data.draw(st.integers(0, 9)) for name in names} for _ in range(2))
    expected = naive_sum(order, request, capacity, used)
    assert sum_scorer(order, request)(used, capacity) == expected
    assert 0 <= expected <= order.max_score


def test_a_resource_without_columns_is_on_no_host() -> None:
    columns = {"cpu": (np.array([1000, 0]), np.array([4000, 0]))}
    found = score_hosts(DEFAULT_SCORING, columns, {"cpu": 1000})
    assert found.tolist() == [50, 0]
    assert score_host(DEFAULT_SCORING, {"cpu": 1000}, {"cpu": 4000}, {"cpu": 1000}) == 50
    assert score_host(DEFAULT_SCORING, {}, {}, {"cpu": 1000}) == 0
