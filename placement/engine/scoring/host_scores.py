"""The scores of hosts: of one host without arrays, and of many at once, with equal results.

Amounts of one host are by resource name, in one unit per resource; an absent one is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from placement.engine.forest.arrays import Amounts, Mask
from placement.engine.scoring.order import Order, Skipped, Strategy, combined, counted, counts
from placement.engine.scoring.rule import (
    BEST,
    LoadColumn,
    ScoreFigure,
    Span,
)

AmountsByResource = Mapping[str, int]
HostScorer = Callable[[AmountsByResource, AmountsByResource], int]
"""A function of the amounts in use and the capacity of a host: its score."""


CapacityAndUsed = tuple[int, int]
"""(amount that would be in use, capacity) of one resource."""


def score_host(
    strategy: Strategy, requested: AmountsByResource, capacity: AmountsByResource, request: AmountsByResource
) -> int:
    """Return the score of a host with `requested` of its `capacity` in use if `request` were added.

    Source: scoring.md, "Scoring and ordering of candidates"; koordinator.md, "Score".
    """
    return scorer_for(strategy, request)(requested, capacity)


def scorer_for(strategy: Strategy, request: AmountsByResource) -> HostScorer:
    """Return `score_host` for one request, which is read once for many hosts."""
    if strategy.is_idle(request):
        return lambda requested, capacity: 0
    listed = list(counted(strategy.resources, request))
    of_host, shape = strategy.rule.of_host, strategy.shape

    def score(requested: AmountsByResource, capacity: AmountsByResource) -> int:
        loads = []
        for name, weight, asked in listed:
            total = capacity.get(name, 0)
            if total > 0:
                loads.append((weight, requested.get(name, 0) + asked, total))
        return of_host(loads, shape)

    return score


def sum_scorer(order: Order, request: AmountsByResource) -> HostScorer:
    """Return a scorer as `scorer_for` does, for the weighted sum of all strategies of an order.

    Source: scoring.md, "Ordering", "Policies".
    """
    strategies = order.strategies
    scorers = [scorer_for(strategy, request) for strategy in strategies]
    if len(scorers) == 1:
        return scorers[0]

    def score(requested: AmountsByResource, capacity: AmountsByResource) -> int:
        points: int = combined(strategies, [each(requested, capacity) for each in scorers])
        return points

    return score


def best_score(
    strategy: Strategy,
    uses: Mapping[str, tuple[CapacityAndUsed, CapacityAndUsed]],
    request: AmountsByResource,
) -> int:
    """Return an upper bound of the score of a host, given its lowest and highest use with the request.

    `uses` has both for each listed resource, with capacity above 0. If a counted resource is absent from it,
    nothing is known, and the bound is the best possible score.
    """
    if strategy.is_idle(request):
        return 0
    spans = []
    for name, weight, _ in counted(strategy.resources, request):
        if name not in uses:
            return strategy.max_score
        spans.append(Span(weight, *uses[name]))
    return strategy.rule.bound(spans, strategy.shape)


def favours_full(strategy: Strategy) -> bool:
    """Return whether a full host scores higher than an empty one."""
    names = [name for name, _ in strategy.resources]
    full, one = dict.fromkeys(names, BEST), dict.fromkeys(names, 1)
    return score_host(strategy, {}, full, full) > score_host(strategy, {}, full, one)


ResourceColumns = Mapping[str, tuple[Amounts, Amounts]]
"""The amounts in use and the capacities per resource, each with one amount per host."""


def score_hosts(strategy: Strategy, columns: ResourceColumns, request: Mapping[str, int]) -> Amounts:
    """Return one score per host for one request; a listed resource without columns is on no host.

    Columns, one at least, have equal lengths. Source: scoring.md, "Scoring and ordering of candidates".
    """
    return _scores(strategy, _loads(strategy, columns, request), request)


def _scores(strategy: Strategy, loads: list[LoadColumn], request: Mapping[str, int]) -> Amounts:
    if strategy.is_idle(request):
        return np.zeros(len(loads[0].total), np.int64)
    scores: Amounts = strategy.rule.of_columns(loads, strategy.shape).astype(np.int64, copy=False)
    return scores


class ClassParts(NamedTuple):
    """The part of one class in the scores of hosts: its figures where `counted`, else why it is skipped.

    `weight` is None if the strategy has no weights.
    """

    name: str
    weight: int | None
    figures: list[ScoreFigure]
    counted: Mask
    has_capacity: Mask

    def skipped(self, at: int) -> Skipped:
        """Return why the class does not count on a host."""
        return Skipped.NOT_REQUESTED if self.has_capacity[at] else Skipped.NO_CAPACITY


def score_with_parts(
    strategy: Strategy, columns: ResourceColumns, request: Mapping[str, int]
) -> tuple[Amounts, list[ClassParts]]:
    """Return the scores of `score_hosts`, and the part of each listed class in them."""
    rule = strategy.rule
    loads = _loads(strategy, columns, request)
    parts = [
        ClassParts(name, weight if rule.has_weights else None, figures, load.counted, load.exists)
        for (name, weight), figures, load in zip(
            strategy.resources, rule.figures(loads, strategy.shape), loads, strict=True
        )
    ]
    return _scores(strategy, loads, request), parts


def _loads(strategy: Strategy, columns: ResourceColumns, request: Mapping[str, int]) -> list[LoadColumn]:
    nothing: Amounts = np.zeros(len(next(iter(columns.values()))[0]), np.int64)
    loads = []
    for name, weight in strategy.resources:
        used, capacity = columns.get(name, (nothing, nothing))
        total, exists = used + request.get(name, 0), capacity > 0
        counted = exists if counts(name, request) else np.zeros_like(exists)
        loads.append(LoadColumn(weight, total, np.maximum(capacity, 1), counted, exists))
    return loads
