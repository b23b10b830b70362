"""A host whose use is only known to be between two ends scores nothing above what is foretold."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.scoring.order import Strategy, best_score, parse_strategy, score_host
from tests.scoring_strategies import KUBERNETES_NAMES, scorers, shapes

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


@pytest.mark.parametrize(("low", "high", "score"), [((0, 1), (1, 4), 75), ((0, 1), (3, 4), 100)])
def test_balance_is_bounded_by_the_gap_between_uses(
    low: tuple[int, int], high: tuple[int, int], score: int
) -> None:
    strategy = parse_strategy(
        {"type": "BalancedAllocation", "resources": [{"name": "cpu"}, {"name": "memory"}]}
    )
    uses = {"cpu": (low, high), "memory": ((3, 4), (1, 1))}
    assert best_score(strategy, uses, {"cpu": 1}) == score
    assert best_score(strategy, uses, {}) == 0


def test_of_a_use_that_is_unknown_anything_is_possible() -> None:
    strategy = parse_strategy({"type": "LeastAllocated", "resources": [{"name": "cpu"}, {"name": "gpu"}]})
    full = ((1, 1), (1, 1))
    assert best_score(strategy, {"cpu": full}, {"gpu": 1}) == 100
    assert best_score(strategy, {"cpu": full}, {"cpu": 1}) == 0
