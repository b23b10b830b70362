"""Scores of many hosts at once, equal to `host.score_host` for each of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from placement.candidates.arrays import Amounts
from placement.candidates.scoring.columns import LoadColumn
from placement.candidates.scoring.load import ALWAYS_COUNTED
from placement.candidates.scoring.registry import SCORERS
from placement.candidates.scoring.strategy import Strategy


def score_hosts(
    strategy: Strategy,
    request: Mapping[str, int],
    capacity: Mapping[str, Amounts],
    used: Mapping[str, Amounts],
) -> Amounts:
    """One score per host for one request.

    `capacity` and `used` hold one amount per host for every listed class.
    """
    columns = []
    for name, weight in strategy.resources:
        asked = request.get(name, 0)
        counted = capacity[name] > 0
        if not asked and name not in ALWAYS_COUNTED:
            counted = np.zeros_like(counted)
        columns.append(LoadColumn(weight, used[name] + asked, np.maximum(capacity[name], 1), counted))
    asks = any(request.get(name, 0) for name, _ in strategy.resources)
    scores: Amounts = SCORERS[strategy.type].of_hosts(strategy, columns, asks)
    return scores
