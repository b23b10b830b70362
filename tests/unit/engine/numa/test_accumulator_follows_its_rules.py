"""The accumulator takes exactly the CPUs that its rules name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.numa.accumulator import take_cpus
from placement.engine.numa.cpuset import mask_of
from placement.engine.numa.demand import Distribution, PickRules, PodRefused
from placement.engine.numa.host import CpuUse
from tests.unit.engine.numa.naive_accumulator import naive_take
from tests.unit.engine.numa.samples import cpus, demand, layout, problems, shown, use_of

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


def test_on_cores_of_one_thread_pcpulevel_avoids_nothing():
    place, use = layout(1, 1, 8, 1), use_of(("0-3", "PCPULevel"))
    free = place.cpus & ~use.held
    plain = take_cpus(place, use, free, demand(2, "FullPCPUs"), LEAST)
    assert take_cpus(place, use, free, demand(2, "FullPCPUs", exclusive="PCPULevel"), LEAST) == plain


def test_on_cores_of_one_thread_numanodelevel_avoids_numa_nodes():
    place, use = layout(2, 1, 4, 1), use_of(("0", "NUMANodeLevel"))
    asked = demand(2, "FullPCPUs", exclusive="NUMANodeLevel")
    assert shown(take_cpus(place, use, place.cpus & ~use.held, asked, MOST)) == "4-5"


def test_preferred_cpus_come_before_all_others():
    place = layout(2, 1, 4, 2)
    taken = take_cpus(place, CpuUse(), place.cpus, demand(6, "FullPCPUs"), LEAST, preferred=cpus("9-12"))
    assert shown(taken) == "0-1,9-12"


def test_offline_siblings_make_every_core_a_core_of_one_thread():
    place = layout(1, 1, 4, 2)
    host = type(place)(type(place.topology)(place.topology.rows[:-1]))
    assert host.threads == 1
    # Cores with two free CPUs do not count as whole; CPU 6 is the only whole core.
    assert shown(take_cpus(host, CpuUse(), host.cpus, demand(1, "FullPCPUs"), LEAST)) == "6"
