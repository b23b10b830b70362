"""The NUMA strategy that the settings of a cluster make, and requests as keys of what is remembered."""

from dataclasses import replace

import pytest

from placement.common.manifest import Profile
from placement.engine.numa.demand import NumaStrategy
from placement.engine.scoring.order import DEFAULT_SCORING, Strategy
from placement.engine.scoring.rule import Shape
from placement.pods.model import SchedulerSettings
from tests.unit.pods.koordinator.pods import container, lsr, request_of


def ratio(*points):
    return Strategy("RequestedToCapacityRatio", DEFAULT_SCORING.resources, Shape(points, 100))


@pytest.mark.parametrize(
    ("settings", "strategy"),
    [
        (SchedulerSettings(), "LeastAllocated"),
        (SchedulerSettings(numa_scoring=replace(DEFAULT_SCORING, type="MostAllocated")), "MostAllocated"),
        (
            SchedulerSettings(numa_scoring=replace(DEFAULT_SCORING, type="BalancedAllocation")),
            "LeastAllocated",
        ),
        (SchedulerSettings(numa_scoring=ratio((0, 0), (100, 100))), "MostAllocated"),
        (SchedulerSettings(numa_scoring=ratio((0, 100), (100, 0))), "LeastAllocated"),
        (SchedulerSettings(default_numa_strategy=NumaStrategy.DISTRIBUTE_EVENLY), "DistributeEvenly"),
        (
            SchedulerSettings(Profile.KOORD_SCHEDULER, default_numa_strategy=NumaStrategy.DISTRIBUTE_EVENLY),
            "LeastAllocated",
        ),
    ],
)
def test_the_numa_strategy_follows_the_numa_scoring_unless_it_is_set(settings, strategy):
    assert settings.numa_strategy == strategy


def test_equal_requests_are_equal_keys():
    one, other = request_of(lsr()), request_of(lsr())
    assert one == other
    assert hash(one) == hash(other)
    assert one != request_of(lsr(container(cpu="5")))
