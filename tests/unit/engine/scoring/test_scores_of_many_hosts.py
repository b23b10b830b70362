"""Scores of many hosts, of one host, and word by word are the same; none is above what is foretold."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.allocations.rendering import score_members
from placement.engine.forest.texts import lines
from placement.engine.scoring.host_scores import (
    best_score,
    score_host,
    score_hosts,
    score_with_parts,
    sum_scorer,
)
from placement.engine.scoring.order import DEFAULT_SCORING, Order, Strategy, parse_strategy
from placement.engine.search.ranking import ScoreTable, StrategyScores
from tests.naive_scoring import naive_score, naive_sum
from tests.scoring_strategies import KUBERNETES_NAMES, scorers, shapes

_AMOUNTS = st.one_of(st.integers(0, 12), st.integers(0, 2**31), st.integers(0, 2**60))
_CAPACITIES = st.one_of(st.integers(1, 8), st.integers(0, 12), st.integers(0, 2**40), st.integers(0, 2**60))


@settings(max_examples=300)
@given(st.data(), st.one_of(scorers(), scorers(KUBERNETES_NAMES)), st.booleans())
def test_vectors_agree_with_single_hosts(data: st.DataObject, strategy: Strategy, wide: bool) -> None:
    records = {name: st.tuples(_AMOUNTS, _CAPACITIES) for name, _ in strategy.resources}
    many = data.draw(st.lists(st.fixed_dictionaries(records), min_size=1, max_size=6))
    request = {name: data.draw(st.integers(0, 9)) for name in records}
    dtype = object if wide else np.int64
    columns = {
        name: tuple(np.array(column, dtype) for column in zip(*(host[name] for host in many), strict=True))
        for name in request
    }
    found = score_hosts(strategy, columns, request)
    assert found.dtype == np.int64
    scored = StrategyScores(strategy, *score_with_parts(strategy, columns, request))
    table = ScoreTable(scored.scores, strategy.max_score, [scored], [])
    shown = [json.loads(b"{%b}" % members) for members in lines(score_members(table, ()).whole)]
    for row, host in enumerate(many):
        used, capacity = ({name: record[at] for name, record in host.items()} for at in (0, 1))
        expected = naive_score(strategy, request, capacity, used)
        assert found[row] == expected.score
        assert score_host(strategy, used, capacity, request) == expected.score
        assert shown[row]["score_parts"][0]["resources"] == expected.resources
        assert 0 <= expected.score <= strategy.max_score


@settings(max_examples=100)
@given(st.data(), st.lists(scorers(KUBERNETES_NAMES), min_size=1, max_size=3))
def test_a_host_is_scored_by_the_weighted_sum_of_all_strategies(data, several):
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


_USES = st.tuples(st.integers(0, 24), st.integers(1, 16))


@settings(max_examples=500)
@given(st.data(), scorers(KUBERNETES_NAMES))
def test_no_use_scores_above_the_bound(data: st.DataObject, strategy: Strategy) -> None:
    uses, requested, capacity, request = {}, {}, {}, {}
    for name, _ in strategy.resources:
        three = data.draw(st.lists(_USES, min_size=3, max_size=3))
        low, use, high = sorted(three, key=lambda use: Fraction(*use))
        uses[name] = (low, high)
        request[name] = data.draw(st.integers(0, use[0]))
        requested[name], capacity[name] = use[0] - request[name], use[1]
    assert score_host(strategy, requested, capacity, request) <= best_score(strategy, uses, request)


@settings(max_examples=100)
@given(st.data(), st.sampled_from(["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]))
def test_the_bound_of_a_mean_is_reached(data: st.DataObject, kind: str) -> None:
    given: dict[str, Any] = {
        "type": kind,
        "resources": [{"name": name, "weight": data.draw(st.integers(1, 9))} for name in ("cpu", "memory")],
    }
    if kind == "RequestedToCapacityRatio":
        given["shape"] = data.draw(shapes())
    strategy = parse_strategy(given)
    ends = {name: sorted(data.draw(st.tuples(*[st.integers(0, 100)] * 2))) for name in ("cpu", "memory")}
    uses = {name: ((low, 100), (high, 100)) for name, (low, high) in ends.items()}
    capacity = dict.fromkeys(ends, 100)
    spans = (range(low, high + 1) for low, high in ends.values())
    best = max(
        score_host(strategy, dict(zip(ends, use, strict=True)), capacity, {}) for use in product(*spans)
    )
    assert best_score(strategy, uses, {}) == best


def test_balance_is_bounded_by_the_gap_between_uses_and_of_an_unknown_use_anything_is_possible() -> None:
    balanced, least = (
        parse_strategy({"type": kind, "resources": [{"name": "cpu"}, {"name": other}]})
        for kind, other in (("BalancedAllocation", "memory"), ("LeastAllocated", "gpu"))
    )
    for high, score in ((1, 4), 75), ((3, 4), 100):
        uses = {"cpu": ((0, 1), high), "memory": ((3, 4), (1, 1))}
        assert best_score(balanced, uses, {"cpu": 1}) == score
        assert best_score(balanced, uses, {}) == 0
    full = {"cpu": ((1, 1), (1, 1))}
    assert best_score(least, full, {"gpu": 1}) == 100
    assert best_score(least, full, {"cpu": 1}) == 0
