"""A walk of all that may happen to nodes and pods, with a hundred nodes registered under running pods.

The oracle is Kubernetes itself, as `tests/stepping.py` keeps it: pods that run have the CPUs that were
written to them as they were bound. Nothing that the service does is asked about how it came to that.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from placement.app import build
from placement.engine.numa.cpus import parse_cpu_list
from placement.http.registry import registry_of
from placement.storage.database import Database
from tests import pod_invariants
from tests.client import Client
from tests.conftest import compatible
from tests.kubernetes import CLUSTER, ROWS, node_manifests
from tests.stepping import (
    NODE,
    POD,
    TOPOLOGY,
    Kubernetes,
    Scheduling,
    Stepped,
    cpus_of,
    node_of,
    recorded,
    runs,
)

HOSTS = ("host-0", "host-1", "host-2")
REGISTRATIONS = 100
# Few, so that a name is soon that of another pod, as with a StatefulSet.
NAMES = tuple(f"pod-{number:02}" for number in range(18))


@pytest.fixture
def kubernetes() -> Kubernetes:
    return Kubernetes()


@pytest.fixture
def api(database: Database, kubernetes: Kubernetes) -> Iterator[Client]:
    application = build(database, compatible(), binders=kubernetes)
    yield Client(application.test_client())
    registry_of(application).close()


class Walk:
    """Nodes, pods, kube-scheduler, Bindings and synchronizations, each of which does anything at any time."""

    def __init__(self, kubernetes: Kubernetes, api: Client, seed: int) -> None:
        self.kubernetes = kubernetes
        self.api = api
        self.chance = random.Random(seed)
        self.sync = Stepped(kubernetes, api)
        self.scheduling = Scheduling(kubernetes, api)
        self.registered = 0
        self.bound = 0
        self.former: dict[str, str] = {}
        # What kube-scheduler has decided, and not asked to bind yet.
        self.decided: list[tuple[dict, str]] = []
        self.depth = 0
        for host in HOSTS:
            self.former[host] = kubernetes.register(host)
        self.sync.catch_up()
        self.sync.between = kubernetes.between = self.meanwhile

    def meanwhile(self) -> None:
        """Something happens while the synchronization or the extender is at work."""
        if self.depth < 2 and self.chance.random() < 0.3:
            self.depth += 1
            self.step(self.chance.choice(self.others()))
            self.depth -= 1

    def others(self) -> list[str]:
        """What Kubernetes and kube-scheduler do, oftener than not with pods."""
        pods = ["create", "create", "schedule", "schedule", "schedule", "decide", "bind", "bind_slowly"]
        return [*pods, "carry_out", "begin_deletion", "delete", "end", "go", "come", "come", "change"]

    def step(self, name: str) -> None:
        """Do it, and look at what holds at any moment."""
        getattr(self, name)()
        self.check()

    def run(self) -> None:
        """Walk until a hundred nodes were registered under running pods."""
        turns = ["turn", "turn", "turn", "hear", "look", "stop_or_start"]
        while self.registered < REGISTRATIONS:
            self.step(self.chance.choice([*self.others(), *turns]))

    # -- nodes ------------------------------------------------------------------------------------------

    def go(self) -> None:
        """A Node object is deleted; its pods run on. Mostly it is back at once."""
        names = self.kubernetes.names(NODE)
        if names:
            name = self.chance.choice(names)
            self.kubernetes.delete(NODE, name)
            if self.chance.random() < 0.2:
                self.kubernetes.delete(TOPOLOGY, name)
            if self.chance.random() < 0.6:
                self.comes(name)

    def come(self) -> None:
        """A node registers that was away."""
        away = sorted(set(HOSTS) - set(self.kubernetes.names(NODE)))
        if away:
            self.comes(self.chance.choice(away))

    def comes(self, name: str) -> None:
        self.registered += any(node_of(pod) == name for pod in self.kubernetes.pods() if runs(pod))
        # etcd that was set back has the former uid.
        uid = self.former[name] if self.chance.random() < 0.2 else None
        kind = self.chance.random()
        rows = ROWS[:8] if kind < 0.05 else ROWS
        self.former[name] = self.kubernetes.register(name, uid=uid, rows=rows, topology=kind < 0.9)

    def change(self) -> None:
        """A topology comes late, or a node is cordoned or not any more."""
        names = self.kubernetes.names(NODE)
        if names:
            name = self.chance.choice(names)
            cordoned = {"unschedulable": True} if self.chance.random() < 0.3 else {}
            self.kubernetes.register(name, uid=self.former[name], spec=cordoned)

    # -- pods -------------------------------------------------------------------------------------------

    def a_pod(self, *, running: bool) -> dict | None:
        found = [pod for pod in self.kubernetes.pods() if bool(node_of(pod)) is running]
        return self.chance.choice(found) if found else None

    def create(self) -> None:
        """A pod comes; some are of another scheduler, share their CPUs, and run at once."""
        free = sorted(set(NAMES) - set(self.kubernetes.names(POD)))
        if free:
            name, kind = self.chance.choice(free), self.chance.random()
            if kind < 0.15:
                self.kubernetes.create_pod(name, "1", qos="LS", node=self.chance.choice(HOSTS))
            else:
                self.kubernetes.create_pod(name, self.chance.choice(["2", "4"]))

    def schedule(self) -> None:
        """kube-scheduler finds a node for a pod and binds it there."""
        pod = self.a_pod(running=False)
        if pod is not None and self.knows_the_cluster():
            name = pod["metadata"]["name"]
            with suppress(KeyError):
                # It may be gone while kube-scheduler asks.
                self.bound += bool(self.scheduling.schedule(name))

    def decide(self) -> None:
        """kube-scheduler finds a node, and takes its time."""
        pod = self.a_pod(running=False)
        if pod is not None and self.knows_the_cluster():
            fitting = self.scheduling.filter(pod["metadata"]["name"])
            if fitting:
                self.decided.append((pod, self.chance.choice(fitting)))

    def bind(self) -> None:
        """It asks to bind what it has decided, or sends a pod anywhere."""
        if self.decided:
            self.scheduling.bind(*self.decided.pop(self.chance.randrange(len(self.decided))))

    def bind_slowly(self) -> None:
        """The API server receives a Binding, and does not answer."""
        pod = self.a_pod(running=False)
        if pod is not None and self.knows_the_cluster():
            fitting = self.scheduling.filter(pod["metadata"]["name"])
            self.kubernetes.is_slow = True
            if fitting:
                self.scheduling.bind(pod, fitting[0])
            self.kubernetes.is_slow = False

    def carry_out(self) -> None:
        """It carries out the Binding now."""
        if self.kubernetes.in_flight:
            self.kubernetes.carry_out()

    def knows_the_cluster(self) -> bool:
        return self.api.get(CLUSTER).status_code == 200

    def begin_deletion(self) -> None:
        """A pod is asked to end."""
        if pod := self.a_pod(running=True):
            self.kubernetes.begin_deletion(pod["metadata"]["name"])

    def delete(self) -> None:
        """A pod is gone."""
        if pod := self.a_pod(running=self.chance.random() < 0.8):
            self.kubernetes.delete(POD, pod["metadata"]["name"])

    def end(self) -> None:
        """A pod is over."""
        if pod := self.a_pod(running=True):
            self.kubernetes.end(pod["metadata"]["name"], self.chance.choice(["Succeeded", "Failed"]))

    # -- the synchronization ----------------------------------------------------------------------------

    def hear(self) -> None:
        """One watch brings some events; the others are behind."""
        if self.sync.runs:
            self.sync.see(self.chance.choice([NODE, TOPOLOGY, POD]), most=self.chance.randrange(1, 6))

    def turn(self) -> None:
        """The synchronization sends what it has heard of."""
        if self.sync.runs:
            if self.chance.random() < 0.5:
                self.sync.see()
            self.sync.settle()

    def look(self) -> None:
        """A minute or ten minutes are over."""
        if self.sync.runs:
            self.sync.settle(compare=self.chance.random() < 0.5, claims=True)

    def stop_or_start(self) -> None:
        """It ends, or another one begins with lists of everything."""
        (self.sync.stop if self.sync.runs else self.sync.start)()

    # -- what holds -------------------------------------------------------------------------------------

    def check(self) -> None:
        """No CPU of a node is written to two running pods."""
        owners: dict[tuple[str, int], str] = {}
        for pod in self.kubernetes.pods():
            if runs(pod):
                for cpu in cpus_of(pod):
                    place, name = (str(node_of(pod)), cpu), pod["metadata"]["name"]
                    assert place not in owners, f"{place} is of {owners[place]} and of {name}"
                    owners[place] = name

    def check_records(self) -> None:
        """No CPU is recorded twice, and pods that run with CPUs of their own are recorded.

        This holds for pods that are over, too: a watch that is behind may show one as it ran, after the
        extender released it.
        """
        found = recorded(self.api)
        owners: dict[tuple[str, int], str] = {}
        for name, pod in found.items():
            for cpu in parse_cpu_list(pod["cpuset"]):
                assert (pod["node"], cpu) not in owners, (pod, owners[pod["node"], cpu])
                owners[pod["node"], cpu] = name
        for pod in self.kubernetes.pods():
            if runs(pod) and cpus_of(pod):
                mine = found.get(pod["metadata"]["name"])
                assert mine is not None, pod["metadata"]["name"]
                assert (mine["uid"], mine["node"]) == (pod["metadata"]["uid"], node_of(pod))


# A walk takes another way with each seed, and the same one again with the same.
@pytest.mark.parametrize("seed", [1, 2])
def test_no_cpu_is_given_twice_whatever_a_node_does(kubernetes, api, database, seed):
    walk = Walk(kubernetes, api, seed)
    original = walk.step

    def step(name: str) -> None:
        original(name)
        if walk.depth == 0:
            walk.check_records()

    walk.step = step
    walk.run()
    assert walk.bound > REGISTRATIONS // 2
    walk.sync.between = kubernetes.between = lambda: None
    while kubernetes.in_flight:
        kubernetes.carry_out()
    for host in HOSTS:
        kubernetes.put(node_manifests(host)["nodeResourceTopology"])
        if host not in kubernetes.names(NODE):
            kubernetes.register(host)
    walk.sync.catch_up()
    walk.check_records()
    # Pods that wait may have a claim, until they are bound or gone.
    for pod in kubernetes.pods():
        if not node_of(pod):
            kubernetes.delete(POD, pod["metadata"]["name"])
    walk.sync.catch_up()
    expected = {pod["metadata"]["uid"]: node_of(pod) for pod in kubernetes.pods() if runs(pod)}
    assert {pod["uid"]: pod["node"] for pod in recorded(api).values()} == expected
    pod_invariants.check(database, "edge")
    for name in kubernetes.names(POD):
        kubernetes.delete(POD, name)
    walk.sync.catch_up()
    assert recorded(api) == {}
    for host in HOSTS:
        assert api.get(f"{CLUSTER}/nodes/{host}").json["resources"]["PCPU"]["used"] == 0
    for host in HOSTS:
        kubernetes.delete(NODE, host)
    walk.sync.catch_up()
    assert api.get(f"{CLUSTER}/nodes").json["nodes"] == []
