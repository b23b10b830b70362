"""Values of query parameters: what is understood, and what is said about the rest."""

from __future__ import annotations

import pytest

from placement.engine.domain.errors import BadRequest
from placement.http import query_grammar
from placement.http.query_grammar import Grammar

OLD = Grammar(False, False, False, False, False)
A, B = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


def test_resources_are_amounts_by_class_and_the_last_of_a_repeated_class_wins():
    assert query_grammar.parse_resources("VCPU:2,MEMORY_MB:1024,VCPU:3") == {"VCPU": 3, "MEMORY_MB": 1024}


@pytest.mark.parametrize(
    ("value", "ending"),
    [
        ("", "Got: empty string."),
        ("VCPU", "Got: VCPU."),
        ("VCPU:1,", "Got: ."),
        ("VCPU:1:2", "Got: VCPU:1:2."),
        ("VCPU:fred", "expected positive integer amount. Got: fred."),
        ("VCPU:+1", "expected positive integer amount. Got: +1."),
        ("VCPU:1_0", "expected positive integer amount. Got: 1_0."),
        ("VCPU:٣", "expected positive integer amount. Got: ٣."),
        ("VCPU:0", "requires amount >= 1. Got: 0."),
        ("VCPU:-2", "requires amount >= 1. Got: -2."),
    ],
)
def test_bad_resources_name_the_piece(value, ending):
    with pytest.raises(BadRequest) as refused:
        query_grammar.parse_resources(value)
    assert str(refused.value).endswith(ending)


def test_amounts_of_any_length_cost_nothing():
    assert query_grammar.parse_resources("VCPU:" + "9" * 5000)["VCPU"] > 2**62


def test_required_traits_any_of_sets_and_forbidden_ones():
    expression = query_grammar.parse_required(["A, B,!C,!!!D", "in:E,F"], Grammar())
    assert expression.required == (frozenset("A"), frozenset("B"), frozenset("EF"))
    assert expression.forbidden == {"C", "D"}


def test_where_repeating_is_not_understood_the_last_value_counts():
    assert query_grammar.parse_required(["A", "B"], OLD).required == (frozenset("B"),)


@pytest.mark.parametrize(
    ("value", "forms", "part"),
    [
        ("", Grammar(), "HW_CPU_X86_VMX,!CUSTOM_MAGIC. Got an empty trait in: "),
        ("A,,B", Grammar(), "Got an empty trait in: A,,B"),
        ("!", Grammar(), "Got an empty trait in: !"),
        ("", OLD, "HW_CPU_X86_VMX,CUSTOM_MAGIC. Got an empty trait in: "),
        ("!A", OLD, "CUSTOM_MAGIC. Got: !A"),
        ("in:A", OLD, "only supported since microversion 1.39."),
        ("in:A,!B", Grammar(), "does not support forbidden traits"),
        ("in:A,", Grammar(), "of the form: in:HW_CPU_X86_VMX,CUSTOM_MAGIC. Got an empty trait in:"),
    ],
)
def test_bad_traits_show_the_form(value, forms, part):
    with pytest.raises(BadRequest) as refused:
        query_grammar.parse_required([value], forms)
    assert part in str(refused.value)


def test_aggregates_positive_negative_single_and_many_are_normalised():
    expression = query_grammar.parse_member_of(
        [A.replace("-", "").upper(), f"in:{A},{B}", f"!in:{B}"], Grammar()
    )
    assert expression.required == (frozenset({A}), frozenset({A, B}))
    assert expression.forbidden == {B}


@pytest.mark.parametrize(
    ("values", "forms", "part"),
    [
        ([f"{A},{B}"], Grammar(), "must be prefixed with the 'in:' or '!in:' keyword"),
        (["x"], Grammar(), "contain valid UUID(s). Got: x"),
        ([f"in:{A},"], Grammar(), "contain valid UUID(s). Got: "),
        ([f"!!{A}"], Grammar(), "contain valid UUID(s)."),
        ([A, B], OLD, "Multiple member_of parameters are not supported"),
        ([f"!{A}"], OLD, "Forbidden member_of parameters are not supported"),
    ],
)
def test_bad_aggregates_are_named(values, forms, part):
    with pytest.raises(BadRequest) as refused:
        query_grammar.parse_member_of(values, forms)
    assert part in str(refused.value)


def test_same_subtree_trims_and_refuses_the_unsuffixed_group():
    assert query_grammar.parse_same_subtree(" _A ,_B,_A") == {"_A", "_B"}
    with pytest.raises(BadRequest) as refused:
        query_grammar.parse_same_subtree("_A,")
    assert refused.value.code == "placement.query.bad_value"
