"""On a real Kubernetes, each release there is: nodes are deleted and registered again under running pods."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from placement.engine.numa.cpus import parse_cpu_list
from tests.faults.around_kubernetes import Lab, lab
from tests.real_kubernetes import ControlPlane
from tests.stepping import cpus_of, node_of, runs
from tests.synchronizing import eventually

HOSTS = ("host-0", "host-1")
ROUNDS = 10


@pytest.fixture
def around(any_kubernetes: ControlPlane, connection_url: str, tmp_path: Path) -> Iterator[Lab]:
    with lab(any_kubernetes, connection_url, tmp_path) as found:
        for host in HOSTS:
            found.add_node(host)
        yield found


def bind_anywhere(around: Lab) -> None:
    """Each pod that waits is bound to the first node that takes it, asked as kube-scheduler does."""
    for pod in around.kubernetes.pods():
        if node_of(pod):
            continue
        for host in HOSTS:
            if not around.bind(pod["metadata"]["name"], pod["metadata"]["uid"], host):
                break


def none_twice(around: Lab) -> None:
    """No CPU is written to two pods that run, nor recorded twice."""
    owners: dict[tuple[str, int], str] = {}
    for pod in around.kubernetes.pods():
        if runs(pod):
            for cpu in cpus_of(pod):
                place = str(node_of(pod)), cpu
                assert place not in owners, (place, owners[place], pod["metadata"]["name"])
                owners[place] = pod["metadata"]["name"]
    for pod in around.service("GET", "/pods")["pods"]:
        for cpu in parse_cpu_list(pod["cpuset"]) if pod["node"] else ():
            assert owners.setdefault((pod["node"], cpu), pod["name"]) == pod["name"]


def come_back(around: Lab, host: str) -> None:
    """A node that was deleted registers again; its topology stayed."""
    whole = around.kubernetes.call("GET", f"/api/v1/nodes/{host}")
    for name in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        whole["metadata"].pop(name, None)
    around.kubernetes.call("DELETE", f"/api/v1/nodes/{host}")
    bind_anywhere(around)
    around.kubernetes.create({"apiVersion": "v1", "kind": "Node", **whole})


def test_no_cpu_is_given_twice_while_nodes_come_back(around: Lab) -> None:
    chance = random.Random(7)
    with around.synchronized(len(HOSTS)) as sync:
        for number in range(12):
            around.create_pod(f"run-{number}")
        bind_anywhere(around)
        for round_ in range(ROUNDS):
            stands_still = round_ % 3 == 2
            if stands_still:
                sync.process.send_signal(signal.SIGSTOP)
            for number in range(3):
                around.create_pod(f"new-{round_}-{number}")
            come_back(around, chance.choice(HOSTS))
            bind_anywhere(around)
            none_twice(around)
            if stands_still:
                sync.process.send_signal(signal.SIGCONT)
            for pod in chance.sample(around.kubernetes.pods(), 3):
                around.kubernetes.delete_pod(pod["metadata"]["name"])
            bind_anywhere(around)
            none_twice(around)
        agree(around)
        none_twice(around)
        around.kubernetes.call("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
        eventually({}, around.claims)
        assert [around.used(host) for host in HOSTS] == [0, 0]


def agree(around: Lab) -> None:
    """Pods that wait find their place or not, and then both sides are the same."""
    for pod in around.kubernetes.pods():
        if not node_of(pod):
            around.kubernetes.delete_pod(pod["metadata"]["name"])
    expected = {pod["metadata"]["name"]: node_of(pod) for pod in around.kubernetes.pods() if runs(pod)}
    eventually(expected, around.claims)
