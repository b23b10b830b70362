"""Kubernetes quantities, exactly."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from placement.kubernetes.errors import QuantityError, shown

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

# Three digits of exponent reach far beyond any machine; more would let one short text fill the memory.
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40}))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[KMGTPE]i|[numkMGTPE]?))"
)


def parse_quantity(value: object) -> Fraction:
    """The exact amount of a quantity such as `4`, `500m`, `1.5Gi` or `1e3`, in the resource's base unit.

    Plain numbers, as YAML parses them, are taken as they are. Raises QuantityError for anything else.
    Source: Kubernetes resource quantities.
    """
    if isinstance(value, str) and (match := _QUANTITY.fullmatch(value)):
        return Fraction(match["number"].rstrip(".")) * _scale(match["exponent"], match["suffix"])
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    if isinstance(value, float) and math.isfinite(value):
        return Fraction(repr(value))  # the digits as written, not their nearest binary fraction
    raise QuantityError(f"{shown(value)} is not a Kubernetes quantity")


def _scale(exponent: str | None, suffix: str | None) -> Fraction:
    if exponent is not None:
        return Fraction(10) ** int(exponent)
    if suffix in _BINARY:
        return Fraction(2) ** _BINARY[suffix]
    return Fraction(10) ** _DECIMAL[suffix or ""]
