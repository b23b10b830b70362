"""What QoS classes answer, the NUMA strategy that settings make, and requests as keys of what is known."""

from dataclasses import replace

import pytest

from placement.common.manifest import Profile
from placement.engine.numa.host import NumaStrategy
from placement.engine.scoring.order import DEFAULT_SCORING, Strategy
from placement.engine.scoring.parameters import Shape
from placement.pods.state.model import QosClass, SchedulerSettings
from tests.unit.pods.koordinator.pods import container, lsr, request_of

EVENLY = {"default_numa_strategy": NumaStrategy.DISTRIBUTE_EVENLY}


def ratio(*points):
    return Strategy("RequestedToCapacityRatio", DEFAULT_SCORING.resources, Shape(points, 100))


def of_type(name):
    return replace(DEFAULT_SCORING, type=name)


@pytest.mark.parametrize(
    ("given", "strategy"),
    [
        ({}, "LeastAllocated"),
        ({"numa_scoring": of_type("MostAllocated")}, "MostAllocated"),
        ({"numa_scoring": of_type("BalancedAllocation")}, "LeastAllocated"),
        ({"numa_scoring": ratio((0, 0), (100, 100))}, "MostAllocated"),
        ({"numa_scoring": ratio((0, 100), (100, 0))}, "LeastAllocated"),
        (EVENLY, "DistributeEvenly"),
        ({**EVENLY, "profile": Profile.KOORD_SCHEDULER}, "LeastAllocated"),
    ],
)
def test_the_numa_strategy_follows_the_numa_scoring_unless_it_is_set(given, strategy):
    assert SchedulerSettings(**given).numa_strategy == strategy


def test_each_class_answers_what_its_pods_may():
    answers = {
        "owns_cpus": {"LSE", "LSR"},
        "shares_with_best_effort": {*map(str, QosClass)} - {"LSE"},
        "uses_ls_pools": {"LS"},
        "uses_system_cpus": {"SYSTEM"},
    }
    for name, classes in answers.items():
        assert {str(qos) for qos in QosClass if getattr(qos, name)} == classes, name


def test_equal_requests_are_equal_keys():
    one, other = request_of(lsr()), request_of(lsr())
    assert one == other
    assert hash(one) == hash(other)
    assert one != request_of(lsr(container(cpu="5")))
