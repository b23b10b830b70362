"""Which pods get CPUs of their own, and under which policies."""

from dataclasses import replace

import pytest

from placement.common.manifest import Profile
from placement.engine.numa.demand import BindPolicy, ExclusiveLevel, NumaStrategy, PodRefused
from placement.engine.scoring.order import DEFAULT_SCORING, Strategy
from placement.engine.scoring.rule import Shape
from placement.pods.koordinator.settings import SchedulerSettings
from tests.unit.pods.koordinator.pods import (
    BIND,
    DESIGN,
    HINT,
    KOORD,
    PRIORITY,
    build_pod,
    container,
    host,
    judged,
    lsr,
    reasons,
    request_of,
)

NOT_BOUND = SchedulerSettings(default_bind_policy=BindPolicy.NONE)
SPREADING = SchedulerSettings(default_bind_policy=BindPolicy.SPREAD_BY_PCPUS)
FRACTIONAL = container(cpu="1500m", memory="1Gi")


def ratio(*points):
    return Strategy("RequestedToCapacityRatio", DEFAULT_SCORING.resources, Shape(points, 100))


def policies(spec, settings=DESIGN):
    request = request_of(lsr(spec=spec), settings)
    return request.bound, request.required_bind, request.preferred_bind


@pytest.mark.parametrize(
    ("spec", "settings", "expected"),
    [
        (None, DESIGN, (True, "", "FullPCPUs")),
        ({}, SPREADING, (True, "", "SpreadByPCPUs")),
        ({"preferredCPUBindPolicy": "Default"}, SPREADING, (True, "", "SpreadByPCPUs")),
        ({"preferredCPUBindPolicy": "SpreadByPCPUs"}, DESIGN, (True, "", "SpreadByPCPUs")),
        ({"requiredCPUBindPolicy": "Default"}, SPREADING, (True, "SpreadByPCPUs", "SpreadByPCPUs")),
        ({"requiredCPUBindPolicy": "FullPCPUs"}, SPREADING, (True, "FullPCPUs", "SpreadByPCPUs")),
        ({"requiredCPUBindPolicy": "FullPCPUs"}, NOT_BOUND, (True, "FullPCPUs", "")),
        ({}, NOT_BOUND, (False, "", "")),
        ({"requiredCPUBindPolicy": "Default"}, NOT_BOUND, (False, "", "")),
        ({"requiredCPUBindPolicy": "Full"}, DESIGN, (False, "", "")),
        ({"preferredCPUBindPolicy": "Full"}, DESIGN, (False, "", "")),
        ({"preferredCPUBindPolicy": "ConstrainedBurst"}, DESIGN, (False, "", "")),
        (
            {"requiredCPUBindPolicy": "FullPCPUs", "preferredCPUBindPolicy": "x"},
            DESIGN,
            (True, "FullPCPUs", ""),
        ),
    ],
)
def test_the_required_policy_comes_before_the_preferred_one(spec, settings, expected):
    assert policies(spec, settings) == expected


@pytest.mark.parametrize(
    ("document", "bound"),
    [
        (lsr(), True),
        (lsr(qos="LSE"), True),
        (lsr(qos="LSE", priority=None), True),  # prod by default
        (lsr(qos="LSE", priority=5000), False),
        (lsr(priority=5000, labels={PRIORITY: "koord-prod"}), True),
        (build_pod(qos="LS", priority=9500), False),
        (build_pod(priority=9500), False),  # Guaranteed for Kubernetes, LS for the scheduler
        (lsr(container(memory="1Gi")), False),
    ],
)
def test_only_lse_and_lsr_pods_of_class_prod_that_request_cpus(document, bound):
    assert request_of(document).bound is bound


def test_a_request_that_is_no_whole_number_is_refused_everywhere():
    with pytest.raises(PodRefused, match="the requested CPUs must be integer") as refused:
        request_of(lsr(FRACTIONAL))
    assert refused.value.refusal.status == "UnschedulableAndUnresolvable"
    assert request_of(lsr(FRACTIONAL, spec={"preferredCPUBindPolicy": "x"})).need == 1
    assert request_of(lsr(container(cpu="500m"), container(cpu="1500m"))).need == 2


def test_a_pod_that_requests_nothing_is_skipped():
    assert request_of(build_pod(container())) is None
    assert judged(host(), build_pod(container())).fits


@pytest.mark.parametrize("policy", ["FullPCPUsOnly", "SpreadByPCPUs"])
def test_a_host_with_a_bind_policy_binds_everyone_who_requests_cpus(policy):
    strict = host(labels={BIND: policy}, settings=KOORD)
    assert judged(strict, build_pod(qos="LS")).fits
    fractional = build_pod(FRACTIONAL, qos="LS")
    assert reasons(strict, fractional, KOORD) == ("the requested CPUs must be integer",)
    assert reasons(host(labels={BIND: policy}), fractional) == ()
    assert judged(strict, build_pod(container(memory="1Gi"))).fits
    assert judged(strict, build_pod(container(**{"kubernetes.io/batch-cpu": "1500"}), qos="BE")).fits
    assert judged(host(), build_pod(FRACTIONAL, qos="LS")).fits


def test_a_resource_status_is_only_honoured_with_a_hint_that_names_the_mechanism():
    status = {"cpuset": "0-3", "numaNodeResources": [{"node": 0, "resources": {"cpu": 4}}]}
    named = {HINT: {"nodeNames": ["node-1"], "extensions": {"NodeNUMAResource": {}}}}
    assert request_of(lsr(status=status)).designated is None
    assert (
        request_of(lsr(status=status, annotations={HINT: {"extensions": {"Other": {}}}})).designated is None
    )
    assert request_of(lsr(status=status, annotations=named, nodeName="node-1")).designated is None
    designated = request_of(lsr(status=status, annotations=named)).designated
    assert designated.cpus == frozenset(range(4))
    assert dict(designated.amounts) == {0: {"cpu": 4000}}


@pytest.mark.parametrize("policy", ["", "Default"])
def test_the_default_exclusive_policy_is_a_setting_under_design(policy):
    pod = lsr(spec={"preferredCPUExclusivePolicy": policy})
    for profile, level in ((Profile.DESIGN, "PCPULevel"), (Profile.KOORD_SCHEDULER, "None")):
        settings = SchedulerSettings(profile, default_exclusive_level=ExclusiveLevel.PCPU_LEVEL)
        assert request_of(pod, settings).exclusive == level
    assert request_of(pod).exclusive == "None"
    assert request_of(lsr(spec={"preferredCPUExclusivePolicy": "NUMANodeLevel"})).exclusive == "NUMANodeLevel"


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
