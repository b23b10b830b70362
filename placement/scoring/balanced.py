"""BalancedAllocation: classes used evenly. Source: scoring.md, "BalancedAllocation".

The result is the largest k of 0..100 with ((100 - k) / 100)^2 >= variance of the used fractions, so no root
is ever drawn: binary floating point would be wrong on about one input in a thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt

import numpy as np

from placement.scoring.columns import Field, LoadColumn, Scores
from placement.scoring.load import Load, Part
from placement.scoring.strategy import Strategy

_BEST = 100
_SQUARES = _BEST**2
# The smallest m with m * m >= q, for all q that can occur.
_ROOTS = np.array([isqrt(max(q - 1, 0)) + (q > 0) for q in range(_SQUARES + 1)], np.int64)

# Products up to this can be multiplied by 50 in 64 bits.
_SAFE_PRODUCT = 2**63 // _BEST


def score_host(_strategy: Strategy, loads: Sequence[Load], asked: bool) -> tuple[int, dict[str, Part]]:
    """100 minus the standard deviation in percent; 0 for a request that asks for none of the classes."""
    fractions = [Fraction(min(load.total, load.capacity), load.capacity) for load in loads]
    parts: dict[str, Part] = {
        load.name: {"fraction": f"{fraction.numerator}/{fraction.denominator}"}
        for load, fraction in zip(loads, fractions, strict=True)
    }
    if not asked:
        return 0, parts
    if len(fractions) < 2:
        return _BEST, parts
    mean = sum(fractions) / Fraction(len(fractions))
    variance = sum((fraction - mean) ** 2 for fraction in fractions) / len(fractions)
    return max(k for k in range(_BEST + 1) if (_BEST - k) ** 2 >= variance * _SQUARES), parts


def score_hosts(_strategy: Strategy, columns: Sequence[LoadColumn], asked: bool) -> Scores:
    """The same for many hosts."""
    if not asked:
        return np.zeros(len(columns[0].total), np.int64)
    if len(columns) == 2:
        return _score_pairs(*columns)
    return _score_many(columns)


def _score_pairs(one: LoadColumn, other: LoadColumn) -> Scores:
    """Of two fractions the standard deviation is half their distance, so there is no root to draw."""
    capacities = [one.capacity, other.capacity]
    if int(one.capacity.max(initial=0)) * int(other.capacity.max(initial=0)) > _SAFE_PRODUCT:
        capacities = [capacity.astype(object) for capacity in capacities]
    left, right = capacities
    distance = np.abs(np.minimum(one.total, left) * right - np.minimum(other.total, right) * left)
    spread = -(-(_BEST // 2) * distance // (left * right))
    return _BEST - np.where(one.counted & other.counted, spread, 0).astype(np.int64)


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
    scores: Scores = _BEST - _ROOTS[tenthousandths.astype(np.int64)]
    return scores


def fields_of(_strategy: Strategy, columns: Sequence[LoadColumn]) -> list[list[Field]]:
    """The parts of many hosts, class by class: fractions in lowest terms."""
    found = []
    for column in columns:
        part = np.minimum(column.total, column.capacity)
        divisor = np.gcd(part, column.capacity)
        found.append([Field("fraction", part // divisor, column.capacity // divisor)])
    return found
