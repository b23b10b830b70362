"""Values of query parameters: what is understood, and what is said about the rest."""

from __future__ import annotations

from placement.http import query_grammar
from placement.http.query_grammar import Grammar

OLD = Grammar(False, False, False, False, False)
A, B = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


def test_resources_are_amounts_by_class_and_the_last_of_a_repeated_class_wins():
    assert query_grammar.parse_resources("VCPU:2,MEMORY_MB:1024,VCPU:3") == {"VCPU": 3, "MEMORY_MB": 1024}


def test_amounts_of_any_length_cost_nothing():
    assert query_grammar.parse_resources("VCPU:" + "9" * 5000)["VCPU"] > 2**62


def test_required_traits_any_of_sets_and_forbidden_ones():
    expression = query_grammar.parse_required(["A, B,!C,!!!D", "in:E,F"], Grammar())
    assert expression.required == (frozenset("A"), frozenset("B"), frozenset("EF"))
    assert expression.forbidden == {"C", "D"}


def test_where_repeating_is_not_understood_the_last_value_counts():
    assert query_grammar.parse_required(["A", "B"], OLD).required == (frozenset("B"),)


def test_aggregates_positive_negative_single_and_many_are_normalised():
    expression = query_grammar.parse_member_of(
        [A.replace("-", "").upper(), f"in:{A},{B}", f"!in:{B}"], Grammar()
    )
    assert expression.required == (frozenset({A}), frozenset({A, B}))
    assert expression.forbidden == {B}
