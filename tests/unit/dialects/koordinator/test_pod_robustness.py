"""No pod makes the dialect fail other than by being refused, and what fits is allocated as promised."""

import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.dialects.koordinator import keys
from placement.dialects.koordinator.node.kubelet import KubeletPolicy
from placement.dialects.koordinator.pod.pod_import import import_pod
from placement.dialects.koordinator.profile import Profile
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.dialects.koordinator.status.pod_records import import_running_pod
from placement.kubernetes.errors import ManifestError
from placement.scheduling.filter import PodJudge
from placement.scheduling.notes import remarks_on
from placement.scheduling.numa_fit import Fit
from placement.scheduling.reserve import allocate_on_host
from tests.oracles.kubelet_state import kubelet_allocs
from tests.unit.dialects.koordinator.pods import (
    BIND,
    NUMA,
    STRATEGY,
    build_pod,
    container,
    held,
    host,
    totals,
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(["0-3", "4-", "cpu", "1Gi", "LSR", "FullPCPUs", "Default", "Restricted", "true"])
)
WORDS = st.sampled_from(
    [
        "cpu",
        "cpuset",
        "numaNodeResources",
        "node",
        "resources",
        "requests",
        "limits",
        "extensions",
        "NodeNUMAResource",
        "requiredCPUBindPolicy",
        "preferredCPUBindPolicy",
        "preferredCPUExclusivePolicy",
        "numaTopologyPolicy",
        "singleNUMANodeExclusive",
        "entries",
    ]
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
KEYS = [value for name, value in vars(keys).items() if name.isupper()]
ANNOTATIONS = st.dictionaries(st.sampled_from(KEYS), ANYTHING.map(json.dumps) | ANYTHING, max_size=4)
RESOURCES = st.dictionaries(WORDS, st.dictionaries(WORDS, SCALARS, max_size=3) | ANYTHING, max_size=3)
CONTAINERS = st.lists(st.fixed_dictionaries({"resources": RESOURCES}) | ANYTHING, max_size=3) | ANYTHING
PODS = ANYTHING | st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Pod"),
        "metadata": st.fixed_dictionaries(
            {
                "name": st.just("p") | ANYTHING,
                "labels": st.dictionaries(st.sampled_from(KEYS), SCALARS, max_size=3) | ANYTHING,
                "annotations": ANNOTATIONS | ANYTHING,
            }
        ),
        "spec": st.fixed_dictionaries(
            {
                "containers": CONTAINERS,
                "initContainers": CONTAINERS,
                "overhead": ANYTHING,
                "priority": SCALARS,
                "nodeName": st.just("n") | ANYTHING,
                "resources": RESOURCES | ANYTHING,
            }
        )
        | ANYTHING,
        "status": st.fixed_dictionaries({"phase": SCALARS, "qosClass": SCALARS}) | ANYTHING,
    }
)


@settings(max_examples=300)
@given(PODS, PODS, st.sampled_from(Profile))
def test_a_pod_is_imported_or_refused(document, old, profile):
    chosen = SchedulerSettings(profile)
    for run in (
        lambda: import_pod(document, chosen),
        lambda: import_pod(document, chosen, old),
        lambda: import_running_pod(document, chosen, KubeletPolicy("static")),
    ):
        with suppress(ManifestError):
            run()


@given(ANYTHING.map(json.dumps) | st.text(max_size=20))
def test_a_state_file_is_read_or_refused(text):
    with suppress(ManifestError):
        kubelet_allocs(text, [])


HOSTS = st.fixed_dictionaries(
    {
        "labels": st.fixed_dictionaries(
            {
                BIND: st.sampled_from(["", "FullPCPUsOnly", "SpreadByPCPUs"]),
                NUMA: st.sampled_from(["", "None", "BestEffort", "Restricted", "SingleNUMANode"]),
                STRATEGY: st.sampled_from(["", "MostAllocated", "DistributeEvenly"]),
            }
        )
    }
)
BIND_POLICIES = st.sampled_from(["", "Default", "FullPCPUs", "SpreadByPCPUs", "ConstrainedBurst", "x"])
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
    st.fixed_dictionaries(
        {
            "requiredCPUBindPolicy": BIND_POLICIES,
            "preferredCPUBindPolicy": BIND_POLICIES,
            "preferredCPUExclusivePolicy": st.sampled_from(["", "PCPULevel", "NUMANodeLevel"]),
        }
    ),
    st.fixed_dictionaries(
        {
            "numaTopologyPolicy": st.sampled_from(["", "BestEffort", "Restricted", "SingleNUMANode"]),
            "singleNUMANodeExclusive": st.sampled_from(["", "Preferred", "Required"]),
        }
    ),
    st.sampled_from([False, False, False, True]),
)
NEIGHBOURS = st.lists(
    st.sampled_from(
        [held("0-1"), held("2,8", "PCPULevel"), held("9", "NUMANodeLevel"), held(numa1={"cpu": 5000})]
    ),
    max_size=3,
    unique_by=id,
)


@settings(max_examples=250)
@given(SENSIBLE_PODS, HOSTS, NEIGHBOURS, st.sampled_from(Profile))
def test_what_is_found_to_fit_is_allocated_within_what_is_free(document, node, neighbours, profile):
    chosen = SchedulerSettings(profile)
    pod = import_pod(document, chosen)
    place = host(*neighbours, settings=chosen, **node)
    verdict = PodJudge(pod.request).judge(place, totals())
    assert all(remarks_on(place, pod.request))
    if not isinstance(verdict.answer, Fit):
        assert verdict.answer.reasons
        return
    assert 0 <= verdict.score <= 100
    allocation = allocate_on_host(place, pod.request, verdict.answer)
    given_cpus = allocation.status.cpus
    bound = pod.request.bound or bool(node["labels"][BIND])
    assert len(given_cpus) == (pod.request.need if bound else 0)
    assert not given_cpus & frozenset[int]().union(*(neighbour.cpus for neighbour in neighbours))
    for resource in ("cpu", "memory"):
        given = sum(amounts.get(resource, 0) for amounts in allocation.status.amounts.values())
        assert given in (0, pod.request.amounts.get(resource, 0))
    status, _ = allocation.annotations(pod.spec)
    assert json.loads(json.dumps(status)) == status
