"""Scores of many hosts at once, equal to `host.score_host` for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from placement.forest.arrays import Amounts, Mask
from placement.scoring.columns import Field, LoadColumn
from placement.scoring.load import ALWAYS_COUNTED, Skipped
from placement.scoring.registry import SCORERS
from placement.scoring.strategy import Strategy

Sums = Mapping[str, Amounts]


def score_hosts(strategy: Strategy, request: Mapping[str, int], capacity: Sums, used: Sums) -> Amounts:
    """One score per host for one request.

    `capacity` and `used` hold one amount per host for every listed class.
    """
    return _scores(strategy, request, _columns(strategy, request, capacity, used))


def _scores(strategy: Strategy, request: Mapping[str, int], columns: list[LoadColumn]) -> Amounts:
    asks = any(request.get(name, 0) for name, _ in strategy.resources)
    scores: Amounts = SCORERS[strategy.type].of_hosts(strategy, columns, asks)
    return scores


class ClassParts(NamedTuple):
    """What one class adds per host: its fields where `counted`, else why it is skipped.

    `weight` is None where a strategy knows none.
    """

    name: str
    weight: int | None
    fields: list[Field]
    counted: Mask
    has_capacity: Mask

    def skipped(self, at: int) -> Skipped:
        """Why the class does not count on a host."""
        return Skipped.NOT_REQUESTED if self.has_capacity[at] else Skipped.NO_CAPACITY


def score_with_parts(
    strategy: Strategy, request: Mapping[str, int], capacity: Sums, used: Sums
) -> tuple[Amounts, list[ClassParts]]:
    """The same, and what each listed class adds, as `host.score_host` tells it for one host."""
    scorer = SCORERS[strategy.type]
    columns = _columns(strategy, request, capacity, used)
    fields = scorer.fields(strategy, columns)
    parts = [
        ClassParts(
            name,
            weight if scorer.weighted else None,
            fields[at],
            columns[at].counted,
            capacity[name] > 0,
        )
        for at, (name, weight) in enumerate(strategy.resources)
    ]
    return _scores(strategy, request, columns), parts


def _columns(strategy: Strategy, request: Mapping[str, int], capacity: Sums, used: Sums) -> list[LoadColumn]:
    columns = []
    for name, weight in strategy.resources:
        asked = request.get(name, 0)
        counted = capacity[name] > 0
        if not asked and name not in ALWAYS_COUNTED:
            counted = np.zeros_like(counted)
        columns.append(LoadColumn(weight, used[name] + asked, np.maximum(capacity[name], 1), counted))
    return columns
