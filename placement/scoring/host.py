"""The score of one host, without arrays, and the best score of a host whose use is not known exactly.

Equal to `vectors.score_hosts` host by host. Amounts are by resource name, in one unit per resource; absent
means 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from placement.scoring.order import Order, combined
from placement.scoring.rule import BEST, Span
from placement.scoring.strategy import Strategy, counted, is_idle

Amounts = Mapping[str, int]
Use = tuple[int, int]
"""(what would be in use, the capacity) of one resource."""


def score_host(strategy: Strategy, requested: Amounts, capacity: Amounts, request: Amounts) -> int:
    """The score of a host with `requested` of its `capacity` in use if `request` were added.

    Source: scoring.md, "Scoring and ordering of candidates"; koordinator.md, "Score".
    """
    return scorer_for(strategy, request)(requested, capacity)


def scorer_for(strategy: Strategy, request: Amounts) -> Callable[[Amounts, Amounts], int]:
    """`score_host` for one request: many hosts are asked, and the request is looked at once."""
    rule, shape = strategy.rule, strategy.shape
    if rule.skips_idle and is_idle(strategy.resources, request):
        return lambda requested, capacity: 0
    listed = list(counted(strategy.resources, request))
    of_host = rule.of_host

    def score(requested: Amounts, capacity: Amounts) -> int:
        loads = []
        for name, weight, asked in listed:
            room = capacity.get(name, 0)
            if room > 0:
                loads.append((weight, requested.get(name, 0) + asked, room))
        return of_host(loads, shape)

    return score


def sum_scorer(order: Order, request: Amounts) -> Callable[[Amounts, Amounts], int]:
    """Return what `scorer_for` returns, for the weighted sum of all strategies of an order.

    Source: scoring.md, "Ordering", "Policies".
    """
    strategies = order.strategies
    scorers = [scorer_for(strategy, request) for strategy in strategies]
    if len(scorers) == 1:
        return scorers[0]

    def score(requested: Amounts, capacity: Amounts) -> int:
        points: int = combined(strategies, [each(requested, capacity) for each in scorers])
        return points

    return score


def best_score(strategy: Strategy, uses: Mapping[str, tuple[Use, Use]], request: Amounts) -> int:
    """The score that a host cannot exceed whose use with the request is between the lowest and the highest.

    `uses` has both for each listed resource, with capacity above 0; where one that counts is absent nothing
    is known, and the host may have the best score there is.
    """
    rule = strategy.rule
    if rule.skips_idle and is_idle(strategy.resources, request):
        return 0
    spans = []
    for name, weight, _ in counted(strategy.resources, request):
        if name not in uses:
            return strategy.max_score
        spans.append(Span(weight, *uses[name]))
    return rule.bound(spans, strategy.shape)


def favours_full(strategy: Strategy) -> bool:
    """Whether a full host scores higher than an empty one."""
    names = [name for name, _ in strategy.resources]
    full, one = dict.fromkeys(names, BEST), dict.fromkeys(names, 1)
    return score_host(strategy, {}, full, full) > score_host(strategy, {}, full, one)
