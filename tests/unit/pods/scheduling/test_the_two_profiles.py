"""Every row in which the profiles differ: what `design` does, and what `koord-scheduler` does."""

import pytest

from placement.common.manifest import ManifestError, Profile
from placement.engine.numa.cpuset import format_cpu_list
from placement.engine.numa.demand import ExclusiveLevel, NumaPolicy, NumaStrategy
from placement.pods.koordinator.settings import SchedulerSettings
from placement.pods.rules.numa import allocate_on_host
from placement.pods.rules.rule import Fit, IncomingPod
from tests.unit.pods.koordinator.pods import (
    BIND,
    DESIGN,
    KOORD,
    NUMA,
    STRATEGY,
    admitted,
    build_pod,
    container,
    fit_host,
    held,
    host,
    judge,
    lsr,
    reasons,
    request_of,
    totals,
)

PROFILES = (DESIGN, KOORD)
BURST = {"preferredCPUBindPolicy": "ConstrainedBurst"}
STATIC = {"policy": "static", "options": {"distribute-cpus-across-numa": "true"}}


def placed(place, document, settings):
    """What a pod is given on a host where it fits."""
    request = request_of(document, settings)
    fit = fit_host(place, request)
    assert isinstance(fit, Fit), fit
    return allocate_on_host(place, request, fit)


def cpus_of(document, *holdings, settings, **node):
    given = placed(host(*holdings, settings=settings, **node), document, settings)
    return format_cpu_list(given.status.cpus)


def written(place, document, settings):
    return placed(place, document, settings).annotations(admitted(document, settings).spec)[0]


# -- NUMANodeLevel with no clean NUMA node


def test_numanodelevel_without_a_clean_numa_node():
    spec = {"preferredCPUBindPolicy": "SpreadByPCPUs", "preferredCPUExclusivePolicy": "NUMANodeLevel"}
    neighbours = held("0", "NUMANodeLevel"), held("8", "NUMANodeLevel")
    pod = lsr(container(cpu="2"), spec=spec)
    assert cpus_of(pod, *neighbours, settings=DESIGN) == "2,4"
    assert cpus_of(pod, *neighbours, settings=KOORD) == "1-2"


# -- DistributeEvenly, kubelet distribute-cpus-across-numa


@pytest.mark.parametrize(
    ("cpu", "design", "koord"),
    [("4", "0-1,8-9", "0-3"), ("6", "0-3,8-9", "0-5"), ("12", "0-5,8-13", "0-11")],
)
def test_distributeevenly(cpu, design, koord):
    for settings, expected in ((DESIGN, design), (KOORD, koord)):
        labels = {STRATEGY: "DistributeEvenly"}
        assert cpus_of(lsr(container(cpu=cpu)), settings=settings, labels=labels) == expected


@pytest.mark.parametrize(("cpu", "design", "koord"), [("4", "0-3", "0-3"), ("12", "0-5,8-13", "0-11")])
def test_distribute_cpus_across_numa(cpu, design, koord):
    for settings, expected in ((DESIGN, design), (KOORD, koord)):
        assert cpus_of(lsr(container(cpu=cpu)), settings=settings, kubelet=STATIC) == expected


# -- exclusive policy Default or empty


@pytest.mark.parametrize("spec", [{}, {"preferredCPUExclusivePolicy": "Default"}])
def test_the_default_exclusive_policy(spec):
    pod = lsr(container(cpu="2"), spec={"preferredCPUBindPolicy": "SpreadByPCPUs", **spec})
    for profile, expected in ((Profile.DESIGN, "2,4"), (Profile.KOORD_SCHEDULER, "1-2")):
        settings = SchedulerSettings(
            profile,
            default_exclusive_level=ExclusiveLevel.PCPU_LEVEL,
            default_numa_strategy=NumaStrategy.MOST_ALLOCATED,
        )
        assert cpus_of(pod, held("0", "PCPULevel"), settings=settings) == expected


# -- ConstrainedBurst


def bursting(limit="6", **members):
    return build_pod(
        container(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": limit}), spec=BURST, **members
    )


def test_constrainedburst_needs_a_shared_pool_that_covers_the_limit():
    crowded = held("0-2,8-11")
    too_small = "node(s) CPU shared pools do not cover the pod's CPU limit"
    for qos in ("LS", None):
        assert reasons(host(crowded), bursting(qos=qos)) == (too_small,)
        assert reasons(host(crowded), bursting("5", qos=qos)) == ()
        assert reasons(host(crowded, settings=KOORD), bursting(qos=qos), KOORD) == ()
    assert reasons(host(rows=(), zones=[]), bursting()) == (too_small,)


def test_the_chosen_pool_is_written():
    pool = {"cpuSharedPools": [{"socket": 1, "node": 1}]}
    assert written(host(held("0-2")), bursting(), DESIGN) == pool
    assert written(host(held("0-2"), settings=KOORD), bursting(), KOORD) == {}


def test_the_strategy_chooses_among_pools_that_cover_the_limit():
    fullest = {STRATEGY: "MostAllocated"}
    assert written(host(held("8")), bursting(), DESIGN)["cpuSharedPools"] == [{"socket": 0, "node": 0}]
    assert written(host(held("8"), labels=fullest), bursting(), DESIGN)["cpuSharedPools"] == [
        {"socket": 1, "node": 1}
    ]


def test_an_aligned_bursting_pod_stays_in_a_pool_of_its_numa_nodes():
    place = host(held("0-2", numa0={"cpu": 3000}), labels={NUMA: "SingleNUMANode"})
    assert written(place, bursting(), DESIGN) == {
        "cpuSharedPools": [{"socket": 1, "node": 1}],
        "numaNodeResources": [{"node": 1, "resources": {"cpu": "1", "memory": str(2**30)}}],
    }


def test_a_host_that_binds_everybody_needs_no_pool():
    node = {"labels": {BIND: "FullPCPUsOnly", NUMA: "SingleNUMANode"}, "settings": KOORD}
    pod = build_pod(container(requests={"cpu": "2"}, limits={"cpu": "6"}), spec=BURST)
    assert written(host(held("0-2,8-11"), **node), pod, KOORD) == {
        "cpuset": "4-5",
        "numaNodeResources": [{"node": 0, "resources": {"cpu": "2"}}],
    }


def test_only_ls_and_burstable_pods_burst():
    for pod in (bursting(qos="BE", priority=5000), bursting(qos="SYSTEM"), bursting(qosClass="Guaranteed")):
        assert request_of(pod).burst_limit is None
    assert request_of(lsr(spec=BURST)).burst_limit is None


def test_constrainedburst_needs_a_limit():
    pod = build_pod(container(requests={"cpu": "1"}), spec=BURST, qos="LS")
    with pytest.raises(ManifestError, match="ConstrainedBurst needs a limit of cpu on every container"):
        admitted(pod)
    assert admitted(pod, KOORD).request.burst_limit is None


# -- LS pod on a host with Restricted or SingleNUMANode


@pytest.mark.parametrize("policy", ["Restricted", "SingleNUMANode"])
def test_ls_pods_on_aligning_hosts_are_told_their_shared_pool(policy):
    amounts = [{"node": 1, "resources": {"cpu": "1500m", "memory": str(2**30)}}]
    pod = build_pod(container(cpu="1500m", memory="1Gi"), qos="LS")
    for settings in PROFILES:
        place = host(held("0-3", numa0={"cpu": 4000}), settings=settings, labels={NUMA: policy})
        pools = {"cpuSharedPools": [{"socket": 1, "node": 1}]} if settings is DESIGN else {}
        assert written(place, pod, settings) == {**pools, "numaNodeResources": amounts}


def test_besteffort_hosts_and_be_pods_have_no_shared_pool_written():
    place = host(labels={NUMA: "BestEffort"})
    assert "cpuSharedPools" not in written(place, build_pod(container(cpu="1")), DESIGN)
    best_effort = build_pod(container(cpu="1"), qos="BE", priority=5000)
    assert "cpuSharedPools" not in written(host(labels={NUMA: "Restricted"}), best_effort, DESIGN)


# -- LSE/LSR: CPU request equals limit


@pytest.mark.parametrize("qos", ["LSE", "LSR"])
@pytest.mark.parametrize(("limits", "shown"), [({"cpu": "8"}, "8"), ({}, "none")])
def test_lse_and_lsr_requests_equal_limits(qos, limits, shown):
    pod = lsr(container(requests={"cpu": "4"}, limits=limits), qos=qos)
    said = (
        f'pod.spec.containers[*].resources.limits: Invalid value: "{shown}": '
        f"the CPU limit of {qos} Pod must equal the requested CPUs 4"
    )
    with pytest.raises(ManifestError) as refused:
        admitted(pod)
    assert said in refused.value.findings
    assert f"Pod: {said}" in admitted(pod, KOORD).warnings
    assert admitted(lsr(qos=qos)).warnings == ()


# -- spellings of NUMA policies on hosts


# -- scheduler defaults


def test_cluster_defaults_for_the_numa_policy():
    for profile, expected in ((Profile.DESIGN, "Restricted"), (Profile.KOORD_SCHEDULER, "None")):
        settings = SchedulerSettings(profile, default_numa_policy=NumaPolicy.RESTRICTED)
        assert host(settings=settings).numa_policy == expected
        assert host(settings=settings, labels={NUMA: "None"}).numa_policy == "None"
        assert host(settings=settings, labels={NUMA: "BestEffort"}).numa_policy == "BestEffort"


def test_cluster_defaults_for_the_numa_strategy():
    for profile in Profile:
        settings = SchedulerSettings(profile, default_numa_strategy=NumaStrategy.MOST_ALLOCATED)
        assert cpus_of(lsr(), held("0-1"), settings=settings) == "2-5"
        assert cpus_of(lsr(), held("0-1"), settings=settings, labels={STRATEGY: "LeastAllocated"}) == "8-11"


# -- Preferred NUMA exclusivity


def test_preferred_exclusivity_lets_idle_numa_nodes_and_hosts_score_higher():
    numa = {"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": "Preferred"}
    pod = build_pod(container(cpu="2", memory="1Gi"), qos="LS", numa=numa)
    neighbour = held("0-1")  # bound, but without amounts: the NUMA accounts do not know it
    for settings, numa_node in ((DESIGN, 1), (KOORD, 0)):
        assert list(placed(host(neighbour, settings=settings), pod, settings).status.amounts) == [numa_node]
    both = held("0-1"), held("8-9")
    scores = {
        settings.profile: [
            judge(IncomingPod(request_of(pod, settings)), host(*holdings, settings=settings), totals()).score
            for holdings in ((), both)
        ]
        for settings in PROFILES
    }
    idle, busy = scores["design"]
    assert idle > busy > 0
    assert len(set(scores["koord-scheduler"])) == 1


# -- spellings of the design documents
