"""The CPU lists that containers of pods get on a node."""

import pytest

from placement.common.manifest import ManifestError
from placement.engine.numa.cpus import SharedPool
from tests.oracles.container_cpus import AgentView, container_cpu_list
from tests.unit.pods.koordinator.pods import build_pod, container, lsr, read

LS = (SharedPool(0, 0, frozenset(range(4))), SharedPool(1, 1, frozenset(range(8, 12))))
BE = (SharedPool(0, 0, frozenset(range(8))), SharedPool(1, 1, frozenset(range(8, 16))))


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
