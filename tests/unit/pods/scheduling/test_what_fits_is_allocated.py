"""What is found to fit is allocated, and no more than is free."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.common.manifest import ManifestError, Profile
from placement.pods.decide.reading import import_pod
from placement.pods.decide.rules.numa import allocate_on_host
from placement.pods.decide.rules.rule import Fit, IncomingPod
from placement.pods.koordinator import annotations as keys
from placement.pods.koordinator.annotations import status_document
from placement.pods.state.host import remarks_on
from placement.pods.state.model import SchedulerSettings
from tests.kubernetes import BIND, NUMA_POLICY
from tests.unit.pods.koordinator.pods import (
    STRATEGY,
    build_pod,
    container,
    held,
    host,
    judge,
    totals,
)


def some_of(**words):
    """A mapping with one of these words, or none, under each key."""
    return st.fixed_dictionaries({key: st.sampled_from(["", *text.split()]) for key, text in words.items()})


ALIGNED = "BestEffort Restricted SingleNUMANode"
LABELS = some_of(
    **{
        BIND: "FullPCPUsOnly SpreadByPCPUs",
        NUMA_POLICY: f"None {ALIGNED}",
        STRATEGY: "MostAllocated DistributeEvenly",
    }
)
BIND_WORDS = "Default FullPCPUs SpreadByPCPUs ConstrainedBurst x"
SENSIBLE_PODS = st.builds(
    lambda cpu, memory, qos, spec, numa, hint: build_pod(
        container(cpu=str(cpu), memory=f"{memory}Gi"),
        qos=qos,
        priority=9500,
        spec=spec,
        numa=numa,
        status={"cpuset": "0-3"} if hint else None,
        annotations={keys.SCHEDULING_HINT: '{"extensions": {"NodeNUMAResource": {}}}'} if hint else None,
    ),
    st.integers(1, 17),
    st.integers(0, 33),
    st.sampled_from(["LSE", "LSR", "LS", None]),
    some_of(
        requiredCPUBindPolicy=BIND_WORDS,
        preferredCPUBindPolicy=BIND_WORDS,
        preferredCPUExclusivePolicy="PCPULevel NUMANodeLevel",
    ),
    some_of(numaTopologyPolicy=ALIGNED, singleNUMANodeExclusive="Preferred Required"),
    st.sampled_from([False, False, False, True]),
)
NEIGHBOURS = st.lists(
    st.sampled_from(
        [held("0-1"), held("2,8", "PCPULevel"), held("9", "NUMANodeLevel"), held(numa1={"cpu": 5000})]
    ),
    max_size=3,
    unique_by=id,
)


def gives_no_cpus(document) -> bool:
    """Whether a class with CPUs of its own asks for a bind policy that binds none."""
    metadata = document["metadata"]
    spec = json.loads(metadata["annotations"][keys.RESOURCE_SPEC])
    policy = spec["requiredCPUBindPolicy"] or spec["preferredCPUBindPolicy"]
    qos = metadata.get("labels", {}).get(keys.QOS_CLASS)
    return qos in ("LSE", "LSR") and policy in ("ConstrainedBurst", "x")


@settings(max_examples=250)
@given(SENSIBLE_PODS, LABELS, NEIGHBOURS, st.sampled_from(Profile))
def test_what_is_found_to_fit_is_allocated_within_what_is_free(document, labels, neighbours, profile):
    chosen = SchedulerSettings(profile)
    if profile is Profile.DESIGN and gives_no_cpus(document):
        with pytest.raises(ManifestError, match="the CPU bind policy of LS"):
            import_pod(document, chosen)
        return
    pod = import_pod(document, chosen)
    place = host(*neighbours, settings=chosen, labels=labels)
    result = judge(IncomingPod(pod.request), place, totals())
    assert all(remarks_on(place, pod.request))
    if not isinstance(result.answer, Fit):
        assert result.answer.reasons
        return
    assert 0 <= result.score <= 100
    status, _ = allocate_on_host(place, pod.request, result.answer)
    given_cpus = status.cpus
    bound = pod.request.bound or (bool(labels[BIND]) and profile is Profile.KOORD_SCHEDULER)
    assert len(given_cpus) == (pod.request.need if bound else 0)
    assert not given_cpus & frozenset[int]().union(*(neighbour.cpus for neighbour in neighbours))
    for resource in ("cpu", "memory"):
        given = sum(amounts.get(resource, 0) for amounts in status.amounts.values())
        assert given in (0, pod.request.amounts.get(resource, 0))
    document = status_document(status)
    assert json.loads(json.dumps(document)) == document
