"""The accumulator takes exactly the CPUs that its rules name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.numa.accumulator import take_cpus
from placement.engine.numa.cpuset import mask_of
from placement.engine.numa.demand import Distribution, PickRules, PodRefused
from tests.unit.engine.numa.naive_accumulator import naive_take
from tests.unit.engine.numa.samples import problems, shown

MOST, LEAST = PickRules(fullest_first=True), PickRules()


@settings(max_examples=300)
@given(problems())
def test_it_agrees_with_the_rules_taken_word_by_word(problem):
    assert shown(take_cpus(**problem)) == shown(mask_of(naive_take(**problem)))


@settings(max_examples=150)
@given(problems(tuple(Distribution), (False, True)))
def test_it_takes_exactly_what_is_needed_of_what_is_available_and_always_the_same(problem):
    taken = take_cpus(**problem)
    assert taken.bit_count() == problem["demand"].need
    assert not taken & ~problem["available"]
    assert take_cpus(**problem) == taken


@given(problems(), st.integers(1, 3))
def test_more_than_is_available_is_refused(problem, more):
    problem["demand"] = problem["demand"]._replace(need=problem["available"].bit_count() + more)
    with pytest.raises(PodRefused, match="not enough cpus available to satisfy request"):
        take_cpus(**problem)
