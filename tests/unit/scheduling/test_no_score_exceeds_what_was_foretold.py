"""Hosts are tried in the order of what they can score at most, so nothing may score more than that."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.numa.host_score import HostTotals
from placement.scheduling.filter import PodJudge
from placement.scoring.shape import Shape
from placement.scoring.strategy import Strategy
from placement.scoring.weights import Weighted
from tests.unit.dialects.koordinator import pods
from tests.unit.dialects.koordinator.conftest import build_zone


def weighted(weights):
    return tuple(Weighted(*entry) for entry in weights.items())


CPUS = st.integers(1, 10)
GIB = 2**30
HOLDINGS = st.lists(
    st.builds(
        lambda first, count, milli, memory: pods.held(
            f"{first}-{min(15, first + count)}" if count else "",
            numa0={"cpu": milli, "memory": memory * GIB},
            numa1={"cpu": 1000 * count},
        ),
        st.integers(0, 15),
        st.integers(0, 5),
        st.integers(0, 4000),
        st.integers(0, 6),
    ),
    max_size=3,
)
RESOURCES = st.sampled_from([{"cpu": 1, "memory": 1}, {"cpu": 3, "memory": 1}, {"memory": 1}])
SHAPES = st.sampled_from([((0, 0), (100, 100)), ((0, 100), (100, 0)), ((20, 30), (60, 100), (90, 0))])
SCORINGS = st.one_of(
    st.builds(
        lambda kind, weights: Strategy(kind, weighted(weights)),
        st.sampled_from(["LeastAllocated", "MostAllocated"]),
        RESOURCES,
    ),
    st.just(Strategy("BalancedAllocation", weighted({"cpu": 1, "memory": 1}))),
    st.builds(
        lambda points, weights: Strategy("RequestedToCapacityRatio", weighted(weights), Shape(points, 100)),
        SHAPES,
        RESOURCES,
    ),
)
ZONES = st.sampled_from(
    [
        None,
        [build_zone(0, cpu="8", memory="4Gi"), build_zone(1, cpu="6", memory="16Gi")],
        [build_zone(0, cpu="8", memory="8Gi"), build_zone(1, cpu="8")],
        [build_zone(0, cpu="16", memory="8Gi")],
    ]
)


@settings(max_examples=300)
@given(
    holdings=HOLDINGS,
    scoring=SCORINGS,
    zones=ZONES,
    ratio=st.sampled_from([1.0, 1.5]),
    host_policy=st.sampled_from([None, "SingleNUMANode", "Restricted", "BestEffort"]),
    pod_policy=st.sampled_from([None, "SingleNUMANode", "Restricted", "BestEffort"]),
    exclusive=st.sampled_from([None, "Preferred", "Required"]),
    cpu=CPUS,
    bound=st.booleans(),
    requested=st.integers(0, 20_000),
    profile=st.sampled_from([pods.DESIGN, pods.KOORD]),
)
def test_the_score_of_a_pod_that_fits_is_at_most_the_highest(
    holdings,
    scoring,
    zones,
    ratio,
    host_policy,
    pod_policy,
    exclusive,
    cpu,
    bound,
    requested,
    profile,
):
    cluster = replace(profile, host_scoring=scoring)
    numa = {"numaTopologyPolicy": pod_policy, "singleNUMANodeExclusive": exclusive}
    document = (pods.lsr if bound else pods.build_pod)(
        pods.container(cpu=str(cpu), memory="2Gi"), numa={key: text for key, text in numa.items() if text}
    )
    place = pods.host(
        *holdings,
        settings=cluster,
        zones=zones,
        labels={pods.NUMA: host_policy} if host_policy else {},
        annotations={pods.RATIO: {"cpu": ratio}},
    )
    totals = HostTotals(
        {"cpu": int(16_000 * ratio), "memory": 32 * GIB, "pods": 110}, {"cpu": requested, "memory": 3 * GIB}
    )
    judge = PodJudge(pods.request_of(document, cluster), scoring)
    verdict = judge.judge(place, totals)
    if verdict.fits:
        highest = judge.highest_score(place, totals)
        assert verdict.score <= highest
        if host_policy is None and pod_policy is None:
            assert verdict.score == highest
