"""Scores of many hosts at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from placement.forest.arrays import Amounts, Mask
from placement.scoring.columns import Field, LoadColumn
from placement.scoring.strategy import Skipped, Strategy, counts, is_idle

Columns = Mapping[str, tuple[Amounts, Amounts]]
"""Per resource what is in use and the capacity, one amount per host each."""


def score_hosts(strategy: Strategy, columns: Columns, request: Mapping[str, int]) -> Amounts:
    """One score per host for one request; a listed resource without columns is on no host.

    All columns, one at least, are of one length. Source: scoring.md, "Scoring and ordering of candidates".
    """
    return _scores(strategy, _loads(strategy, columns, request), request)


def _scores(strategy: Strategy, loads: list[LoadColumn], request: Mapping[str, int]) -> Amounts:
    rule = strategy.rule
    if rule.skips_idle and is_idle(strategy.resources, request):
        return np.zeros(len(loads[0].total), np.int64)
    scores: Amounts = rule.of_columns(loads, strategy.shape).astype(np.int64, copy=False)
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
    strategy: Strategy, columns: Columns, request: Mapping[str, int]
) -> tuple[Amounts, list[ClassParts]]:
    """The same, and what each listed class adds."""
    rule = strategy.rule
    loads = _loads(strategy, columns, request)
    parts = [
        ClassParts(name, weight if rule.has_weights else None, fields, load.counted, has_capacity)
        for (name, weight), fields, load, has_capacity in zip(
            strategy.resources,
            rule.fields(loads, strategy.shape),
            loads,
            (capacity > 0 for _, capacity in _listed(strategy, columns)),
            strict=True,
        )
    ]
    return _scores(strategy, loads, request), parts


def _loads(strategy: Strategy, columns: Columns, request: Mapping[str, int]) -> list[LoadColumn]:
    loads = []
    for (name, weight), (used, capacity) in zip(strategy.resources, _listed(strategy, columns), strict=True):
        has_capacity = capacity > 0
        counted = has_capacity if counts(name, request) else np.zeros_like(has_capacity)
        loads.append(LoadColumn(weight, used + request.get(name, 0), np.maximum(capacity, 1), counted))
    return loads


def _listed(strategy: Strategy, columns: Columns) -> Iterable[tuple[Amounts, Amounts]]:
    used, _ = next(iter(columns.values()))
    nothing: Amounts = np.zeros(len(used), np.int64)
    return [columns.get(name, (nothing, nothing)) for name, _ in strategy.resources]
