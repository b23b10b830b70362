"""What the node agent reports and does: kubelet's state file, lists of containers, reserved CPUs."""

import json

import pytest

from placement.dialects.koordinator.node.agent_reservation import agent_reserved_cpus
from placement.dialects.koordinator.node.kubelet_pods import KubeletPod
from placement.dialects.koordinator.status.container_cpus import AgentView, container_cpu_list
from placement.dialects.koordinator.status.kubelet_state import kubelet_allocs
from placement.kubernetes.errors import ManifestError
from placement.kubernetes.field import Field
from placement.kubernetes.report import Report
from placement.numa.pools import SharedPool
from tests.unit.dialects.koordinator.pods import ROWS, build_pod, container, imported_node, lsr, read

LS = (SharedPool(0, 0, frozenset(range(4))), SharedPool(1, 1, frozenset(range(8, 12))))
BE = (SharedPool(0, 0, frozenset(range(8))), SharedPool(1, 1, frozenset(range(8, 16))))


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
    ("document", "view", "expected"),
    [
        (lsr(status={"cpuset": "3,1-2"}), AgentView(LS), "1-3"),
        (
            build_pod(status={"numaNodeResources": [{"node": 1, "resources": {"cpu": "1"}}]}),
            AgentView(LS),
            "8-11",
        ),
        (
            build_pod(
                qos="BE",
                status={"numaNodeResources": [{"node": 0, "resources": {"kubernetes.io/batch-cpu": "1"}}]},
            ),
            AgentView(LS, BE, manages_best_effort=True),
            "0-7",
        ),
        (
            build_pod(qos="LS", status={"numaNodeResources": [{"node": 1, "resources": {"memory": "1"}}]}),
            AgentView(LS),
            "0-3,8-11",
        ),
        (build_pod(qos="SYSTEM"), AgentView(LS, system_cpus="12-13"), "12-13"),
        (build_pod(qos="SYSTEM"), AgentView(LS), "0-3,8-11"),
        (build_pod(qos="LS"), AgentView(LS, kubelet_is_static=True), "0-3,8-11"),
        (build_pod(container()), AgentView(LS), ""),
        (build_pod(container()), AgentView(LS, kubelet_is_static=True), ""),
        (build_pod(), AgentView(LS, kubelet_is_static=True), None),
        (build_pod(), AgentView(LS), "0-3,8-11"),
    ],
)
def test_the_list_of_a_container(document, view, expected):
    assert container_cpu_list(read(document), view) == expected


def test_an_unreadable_status_gives_no_list():
    with pytest.raises(ManifestError):
        container_cpu_list(read(build_pod(status="bad-alloc-fmt")), AgentView(LS))


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
    annotation = Field("reservation", json.dumps(reservation), Report()).softly().json()
    topology = imported_node(rows=ROWS).topology
    assert agent_reserved_cpus(annotation, topology) == cpus
