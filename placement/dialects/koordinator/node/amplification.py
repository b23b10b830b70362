"""Amplification ratios: a host that advertises more than it has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from placement.kubernetes.field import Field


def read_amplification(annotation: Field) -> Mapping[str, Fraction]:
    """The ratios above 1 of a parsed resource-amplification-ratio annotation by Kubernetes resource name.

    Ratios up to 1 have no effect. Refused: ratios that are not finite numbers.
    Source: koordinator.md, "CPU amplification".
    """
    ratios = {resource: _read_ratio(ratio) for resource, ratio in annotation.members().items()}
    return {resource: ratio for resource, ratio in ratios.items() if ratio is not None and ratio > 1}


def _read_ratio(ratio: Field) -> Fraction | None:
    number = ratio.value
    if isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number):
        return Fraction(repr(number))
    ratio.complain("must be a number")
    return None


def amplified(amounts: Mapping[str, int], ratios: Mapping[str, Fraction]) -> dict[str, int]:
    """The amounts times their ratios, rounded up in the units of the amounts."""
    return {name: math.ceil(amount * ratios.get(name, 1)) for name, amount in amounts.items()}
