"""Which functions compute which strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from placement.scoring import allocated, balanced, ratio
from placement.scoring.columns import Field, LoadColumn, Scores
from placement.scoring.load import Load, Part
from placement.scoring.strategy import Strategy, StrategyType


class Scorer(NamedTuple):
    """The two forms of one score, which must agree; the flag tells whether a listed class is asked for.

    `fields` are the parts of many hosts, class by class; `weighted` if each has its weight among them.
    """

    of_host: Callable[[Strategy, Sequence[Load], bool], tuple[int, dict[str, Part]]]
    of_hosts: Callable[[Strategy, Sequence[LoadColumn], bool], Scores]
    fields: Callable[[Strategy, Sequence[LoadColumn]], list[list[Field]]]
    weighted: bool = True


SCORERS: Mapping[StrategyType, Scorer] = {
    StrategyType.REQUESTED_TO_CAPACITY_RATIO: Scorer(ratio.score_host, ratio.score_hosts, ratio.fields_of),
    StrategyType.LEAST_ALLOCATED: Scorer(
        allocated.score_least, allocated.score_least_of_hosts, allocated.least_fields
    ),
    StrategyType.MOST_ALLOCATED: Scorer(
        allocated.score_most, allocated.score_most_of_hosts, allocated.most_fields
    ),
    StrategyType.BALANCED_ALLOCATION: Scorer(
        balanced.score_host, balanced.score_hosts, balanced.fields_of, weighted=False
    ),
}
