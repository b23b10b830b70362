"""Kubernetes quantities."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.common.manifest import QuantityError, parse_quantity


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("4", 4),
        ("+4", 4),
        ("-2", -2),
        ("500m", Fraction(1, 2)),
        ("250u", Fraction(1, 4000)),
        ("7n", Fraction(7, 10**9)),
        ("1k", 1000),
        ("2M", 2 * 10**6),
        ("3G", 3 * 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1Ki", 2**10),
        ("1Mi", 2**20),
        ("1.5Gi", 3 * 2**29),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12e-1", Fraction(6, 5)),
        ("5.", 5),
        (".5", Fraction(1, 2)),
        (20, 20),
        (0.1, Fraction(1, 10)),
    ],
)
def test_every_suffix_exponent_and_plain_number_is_read_exactly(text, amount):
    assert parse_quantity(text) == amount


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        [],
        {},
        float("nan"),
        float("inf"),
        "",
        " 1",
        "1 Gi",
        ".",
        "-",
        "1K",
        "1ki",
        "1mi",
        "1e",
        "1e99999",
        "1Gi2",
        "0x1",
        "\u0664",
        "9" * 100,
    ],
)
def test_anything_else_is_refused(value):
    with pytest.raises(QuantityError, match="is not a Kubernetes quantity"):
        parse_quantity(value)


@given(st.integers(-(10**12), 10**12), st.sampled_from(["m", "", "k", "Ki", "Gi", "e2"]))
def test_a_sign_turns_a_quantity_around(number, suffix):
    assert parse_quantity(f"{number}{suffix}") == -parse_quantity(f"{-number}{suffix}")
