"""A search says how many passed each condition, which was the first that nobody passed, who came close."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from placement.engine.domain.explanation import (
    MOST_MISSES,
    ConditionKind,
    CountedUnit,
    Explanation,
    first_obstacle,
    sentences,
)
from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.domain.inventories import Inventory
from placement.engine.search.explanation import explain
from placement.engine.search.query import Trace, Vocabulary
from placement.engine.search.search import search
from tests.forests import World
from tests.naive import SHARING_TRAIT, NaiveProvider, enumerate_candidates
from tests.querystring import parsed
from tests.strategies import Search, searches, split_searches

ONE, TWO, CHILD = (f"{number}{'0' * 7}-0000-0000-0000-{'0' * 12}" for number in "123")
NAMES = {ONE: "one", TWO: "two", CHILD: "child"}


def world() -> World:
    """Host one with a child that has a device, and host two, nearly full and without."""
    made = World(
        [
            NaiveProvider(
                ONE, None, {"VCPU": Inventory(8, max_unit=6)}, {"VCPU": 1}, frozenset({"CUSTOM_SSD"})
            ),
            NaiveProvider(TWO, None, {"VCPU": Inventory(8), "DISK_GB": Inventory(10)}, {"VCPU": 6}),
            NaiveProvider(CHILD, ONE, {"VGPU": Inventory(2)}),
        ]
    )
    made.load()
    return made


def explained(made: World, *pairs: tuple[str, str]) -> Explanation:
    trace = Trace(one_by_one=True)
    query = made.query(parsed(pairs))
    search(made.forest, made.sharing, query, trace)
    classes = {number: name for name, number in made.classes.items()}
    traits = {number: name for name, number in made.traits.items()}
    sharing = made.sharing.of(made.forest, made.traits[SHARING_TRAIT])
    return replace(explain(made.forest, sharing, query, trace, Vocabulary(classes, traits)), names=NAMES)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (
            [("resources", "VCPU:4")],
            [
                "4 VCPU free: 1 of 2 providers, in 1 tree",
                "trees with a provider for each group up to the unsuffixed one: 1 of 2 trees",
                "trees that serve all groups side by side (sums, group_policy, same_subtree): 1 of 1 trees",
            ],
        ),
        (
            [("resources1", "VCPU:8")],
            [
                "group 1, 8 VCPU free: 0 of 2 providers, in 0 trees",
                "one lacks 1 VCPU: it has 7 free",
                "two lacks 6 VCPU: it has 2 free",
                "trees with a provider for each group up to 1: 0 of 2 trees",
                "trees that serve all groups side by side (sums, group_policy, same_subtree): 0 of 0 trees",
            ],
        ),
        (
            [("resources1", "VCPU:7")],
            [
                "group 1, 7 VCPU free: 0 of 2 providers, in 0 trees",
                "one has enough free, but the amount breaks its min_unit, max_unit or step_size",
                "two lacks 5 VCPU: it has 2 free",
                "trees with a provider for each group up to 1: 0 of 2 trees",
                "trees that serve all groups side by side (sums, group_policy, same_subtree): 0 of 0 trees",
            ],
        ),
        (
            [("resources1", "VCPU:1,VGPU:1")],
            [
                "group 1, 1 VCPU free: 2 of 2 providers, in 2 trees",
                "group 1, 1 VGPU free: 0 of 2 providers, in 0 trees",
                "one lacks 1 VGPU: it has 0 free",
                "two lacks 1 VGPU: it has 0 free",
                "trees with a provider for each group up to 1: 0 of 2 trees",
                "trees that serve all groups side by side (sums, group_policy, same_subtree): 0 of 0 trees",
            ],
        ),
        (
            [("resources1", "VCPU:1"), ("required1", "CUSTOM_SSD,!CUSTOM_SSD")],
            [
                "group 1, 1 VCPU free: 2 of 2 providers, in 2 trees",
                "group 1, trait CUSTOM_SSD: 1 of 2 providers, in 1 tree",
                "group 1, no trait CUSTOM_SSD: 0 of 1 provider, in 0 trees",
                "one met everything before; forbidden: CUSTOM_SSD",
                "trees with a provider for each group up to 1: 0 of 2 trees",
                "trees that serve all groups side by side (sums, group_policy, same_subtree): 0 of 0 trees",
            ],
        ),
        (
            [("resources1", "VGPU:1"), ("resources2", "DISK_GB:1"), ("group_policy", "none")],
            [
                "group 1, 1 VGPU free: 1 of 1 provider, in 1 tree",
                "group 2, 1 DISK_GB free: 1 of 1 provider, in 1 tree",
                "trees with a provider for each group up to 1: 1 of 2 trees",
                "trees with a provider for each group up to 2: 0 of 1 trees",
                "the tree of one lacks 1 DISK_GB for group 2: no suitable provider offers any",
                "the tree of two lacks 1 VGPU for group 1: no suitable provider offers any",
                "trees that serve all groups side by side (sums, group_policy, same_subtree): 0 of 0 trees",
            ],
        ),
        (
            [("resources1", "VGPU:1"), ("resources2", "VGPU:1"), ("group_policy", "isolate")],
            [
                "group 1, 1 VGPU free: 1 of 1 provider, in 1 tree",
                "trees with a provider for each group up to 2: 1 of 2 trees",
                "trees that serve all groups side by side (sums, group_policy, same_subtree): 0 of 1 trees",
                "the tree of one has no provider left for group 2: the groups are kept apart",
            ],
        ),
    ],
    ids=["fits", "amount", "units", "not offered", "traits", "no common tree", "isolate"],
)
def test_sentences(pairs: list[tuple[str, str]], said: list[str]) -> None:
    assert sentences(explained(world(), *pairs)) == said


def test_the_verdict_is_the_first_empty_stage_and_the_nearest_miss() -> None:
    explanation = explained(world(), ("resources", "VCPU:3,VGPU:4"))
    assert first_obstacle(explanation) == (
        "4 VGPU free: 0 of 1 provider, in 0 trees; child lacks 2 VGPU: it has 2 free"
    )
    assert first_obstacle(explained(world(), ("resources", "VCPU:1"))) == ""


ASKED_FOR_AND_OFFERED_BY_NOBODY = (
    (NaiveProvider(ONE, None, {"DISK_GB": Inventory(8), "FPGA": Inventory(8)}),),
    CandidateQuery(
        (RequestGroup("1", {"DISK_GB": 1}), RequestGroup("2", {"DISK_GB": 1, "VCPU": 1})),
    ),
)


@settings(max_examples=100)
@given(searches(), st.booleans())
@example(ASKED_FOR_AND_OFFERED_BY_NOBODY, False)
def test_explaining_changes_nothing_and_finds_a_reason_for_nothing(
    given_search: Search, one_by_one: bool
) -> None:
    _check(given_search, one_by_one)


@settings(max_examples=100)
@given(split_searches(), st.booleans())
def test_a_reason_is_found_where_amounts_are_split(given_search: Search, one_by_one: bool) -> None:
    _check(given_search, one_by_one)


def _check(given_search: Search, one_by_one: bool) -> None:
    providers, query = given_search
    made = World(providers)
    made.load()
    trace = Trace(one_by_one)
    wanted = made.query(query)
    found = made.candidates(search(made.forest, made.sharing, wanted, trace))
    assert found == made.candidates(made.search(query))
    sharing = made.sharing.of(made.forest, wanted.sharing_trait)
    classes = {number: name for name, number in made.classes.items()}
    traits = {number: name for name, number in made.traits.items()}
    explanation = explain(made.forest, sharing, wanted, trace, Vocabulary(classes, traits))
    assert (explanation.first_empty is None) == bool(enumerate_candidates(providers, query))
    assert len(explanation.misses) <= MOST_MISSES
    by_stage = [stage.trees for stage in explanation.stages if stage.counted is CountedUnit.TREES]
    assert by_stage == sorted(by_stage, reverse=True)
    assert all(
        stage.counted is CountedUnit.TREES or stage.trees <= stage.passed <= stage.came
        for stage in explanation.stages
    )
    said = sentences(explanation)
    assert all(said)
    on_trees = [stage.condition.text for stage in explanation.stages if stage.counted is CountedUnit.TREES]
    assert len(set(on_trees)) == len(on_trees)
    if explanation.first_empty is not None:
        unexplained = [
            miss for miss in explanation.misses if not (miss.shortages or miss.lacking or miss.unwanted)
        ]
        assert not unexplained, explanation.stages[explanation.first_empty]
        assert len(said) > len(explanation.stages)
    carried = {provider.uuid: provider.traits for provider in providers}
    empty = explanation.first_empty
    if empty is None or explanation.stages[empty].condition.kind is not ConditionKind.TRAITS:
        return
    for miss in explanation.misses:
        assert miss.lacking or miss.unwanted
        assert not carried[miss.provider].intersection(miss.lacking)
        assert carried[miss.provider].issuperset(miss.unwanted)
