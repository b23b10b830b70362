"""Kubernetes quantities."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.common.manifest import QuantityError, parse_quantity

DECIMAL = {f"1{suffix}": 1000**power for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))}
BINARY = {f"1{suffix}i": 1024**power for power, suffix in enumerate("KMGTPE", start=1)}
SMALL = {"500m": Fraction(1, 2), "250u": Fraction(1, 4000), "7n": Fraction(7, 10**9)}
PLAIN = {"0": 0, "+4": 4, "-2": -2, "5.": 5, ".5": Fraction(1, 2), 20: 20, 0.1: Fraction(1, 10)}
OTHERS = {"1.5Gi": 3 * 2**29, "1e3": 1000, "1E3": 1000, "12e-1": Fraction(6, 5)}


@pytest.mark.parametrize(("text", "amount"), ({**DECIMAL, **BINARY, **SMALL, **PLAIN, **OTHERS}).items())
def test_every_suffix_exponent_and_plain_number_is_read_exactly(text, amount):
    assert parse_quantity(text) == amount


ODD = [None, True, [], {}, float("nan"), float("inf"), "", " 1", "1 Gi", "\u0664", "9" * 1001]


@pytest.mark.parametrize("value", [*ODD, *[".", "-", "1K", "1ki", "1mi", "1e", f"1e{10**18}", "1Gi2", "0x1"]])
def test_anything_else_is_refused(value):
    with pytest.raises(QuantityError, match="is not a Kubernetes quantity"):
        parse_quantity(value)


LARGEST, NANO = 2**63 - 1, Fraction(1, 10**9)
LIMITS = {
    **dict.fromkeys(
        ["1e19", "1e320", "1e999999", "99E", "8Ei", "9" * 100, 2**64, 1e300, "0.0001e30"], LARGEST
    ),
    **dict.fromkeys(["-1e19", "-1e320", -(10**400), "-99E"], -LARGEST),
    **dict.fromkeys(["1e-9", "1e-400", "0." + "0" * 900 + "1", "1e-999999", "0.1n", 1e-300], NANO),
    **dict.fromkeys(["0e999999", "0.000", "-0", 0.0], 0),
    "9223372036854775807": LARGEST,
    "9223372036854775806": LARGEST - 1,
    "1.0000000001": 1 + NANO,
    "-1.0000000001": -1 - NANO,
    "0.0000001Ki": Fraction(1024, 10**7),
}


@pytest.mark.parametrize(("value", "amount"), LIMITS.items())
def test_quantities_end_where_those_of_kubernetes_do(value, amount):
    assert parse_quantity(value) == amount


@given(st.integers(-(10**12), 10**12), st.sampled_from(["m", "", "k", "Ki", "Gi", "e2"]))
def test_a_sign_turns_a_quantity_around(number, suffix):
    assert parse_quantity(f"{number}{suffix}") == -parse_quantity(f"{-number}{suffix}")
