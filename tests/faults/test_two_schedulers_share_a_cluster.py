"""On a real Kubernetes, each release: kube-scheduler binds its own pods beside the scheduling loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from placement.common.manifest import CHOOSE_GATE, LOOP_NODE
from tests.faults.around_kubernetes import Lab, lab
from tests.faults.loops import all_pods, ask, bound, cpus_of, exceeded, none_twice, running_loop, runs
from tests.patience import eventually
from tests.real_kubernetes import ControlPlane
from tests.server import database_url

OTHER = "default-scheduler"
HOSTS = ("host-0", "host-1")
# Of one CPU each, of which another scheduler's pods share what is left.
SHARED = {"koordinator.sh/qosClass": "LS"}
_GATED = 27


@pytest.fixture
def around(any_kubernetes: ControlPlane, tmp_path: Path) -> Iterator[Lab]:
    with database_url("sqlite") as connection, lab(any_kubernetes, connection, tmp_path) as found:
        yield found


def ask_other(around: Lab, name: str) -> None:
    """A pod of one CPU asks kube-scheduler for a place."""
    ask(around, name, 1, labels=SHARED, scheduler=OTHER)


@contextmanager
def watched(around: Lab) -> Iterator[None]:
    """During the block no node ever has more pods than it has room for, and no CPU has two owners."""
    over, failures = threading.Event(), list[AssertionError]()

    def look() -> None:
        while not over.wait(0.05):
            try:
                none_twice(around)
            except AssertionError as failure:
                failures.append(failure)
                return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not failures, failures


def test_on_nodes_of_the_loop_nobody_else_binds_and_none_has_too_much(around: Lab) -> None:
    around.service("PUT", "", {"loopNodes": "marked"})
    taint = {"key": LOOP_NODE, "effect": "NoSchedule"}
    for host in HOSTS:
        around.add_node(host, labels={LOOP_NODE: "true"}, spec={"taints": [taint]})
    around.add_node("other")
    with around.kubernetes.scheduler(), running_loop(around, said="nodes 3"), watched(around):
        for number in range(20):
            ask(around, f"ours-{number}")
            ask_other(around, f"theirs-{number}")
        eventually(32, lambda: len(bound(around)))
        places = bound(around)
        assert {places[name] for name in places if name.startswith("ours")} == set(HOSTS)
        assert {places[name] for name in places if name.startswith("theirs")} == {"other"}
        assert len([name for name in places if name.startswith("ours")]) == 16
        eventually(places, around.claims)


def test_on_shared_nodes_what_kubelet_fails_is_released(around: Lab) -> None:
    for host in HOSTS:
        around.add_node(host)
    with around.kubernetes.scheduler(), running_loop(around, said="nodes 2"):
        for round_ in range(3):
            for number in range(8):
                ask(around, f"ours-{round_}-{number}")
                ask_other(around, f"theirs-{round_}-{number}")
            # Together they ask for 24 CPUs of 32 in the first round, then for more than there are.
            eventually(True, lambda: all(map(_is_told, all_pods(around))))
            # Of each kind one more than it must, so that room is given back in any case.
            for kind in ("ours", "theirs"):
                name = next(name for name in sorted(bound(around)) if name.startswith(kind))
                around.kubernetes.set_phase(name, "Failed")
            _admit(around)
        # What still waits would be bound while the rest is compared.
        for pod in all_pods(around):
            if not pod["spec"].get("nodeName"):
                around.kubernetes.delete_pod(pod["metadata"]["name"])
        _admit(around)
        eventually(True, lambda: around.claims() == bound(around))
        for pod in filter(runs, none_twice(around)):
            assert cpus_of(pod) or pod["metadata"]["name"].startswith("theirs"), pod


def _is_told(pod: dict[str, Any]) -> bool:
    """Whether a pod has a node, or knows why it has none."""
    return any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions") or ())


def _admit(around: Lab) -> int:
    """Fail the pods beyond what their nodes offer, as kubelet does; how many."""
    failed = 0
    while found := exceeded(around, all_pods(around)):
        node = next(iter(found))[0]
        on_node = [pod for pod in filter(runs, all_pods(around)) if pod["spec"]["nodeName"] == node]
        last = max(on_node, key=lambda pod: int(pod["metadata"]["resourceVersion"]))
        around.kubernetes.set_phase(last["metadata"]["name"], "Failed")
        failed += 1
    return failed


def test_a_gated_pod_gets_its_cpus_here_and_its_node_from_kube_scheduler(around: Lab) -> None:
    if around.kubernetes.minor < _GATED:
        pytest.skip("Kubernetes has no scheduling gates before 1.27")
    for host in HOSTS:
        around.add_node(host)
    gates = [{"name": CHOOSE_GATE}]
    with around.kubernetes.scheduler(), running_loop(around, said="nodes 2"):
        for number in range(6):
            ask(around, f"theirs-{number}", scheduler=OTHER, schedulingGates=gates)
            # The loop itself is asked to schedule it, and has to take the gate away first.
            ask(around, f"ours-{number}", schedulingGates=gates)
        eventually(12, lambda: len(bound(around)))
        eventually(bound(around), around.claims)
        assert all(len(cpus_of(pod)) == 2 for pod in none_twice(around))
