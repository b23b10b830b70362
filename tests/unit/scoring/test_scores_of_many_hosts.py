"""The vectorised scores and their parts equal the scalar ones, host by host, for amounts of any size."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.api.rendering.scores import score_remarks
from placement.forest.texts import lines
from placement.scoring.host import score_host
from placement.scoring.strategy import Strategy
from placement.scoring.vectors import score_hosts, score_with_parts
from placement.search.ranking import ScoreTable, StrategyScores
from tests.scoring_strategies import scorers

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


@settings(max_examples=1500)
@given(st.data(), scorers(), st.booleans())
def test_vectors_agree_with_single_hosts(data: st.DataObject, strategy: Strategy, wide: bool) -> None:
    many = data.draw(hosts(strategy))
    request = {name: data.draw(st.integers(0, 9)) for name, _ in strategy.resources}
    dtype = object if wide else np.int64
    capacity = {name: np.array([host[name][0] for host in many], dtype) for name in request}
    used = {name: np.array([host[name][1] for host in many], dtype) for name in request}
    found = score_hosts(strategy, request, capacity, used)
    scored = StrategyScores(strategy, *score_with_parts(strategy, request, capacity, used))
    table = ScoreTable(scored.scores, strategy.max_score, [scored], [])
    shown = [json.loads(b"{%b}" % remark) for remark in lines(score_remarks(table, ()))]
    for at, host in enumerate(many):
        expected = score_host(
            strategy,
            request,
            {name: record[0] for name, record in host.items()},
            {name: record[1] for name, record in host.items()},
        )
        assert found[at] == expected.score
        assert shown[at]["score_parts"][0]["resources"] == expected.resources
        assert 0 <= expected.score <= expected.max_score
