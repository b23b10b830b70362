"""Pods that wait get room as soon as there is some, whoever is away, on each release there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.around_kubernetes import Lab, lab
from tests.real_kubernetes import VARIABLE, ControlPlane, releases, running_control_plane
from tests.server import database_url
from tests.synchronizing import eventually, pod_manifest


@pytest.fixture(scope="module", params=releases() or [None], ids=lambda folder: folder and folder.name)
def any_release(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A real Kubernetes of one of the releases."""
    if request.param is None:
        pytest.skip(f"NOT RUN: {VARIABLE} names no folder with the programs")
    with running_control_plane(request.param, tmp_path_factory.mktemp("kubernetes")) as running:
        yield running


@pytest.fixture
def around(any_release: ControlPlane, tmp_path: Path) -> Iterator[Lab]:
    any_release.clear()
    with database_url("sqlite") as connection, lab(any_release, connection, tmp_path) as found:
        yield found


def create(around: Lab, name: str, scheduler: str = "default-scheduler") -> None:
    pod = pod_manifest(name, cpus=8)
    pod["spec"]["schedulerName"] = scheduler
    del pod["metadata"]["uid"], pod["status"]
    around.kubernetes.create(pod)


def on_nodes(around: Lab) -> set[str]:
    return {pod["metadata"]["name"] for pod in around.kubernetes.pods() if pod["spec"].get("nodeName")}


def test_a_pod_gets_the_room_of_one_that_is_deleted(around: Lab) -> None:
    """The synchronization stands still: it reported no deletion."""
    around.add_node("host-0")
    with around.synchronized(1):
        pass
    with around.kubernetes.scheduler(around.extender()):
        for name in ("first", "second"):
            create(around, name)
        eventually({"first", "second"}, lambda: on_nodes(around))
        create(around, "waits")
        eventually(True, lambda: "Insufficient" in str((around.kubernetes.pod("waits") or {}).get("status")))
        around.kubernetes.delete_pod("first")
        eventually({"second", "waits"}, lambda: on_nodes(around))


def test_pods_of_a_scheduler_that_does_not_ask_are_placed_while_the_service_is_away(around: Lab) -> None:
    """Those of the service among them, which therefore comes back."""
    around.add_node("host-0")
    away, plane = around.extender(urlPrefix="http://127.0.0.1:1", ignorable=False), around.kubernetes
    with plane.scheduler(), plane.scheduler(away, name="placement-scheduler"):
        create(around, "workload", "placement-scheduler")
        create(around, "service")
        eventually({"service"}, lambda: on_nodes(around))
        eventually(True, lambda: "PodScheduled" in str((plane.pod("workload") or {}).get("status")))
        assert on_nodes(around) == {"service"}
