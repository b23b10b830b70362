"""What a scoring strategy consists of: one rule for columns of hosts, one host, and the best of many uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from placement.scoring.columns import Figure, LoadColumn, Scores
from placement.scoring.shape import Shape

BEST = 100
"""The best score of strategies without a shape, and of everything that pods are scored by."""

Load = tuple[int, int, int]
"""(weight, total, capacity) of a counted resource: `total` would be in use of `capacity`, which is above 0.

A plain tuple, for the NUMA nodes of a host are scored in tight loops.
"""


class Span(NamedTuple):
    """How full a counted resource may become: (total, capacity) at the least and at the most."""

    weight: int
    lowest: tuple[int, int]
    highest: tuple[int, int]


class Leaning(Enum):
    """What the score of a strategy is the mean of: what is in use, or what is free."""

    FULL = auto()
    FREE = auto()


class Rule(NamedTuple):
    """A strategy by its name in Kubernetes. All functions get the shape, None if the strategy has none.

    `of_columns` says what the scores are; `of_host` is the same for one host, without arrays. `bound` is
    a score that no use inside the spans exceeds. `figures` are the numbers behind the scores, resource by
    resource. `has_weights`: resources may differ in weight. `skips_idle`: a request that asks for none of the
    listed resources scores 0. `leaning` is None where the score is no mean.
    """

    name: str
    of_columns: Callable[[Sequence[LoadColumn], Shape | None], Scores]
    of_host: Callable[[Sequence[Load], Shape | None], int]
    bound: Callable[[Sequence[Span], Shape | None], int]
    figures: Callable[[Sequence[LoadColumn], Shape | None], list[list[Figure]]]
    has_weights: bool = True
    has_shape: bool = False
    skips_idle: bool = False
    leaning: Leaning | None = None
