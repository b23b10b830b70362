"""Amounts of resources per NUMA node, and their costs on hosts that advertise more CPU than they have."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType

CPU = "cpu"
MILLI = 1000

Amounts = Mapping[str, int]
"""Amounts by Kubernetes resource name: millicores of `cpu`, whole bytes or pieces of everything else."""

AmountsByNuma = Mapping[int, Amounts]


class NumaAmounts(dict[int, Amounts]):
    """Amounts by NUMA id, ascending. It never changes, so that it can be part of a key."""

    __slots__ = ("_hash",)

    def __init__(self, by_numa: AmountsByNuma = MappingProxyType({})) -> None:
        super().__init__()
        rows = []
        for numa in sorted(by_numa):
            self[numa] = row = dict(by_numa[numa])
            rows.append((numa, frozenset(row.items())))
        self._hash = hash(tuple(rows))

    def __hash__(self) -> int:  # type: ignore[override]
        return self._hash


NOTHING = NumaAmounts()


def summed(parts: Iterable[AmountsByNuma]) -> NumaAmounts:
    """Return the sum of all parts by NUMA node."""
    total: dict[int, dict[str, int]] = {}
    for part in parts:
        for numa, amounts in part.items():
            for resource, amount in amounts.items():
                row = total.setdefault(numa, {})
                row[resource] = row.get(resource, 0) + amount
    return NumaAmounts(total)


def bound_cost(milli: int, ratio: Fraction) -> int:
    """Return the cost in millicores of bound CPUs of this many millicores, rounded up.

    Source: koordinator.md, "CPU amplification".
    """
    return milli if ratio == 1 else -(-milli * ratio.numerator // ratio.denominator)


def host_cpu_requested(requested: int, bound_cpus: int, ratio: Fraction) -> int:
    """Return the millicores requested on a whole host if `bound_cpus` of its CPUs are bound at that ratio.

    Nothing changes unless the requests cover the bound CPUs. Source: koordinator.md, "CPU amplification".
    """
    bound = 1000 * bound_cpus
    return requested - bound + bound_cost(bound, ratio) if requested >= bound else requested


def amplified(amounts: Mapping[str, int], ratios: Mapping[str, Fraction]) -> dict[str, int]:
    """Return the amounts times their ratios, rounded up in the units of the amounts."""
    return {name: math.ceil(amount * ratios.get(name, 1)) for name, amount in amounts.items()}
