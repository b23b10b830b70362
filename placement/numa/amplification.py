"""Amplified hosts: they advertise more CPU than they have, and a bound CPU costs that much more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction


def bound_cost(milli: int, ratio: Fraction) -> int:
    """The millicores that bound CPUs of this many millicores cost, rounded up.

    Source: koordinator.md, "CPU amplification".
    """
    return milli if ratio == 1 else -(-milli * ratio.numerator // ratio.denominator)


def host_cpu_requested(requested: int, bound_cpus: int, ratio: Fraction) -> int:
    """The millicores requested on a whole host if `bound_cpus` of its CPUs are bound at that ratio.

    Nothing changes unless the requests cover the bound CPUs. Source: koordinator.md, "CPU amplification".
    """
    bound = 1000 * bound_cpus
    return requested - bound + bound_cost(bound, ratio) if requested >= bound else requested


def amplified(amounts: Mapping[str, int], ratios: Mapping[str, Fraction]) -> dict[str, int]:
    """The amounts times their ratios, rounded up in the units of the amounts."""
    return {name: math.ceil(amount * ratios.get(name, 1)) for name, amount in amounts.items()}
