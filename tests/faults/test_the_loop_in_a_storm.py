"""On a real Kubernetes, each release: much happens while the loop binds, and processes are killed."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from placement.storage.database import Database
from tests.faults.around_kubernetes import CLUSTER, Lab, lab
from tests.faults.loops import ask, bound, cpus_of, is_scheduled, none_twice, running_loop, runs
from tests.patience import eventually
from tests.pod_invariants import check, nothing_is_held
from tests.real_kubernetes import ControlPlane, Refused
from tests.server import database_url
from tests.synchronizing import Synchronizing

HOSTS = [f"host-{number}" for number in range(4)]
# Pods of two whole CPUs fill sixteen CPUs.
ROOM = 8 * len(HOSTS)
LEASE = "placement-schedule-edge"
LEASE_SECONDS = 3
_LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/placement/leases/{LEASE}"
_RIGHTS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_RESIZED = 33
_PAUSE_SECONDS = 0.02
_LEADS = "this process leads"


@pytest.fixture
def database() -> Iterator[Database]:
    with database_url("postgresql") as connection:
        found = Database(connection)
        yield found
        found.dispose()


@pytest.fixture
def around(any_kubernetes: ControlPlane, database: Database, tmp_path: Path) -> Iterator[Lab]:
    for name, value in (("low", 10), ("high", 1000)):
        metadata = {"name": name}
        any_kubernetes.ensure(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": metadata,
                "value": value,
            }
        )
    connection = database.url.render_as_string(hide_password=False)
    with lab(any_kubernetes, connection, tmp_path) as found:
        for host in HOSTS:
            found.add_node(host)
        yield found
    with suppress(Refused):
        any_kubernetes.call("DELETE", _LEASE_PATH)


class Users(threading.Thread):
    """Those who make, resize, end and delete pods and register nodes anew, until it is `over`."""

    def __init__(self, around: Lab) -> None:
        super().__init__(daemon=True)
        self._around = around
        self._kubernetes = around.kubernetes
        self._chance = random.Random(11)
        self.made = 0
        self.over = threading.Event()
        self.failure: BaseException | None = None
        # The node of each pod that was seen bound, by uid.
        self.seen: dict[str, str] = {}

    def run(self) -> None:
        try:
            while not self.over.wait(_PAUSE_SECONDS):
                # The API server may be away, and what was to be changed gone.
                with suppress(Refused, OSError, HTTPException):
                    self._act()
                with suppress(Refused, OSError, HTTPException):
                    self.look()
        except BaseException as failure:
            self.failure = failure

    def look(self) -> None:
        """Nothing is as it must not be: a pod stays where it was bound first, no CPU has two owners."""
        for pod in none_twice(self._around):
            if node := pod["spec"].get("nodeName"):
                assert self.seen.setdefault(pod["metadata"]["uid"], node) == node

    def _act(self) -> None:
        dice, pods = self._chance.random(), self._kubernetes.pods()
        pod = self._chance.choice(pods) if pods else None
        if pod is None or (dice < 0.35 and len(pods) < 2 * ROOM):
            self.made += 1
            some = {"priorityClassName": self._chance.choice(["low", "high"])} if dice < 0.2 else {}
            ask(self._around, f"pod-{self.made}", **some)
        elif dice < 0.45 and len(pods) < 2 * ROOM:
            self.made += 1
            for member in range(3):
                ask(self._around, f"gang-{self.made}-{member}", gang=(f"gang-{self.made}", 3))
        elif dice < 0.75:
            self._kubernetes.delete_pod(pod["metadata"]["name"])
        elif dice < 0.85 and runs(pod):
            self._kubernetes.set_phase(pod["metadata"]["name"], self._chance.choice(["Failed", "Succeeded"]))
        elif dice < 0.95 and runs(pod) and self._kubernetes.minor >= _RESIZED:
            amounts = {"cpu": "2", "memory": self._chance.choice(["1Gi", "2Gi", "512Mi"])}
            container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
            path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/resize"
            body = {"spec": {"containers": [container]}}
            self._kubernetes.call("PATCH", path, body, "application/strategic-merge-patch+json")
        elif dice > 0.97:
            self._come_back(self._chance.choice(HOSTS))

    def _come_back(self, host: str) -> None:
        """A node that was deleted registers again under its pods."""
        whole = self._kubernetes.call("GET", f"/api/v1/nodes/{host}")
        for name in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            whole["metadata"].pop(name, None)
        self._kubernetes.call("DELETE", f"/api/v1/nodes/{host}")
        eventually(True, lambda: self._is_back({"apiVersion": "v1", "kind": "Node", **whole}))

    def _is_back(self, node: dict[str, Any]) -> bool:
        with suppress(Refused, OSError, HTTPException):
            self._kubernetes.ensure(node)
            return True
        return False


class Replicas:
    """Two loops that take turns."""

    def __init__(self, around: Lab, stack: ExitStack) -> None:
        self._around = around
        self._stack = stack
        self.loops: list[Synchronizing] = []

    def start(self) -> None:
        """One more begins."""
        arguments = ("--lease", f"placement/{LEASE}", "--lease-duration", str(LEASE_SECONDS))
        self.loops.append(self._stack.enter_context(running_loop(self._around, *arguments, said="Lease ")))

    def leader(self) -> Synchronizing:
        """The one that leads; waited for."""
        eventually(True, lambda: any(map(_leads, self.loops)))
        return next(filter(_leads, self.loops))

    def kill_leader(self) -> None:
        """The leader ends without a word, and another one comes."""
        leader = self.leader()
        leader.process.kill()
        leader.process.wait()
        self.loops.remove(leader)
        self.start()

    def hold_leader(self) -> None:
        """The leader sleeps until another one leads, and wakes up."""
        leader = self.leader()
        leader.process.send_signal(signal.SIGSTOP)
        others = [loop for loop in self.loops if loop is not leader]
        eventually(True, lambda: any(map(_leads, others)))
        leader.process.send_signal(signal.SIGCONT)


def _leads(loop: Synchronizing) -> bool:
    said = [line for line in loop.said.splitlines() if line.startswith("Lease ")]
    return bool(said) and said[-1].endswith(_LEADS)


def kill_workers(around: Lab) -> None:
    """The service's workers end in the midst of what they do; others come instead."""
    for worker in around.server.workers():
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def kill_api_server(around: Lab) -> None:
    """Kubernetes' API server ends without a word, and comes back."""
    around.kubernetes.servers.kill("kube-apiserver")
    around.kubernetes.servers.start_api_server()
    around.kubernetes.await_ready()


def take_rights(around: Lab, loop: Synchronizing) -> None:
    """The loop may do nothing for a while."""
    rights = around.kubernetes.call("GET", f"{_RIGHTS}/placement-schedule")
    around.kubernetes.call("DELETE", f"{_RIGHTS}/placement-schedule")
    try:
        eventually(True, lambda: "forbidden" in loop.said)
    finally:
        del rights["metadata"]["resourceVersion"], rights["metadata"]["uid"]
        around.kubernetes.create(rights)


def test_what_fits_is_bound_once_though_much_happens_and_processes_are_killed(
    around: Lab, database: Database
) -> None:
    users = Users(around)
    with ExitStack() as stack:
        replicas = Replicas(around, stack)
        replicas.start()
        replicas.start()
        users.start()
        faults: list[Callable[[], object]] = [
            replicas.kill_leader,
            lambda: kill_workers(around),
            lambda: kill_api_server(around),
            lambda: take_rights(around, replicas.leader()),
            replicas.hold_leader,
            lambda: kill_workers(around),
            replicas.kill_leader,
        ]
        try:
            for fault in faults:
                fault()
                # It goes on, until pods are bound that were not before.
                before = len(users.seen)
                eventually(
                    True, lambda least=before + 8: users.failure is not None or len(users.seen) >= least
                )
        finally:
            users.over.set()
            users.join()
        assert users.failure is None, users.failure
        # More pods wait than fit.
        for number in range(ROOM):
            ask(around, f"last-{number}")
        eventually(ROOM, lambda: len(bound(around)))
        eventually(bound(around), around.claims)
        users.look()
        recorded = {pod["name"]: pod for pod in around.service("GET", "/pods")["pods"] if pod["node"]}
        for pod in filter(runs, none_twice(around)):
            assert is_scheduled(pod), pod
            assert cpus_of(pod), pod
        assert recorded.keys() == bound(around).keys()
        check(database, CLUSTER)
        around.kubernetes.call("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
        eventually(True, lambda: nothing_is_held(database))
        for loop in replicas.loops:
            assert "Traceback" not in loop.said
