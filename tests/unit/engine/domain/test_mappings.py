"""Which group got which providers is told again exactly where the amounts tell it."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given, settings

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.domain.mappings import rebuilt, settled
from tests.naive import Candidate, enumerate_candidates
from tests.strategies import Search, searches

A, B, C = (f"{letter}0000000-0000-4000-8000-000000000000" for letter in "abc")


def query(*groups: RequestGroup, **options: object) -> CandidateQuery:
    return CandidateQuery(groups, **options)


def group(suffix: str, required: str = "", **resources: int) -> RequestGroup:
    return RequestGroup(suffix, resources, required=(frozenset({required}),) if required else ())


@pytest.mark.parametrize(
    ("asked", "held", "mappings"),
    [
        (query(group("", VCPU=2, DISK_GB=1)), {A: {"VCPU": 2}, B: {"DISK_GB": 1}}, {"": [A, B]}),
        (query(group("", VCPU=2), group("1", VCPU=1)), {A: {"VCPU": 3}}, {"": [A], "1": [A]}),
        (
            query(group("1", VCPU=2), group("2", VCPU=1)),
            {A: {"VCPU": 1}, B: {"VCPU": 2}},
            {"1": [B], "2": [A]},
        ),
        (
            query(group("2", VCPU=1), group("1", VCPU=1)),
            {B: {"VCPU": 1}, A: {"VCPU": 1}},
            {"1": [A], "2": [B]},
        ),
        (query(group("1", "FAST", VCPU=1), group("2", VCPU=1)), {A: {"VCPU": 1}, B: {"VCPU": 1}}, None),
        (
            query(group("1", VCPU=2), group("2", VCPU=1), group("3", VCPU=1)),
            {A: {"VCPU": 2}, B: {"VCPU": 2}},
            None,
        ),
        (
            query(group("1", VCPU=2), group("2", VCPU=1), group("3", VCPU=1), isolate=True),
            {A: {"VCPU": 2}, B: {"VCPU": 1}, C: {"VCPU": 1}},
            {"1": [A], "2": [B], "3": [C]},
        ),
        (query(group("1", VCPU=1), group("2", "FAST")), {A: {"VCPU": 1}}, None),
        (
            query(group("1", VCPU=1), group("2", VCPU=1), same_subtree=(frozenset({"1"}),)),
            {A: {"VCPU": 1}, B: {"VCPU": 1}},
            None,
        ),
    ],
    ids=[
        "unsuffixed",
        "one provider",
        "by amount",
        "like groups",
        "traits",
        "sums",
        "isolated",
        "nothing asked",
        "roles",
    ],
)
def test_examples(asked: CandidateQuery, held: dict, mappings: dict | None) -> None:
    assert rebuilt(asked, held) == mappings


def test_what_would_take_too_long_is_left_out() -> None:
    """Forty groups of different conditions and like amounts could have got each provider."""
    groups = [group(str(number), f"T{number}", VCPU=1) for number in range(40)]
    held = {f"{number:08}-0000-4000-8000-000000000000": {"VCPU": 10} for number in range(4)}
    assert rebuilt(query(*groups), held) is None
    odd = [group(str(number), f"T{number}", VCPU=2) for number in range(40)]
    parts = {f"{number:08}-0000-4000-8000-000000000000": {"VCPU": 1} for number in range(80)}
    assert rebuilt(query(*odd), parts) is None


def _held(candidate: Candidate) -> dict[str, dict[str, int]]:
    held: dict[str, dict[str, int]] = {}
    for provider, name, amount in candidate.allocations:
        held.setdefault(provider, {})[name] = amount
    return held


@settings(max_examples=200)
@given(searches())
def test_nothing_is_told_but_what_was_told_first(given_search: Search) -> None:
    providers, asked = given_search
    for candidate in sorted(enumerate_candidates(providers, asked), key=repr)[:20]:
        first = settled(asked, {suffix: sorted(members) for suffix, members in candidate.mappings})
        again = rebuilt(asked, _held(candidate))
        if again is not None:
            assert {suffix: set(members) for suffix, members in again.items()} == {
                suffix: set(members) for suffix, members in first.items()
            }


def test_like_groups_are_settled_whatever_the_candidate() -> None:
    asked = query(group("1", VCPU=1), group("2", VCPU=1), group("3", VCPU=1))
    orders = [settled(asked, dict(zip("123", ([p] for p in order)))) for order in permutations((A, B, C))]  # noqa: B905
    assert Counter(map(str, orders)) == {str({"1": [A], "2": [B], "3": [C]}): 6}
