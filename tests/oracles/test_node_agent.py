"""What the node agent reports: kubelet's state file, reserved CPUs, kubelet's own choice."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.common.manifest import Field, ManifestError, ManifestReport
from placement.engine.numa.cpuset import format_cpu_list
from placement.pods.koordinator.host_cpus import KubeletPod
from tests.oracles.agent_reservation import agent_reserved_cpus
from tests.oracles.kubelet_picker import pick_like_kubelet
from tests.oracles.kubelet_state import kubelet_allocs
from tests.unit.engine.numa.samples import topologies, topology
from tests.unit.pods.koordinator.pods import ROWS, build_pod, imported_node, read


def state(**entries):
    return json.dumps({"policyName": "static", "defaultCpuSet": "0-15", "entries": entries, "checksum": 1})


def named(uid, **members):
    pod = build_pod(**members)
    pod["metadata"]["uid"] = uid
    return read(pod)


def test_containers_of_a_pod_are_united_and_pods_are_sorted():
    text = state(b={"c1": "1-2", "c2": "2-3"}, a={"c": "5"}, unpinned={})
    assert kubelet_allocs(text, [named("b")]) == (
        KubeletPod("", "", "a", frozenset({5})),
        KubeletPod("default", "pod-1", "b", frozenset({1, 2, 3})),
    )


def test_pods_that_others_manage_are_left_out():
    text = state(ls={"c": "1"}, be={"c": "2"}, listed={"c": "3"}, lsr={"c": "4"})
    pods = [
        named("ls", qos="LS"),
        named("be", qos="BE"),
        named("listed", status={"cpuset": "3"}),
        named("lsr", qos="LSR", status="{"),
    ]
    assert [pod.uid for pod in kubelet_allocs(text, pods)] == ["lsr"]


def test_an_unreadable_list_contributes_nothing():
    assert kubelet_allocs(state(p={"c1": "x", "c2": "3", "c3": 4}), []) == (
        KubeletPod("", "", "p", frozenset({3})),
    )


@pytest.mark.parametrize("text", ["", "{", "[]", '{"entries": 5}'])
def test_a_text_that_is_no_state_file_is_refused(text):
    with pytest.raises(ManifestError):
        kubelet_allocs(text, [])


@pytest.mark.parametrize(
    ("reservation", "cpus"),
    [
        ({"reservedCPUs": "5,1"}, {1, 5}),
        ({"reservedCPUs": "x", "resources": {"cpu": "2"}}, set()),
        ({"resources": {"cpu": "2500m"}}, {0, 1, 2}),
        ({"resources": {"cpu": "8"}}, set(range(8))),
        ({"resources": {"cpu": "17"}}, set()),
        ({"resources": {"memory": "1Gi"}}, set()),
    ],
)
def test_the_agent_reserves_the_list_or_what_kubelet_would_pick(reservation, cpus):
    annotation = Field("reservation", json.dumps(reservation), ManifestReport()).softly().json()
    topology = imported_node(rows=ROWS).topology
    assert agent_reserved_cpus(annotation, topology) == cpus


@pytest.mark.parametrize(
    ("count", "picked"),
    [
        (0, ""),
        (2, "0-1"),
        (3, "0-2"),  # a whole core, then a thread of its neighbour
        (8, "0-7"),  # a NUMA node
        (10, "0-9"),
        (16, "0-15"),  # a socket
        (33, ""),
    ],
)
def test_kubelet_takes_whole_places_and_low_numbers_first(count, picked):
    assert format_cpu_list(pick_like_kubelet(topology(2, 2, 4, 2), count)) == picked


@given(topologies(), st.integers(0, 20))
def test_kubelet_picks_as_many_as_asked_for_if_there_are_so_many(drawn, count):
    picked = pick_like_kubelet(drawn, count)
    assert len(picked) == (count if count <= len(drawn.rows) else 0)
    assert picked <= drawn.cpus


@given(
    st.text(max_size=20)
    | st.dictionaries(st.sampled_from(["entries", "p"]), st.text(max_size=4) | st.integers()).map(json.dumps)
)
def test_a_state_file_is_read_or_refused(text):
    with suppress(ManifestError):
        kubelet_allocs(text, [])
