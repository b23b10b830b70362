"""On a real Kubernetes: no claim outlives its pod, whatever is told in which order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults.around_kubernetes import Lab, lab, together
from tests.real_kubernetes import ControlPlane
from tests.synchronizing import eventually


@pytest.fixture
def around(kubernetes: ControlPlane, connection_url: str, tmp_path: Path) -> Iterator[Lab]:
    with lab(kubernetes, connection_url, tmp_path) as found:
        for number in range(8):
            found.add_node(f"host-{number}")
        yield found


def bind(around: Lab, pod: dict[str, Any], node: str) -> None:
    assert around.bind(pod["metadata"]["name"], pod["metadata"]["uid"], node) == ""


def live_and_die(around: Lab, number: int) -> None:
    """A pod is bound and ends at once, one way or another."""
    name = f"short-{number}"
    pod = around.create_pod(name)
    bind(around, pod, f"host-{number % 8}")
    if number % 3:
        around.kubernetes.delete_pod(name)
    else:
        around.kubernetes.set_phase(name, ("Succeeded", "Failed")[number % 2])


def nothing_is_claimed(around: Lab) -> None:
    eventually({}, around.claims)
    assert [around.used(f"host-{number}") for number in range(8)] == [0] * 8


def test_sixty_pods_that_end_before_they_are_reported_leave_nothing(around):
    with around.synchronized(8) as sync:
        together([partial(live_and_die, around, number) for number in range(60)])
        nothing_is_claimed(around)
        # Then their nodes can go.
        around.kubernetes.call("DELETE", "/api/v1/nodes")
        eventually(set(), around.nodes)
        sync.end()
        assert "still has pods" not in sync.said


def test_pods_that_come_and_go_while_nobody_looks_leave_nothing(around):
    with around.synchronized(8):
        pass
    for number in range(9):
        live_and_die(around, number)
    stays = around.create_pod("stays")
    bind(around, stays, "host-0")
    assert len(around.claims()) == 10
    with around.synchronized(8):
        eventually({"stays": "host-0"}, around.claims)


def test_a_claim_is_not_taken_for_that_of_another_pod_of_its_name(around):
    with around.synchronized(8):
        for round_ in range(10):
            first = around.create_pod("same-name")
            bind(around, first, "host-0")
            around.kubernetes.delete_pod("same-name")
            second = around.create_pod("same-name")
            bind(around, second, "host-1")
            eventually("host-1", lambda: around.claims().get("same-name"))
            eventually(0, lambda: around.used("host-0"))
            shown = around.service("GET", "/pods/default/same-name")
            assert shown["uid"] == second["metadata"]["uid"], round_
            around.kubernetes.delete_pod("same-name")
            eventually({}, around.claims)


def test_two_synchronisations_side_by_side_agree_with_kubernetes(around):
    with around.synchronized(8), around.synchronized(8):
        pods = together([partial(around.create_pod, f"pod-{number}") for number in range(30)])
        together([partial(bind, around, pod, f"host-{n % 8}") for n, pod in enumerate(pods)])
        together([partial(around.kubernetes.delete_pod, f"pod-{number}") for number in range(0, 30, 2)])
        left = {f"pod-{number}": f"host-{number % 8}" for number in range(1, 30, 2)}
        eventually(left, around.claims)
        together([partial(live_and_die, around, number) for number in range(30)])
        eventually(left, around.claims)
        assert sum(around.used(f"host-{number}") for number in range(8)) == 30
