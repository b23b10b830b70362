"""Hypothesis strategies for scores: shapes, strategies, orders, soft conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from placement.engine.scoring.order import Order, Scope, Strategy, parse_strategy
from placement.engine.scoring.rule import RULES
from tests.naive_scoring import SoftCondition
from tests.strategies import AGGREGATES, RESOURCE_CLASSES, TRAITS

_LISTED = (*RESOURCE_CLASSES, "MEMORY_MB", "PCPU")
KUBERNETES_NAMES = ("cpu", "memory", "pods", "example.com/gpu", "hugepages-2Mi")


@st.composite
def shapes(draw: st.DrawFn) -> list[dict[str, int]]:
    """Rising, falling and broken shapes on either scale."""
    utilizations = draw(st.lists(st.integers(0, 100), min_size=1, max_size=5, unique=True).map(sorted))
    most = draw(st.sampled_from((10, 100)))
    return [{"utilization": at, "score": draw(st.integers(0, most))} for at in utilizations]


@st.composite
def scorers(draw: st.DrawFn, listed: Sequence[str] = _LISTED) -> Strategy:
    """Any valid strategy, from its JSON."""
    rule = draw(st.sampled_from(list(RULES.values())))
    names = draw(st.lists(st.sampled_from(listed), unique=True, max_size=4))
    heaviest = 100 if rule.has_weights else 1
    given: dict[str, Any] = {
        "type": rule.name,
        "resources": [{"name": name, "weight": draw(st.integers(0, heaviest))} for name in names],
        "weight": draw(st.integers(1, 3)),
    }
    if draw(st.booleans()):
        given["scope"] = str(draw(st.sampled_from(Scope)))
    if rule.has_shape:
        given["shape"] = draw(shapes())
    return parse_strategy(given)


def orders() -> st.SearchStrategy[Order]:
    """One or two strategies in either scope, or in both."""
    return st.builds(
        Order, st.lists(scorers(), min_size=1, max_size=2).map(tuple), scope=st.sampled_from(Scope)
    )


def soft_conditions() -> st.SearchStrategy[tuple[SoftCondition, ...]]:
    """Mostly none, up to two."""
    condition = st.one_of(
        st.builds(
            SoftCondition,
            st.integers(1, 3),
            traits=st.frozensets(st.sampled_from(TRAITS), min_size=1, max_size=1),
            absent=st.booleans(),
        ),
        st.builds(
            SoftCondition,
            st.integers(1, 3),
            aggregates=st.frozensets(st.sampled_from(AGGREGATES), min_size=1, max_size=2),
            absent=st.booleans(),
        ),
    )
    return st.one_of(st.just(()), st.lists(condition, max_size=2).map(tuple))
