"""BalancedAllocation: resources used evenly. Source: scoring.md, "BalancedAllocation".

The result is the largest k of 0..100 with ((100 - k) / 100)^2 >= variance of the used fractions, so no root
is ever drawn: binary floating point would be wrong on about one input in a thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, isqrt

import numpy as np

from placement.scoring.columns import Figure, LoadColumn, Scores
from placement.scoring.rule import BEST, Load, Rule, Span
from placement.scoring.shape import Shape

_SQUARES = BEST**2

# Products up to this can be multiplied by 50 in 64 bits.
_SAFE_PRODUCT = 2**63 // BEST


def _root(tenthousandths: int) -> int:
    """The smallest m with m * m >= the variance in ten-thousandths."""
    return isqrt(tenthousandths - 1) + 1 if tenthousandths > 0 else 0


# For all variances that can occur.
_ROOTS = np.array([_root(variance) for variance in range(_SQUARES + 1)], np.int64)


def _of_columns(columns: Sequence[LoadColumn], _shape: Shape | None) -> Scores:
    return _score_pairs(*columns) if len(columns) == 2 else _score_many(columns)


def _score_pairs(one: LoadColumn, other: LoadColumn) -> Scores:
    """Of two fractions the standard deviation is half their distance, so there is no root to draw."""
    capacities = [one.capacity, other.capacity]
    if int(one.capacity.max(initial=0)) * int(other.capacity.max(initial=0)) > _SAFE_PRODUCT:
        capacities = [capacity.astype(object) for capacity in capacities]
    left, right = capacities
    distance = np.abs(np.minimum(one.total, left) * right - np.minimum(other.total, right) * left)
    spread = -(-(BEST // 2) * distance // (left * right))
    return BEST - np.where(one.counted & other.counted, spread, 0).astype(np.int64)


def _score_many(columns: Sequence[LoadColumn]) -> Scores:
    """Integers of any length: the product of all capacities leaves 64 bits soon."""
    capacities = [np.where(column.counted, column.capacity, 1).astype(object) for column in columns]
    counted = [column.counted.astype(object) for column in columns]
    common = np.prod(np.stack(capacities), axis=0)
    number = sum(counted)
    shares = [
        np.minimum(column.total.astype(object), capacity) * (common // capacity) * is_counted
        for column, capacity, is_counted in zip(columns, capacities, counted, strict=True)
    ]
    # variance = (n * sum of squares - square of the sum) / (n * common)^2
    spread = number * sum(share * share for share in shares) - sum(shares) ** 2
    scale = np.maximum(number * common, 1) ** 2
    tenthousandths = -(-_SQUARES * spread // scale)
    scores: Scores = BEST - _ROOTS[tenthousandths.astype(np.int64)]
    return scores


def _of_host(loads: Sequence[Load], _shape: Shape | None) -> int:
    number, common = len(loads), 1
    for _, _, capacity in loads:
        common *= capacity
    shares = [min(total, capacity) * (common // capacity) for _, total, capacity in loads]
    spread = number * sum(share * share for share in shares) - sum(shares) ** 2
    return BEST - _root(-(-_SQUARES * spread // (max(number, 1) * common) ** 2))


def _bound(spans: Sequence[Span], _shape: Shape | None) -> int:
    """Evenly used if the spans overlap; else two of n fractions are apart by the gap at least.

    The variance is then at least that of these two about their middle, which is half the gap squared by n.
    """
    if not spans:
        return BEST
    gap = max(_share(*span.lowest) for span in spans) - min(_share(*span.highest) for span in spans)
    return BEST if gap <= 0 else BEST - _root(ceil(_SQUARES * gap**2 / (2 * len(spans))))


def _share(total: int, capacity: int) -> Fraction:
    return Fraction(min(total, capacity), capacity)


def _figures(columns: Sequence[LoadColumn], _shape: Shape | None) -> list[list[Figure]]:
    """The fractions in lowest terms."""
    found = []
    for column in columns:
        part = np.minimum(column.total, column.capacity)
        divisor = np.gcd(part, column.capacity)
        found.append([Figure("fraction", part // divisor, column.capacity // divisor)])
    return found


RULE = Rule("BalancedAllocation", _of_columns, _of_host, _bound, _figures, has_weights=False, skips_idle=True)
