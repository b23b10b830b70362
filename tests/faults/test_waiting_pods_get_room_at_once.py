"""Pods that wait get room as soon as there is some, whoever is away, on each release there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.around_kubernetes import Lab, lab
from tests.real_kubernetes import ControlPlane
from tests.server import database_url
from tests.synchronizing import eventually


@pytest.fixture
def around(any_kubernetes: ControlPlane, tmp_path: Path) -> Iterator[Lab]:
    with database_url("sqlite") as connection, lab(any_kubernetes, connection, tmp_path) as found:
        yield found


def test_a_pod_gets_the_room_of_one_that_is_deleted(around: Lab) -> None:
    """The synchronization stands still: it reported no deletion."""
    around.add_node("host-0")
    with around.synchronized(1):
        pass
    with around.kubernetes.scheduler(around.extender()):
        for name in ("first", "second"):
            around.create_pod(name, cpus=8)
        eventually({"first", "second"}, around.bound)
        around.create_pod("waits", cpus=8)
        eventually(True, lambda: "Insufficient" in str((around.kubernetes.pod("waits") or {}).get("status")))
        around.kubernetes.delete_pod("first")
        eventually({"second", "waits"}, around.bound)


def test_pods_of_a_scheduler_that_does_not_ask_are_placed_while_the_service_is_away(around: Lab) -> None:
    """Those of the service among them, which therefore comes back."""
    around.add_node("host-0")
    away, plane = around.extender(urlPrefix="http://127.0.0.1:1", ignorable=False), around.kubernetes
    with plane.scheduler(), plane.scheduler(away, name="placement-scheduler"):
        around.create_pod("workload", cpus=8, schedulerName="placement-scheduler")
        around.create_pod("service", cpus=8)
        eventually({"service"}, around.bound)
        eventually(True, lambda: "PodScheduled" in str((plane.pod("workload") or {}).get("status")))
        assert around.bound() == {"service"}
