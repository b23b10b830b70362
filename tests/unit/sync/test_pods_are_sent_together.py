"""Pods that come one after another go in few calls; one that comes alone goes at once."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from placement.sync.informer_store import InformerStore
from placement.sync.journal import Journal
from placement.sync.reconciled_pods import GATHERED_SECONDS
from placement.sync.reconciler import Reconciler
from placement.sync.service import HeldNode, HeldPod, PodId, Sent, ServiceCluster
from placement.sync.watched_objects import Key, ObjectKind, watched_object
from tests.synchronizing import pod_manifest


class Service(ServiceCluster):
    """Has one node, and takes everything."""

    def __init__(self) -> None:
        self.calls: list[set[str]] = []

    def create_if_missing(self) -> bool:
        return False

    def nodes(self) -> list[HeldNode]:
        return [HeldNode("host-0", None, is_closed=False)]

    def put_nodes(self, nodes: Sequence[Any]) -> list[Sent]:
        return [Sent([]) for _ in nodes]

    def pods(self, node: str | None = None) -> Iterator[HeldPod]:
        return iter(())

    def put_pods(self, pods: Sequence[Any]) -> list[Sent]:
        self.calls.append({name for _, name, _ in pods})
        return [Sent([]) for _ in pods]

    def release(self, pod: PodId, changed_at: str | None = None) -> bool:
        self.calls.append({f"no {pod.name}"})
        return True


class Cluster:
    """One node, and a clock that goes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        for module in ("sending", "reconciled_pods"):
            monkeypatch.setattr(f"placement.sync.{module}.time", clock)
        self.service, self.store = Service(), InformerStore(["nodes", "pods", "reservations"])
        self.store.replace("nodes", {})
        self.store.replace("pods", {})
        self.store.lacks("reservations")
        journal = Journal(io.StringIO(), io.StringIO())
        self.reconciler = Reconciler(
            self.service, self.store, journal, lambda _: None, (), lambda _: None, 600
        )
        self.put({"kind": "Node", "metadata": {"name": "host-0", "uid": "n"}, "spec": {}, "status": {}})
        self.reconciler.compare()
        self.settle()

    def put(self, manifest: dict[str, Any]) -> None:
        kind = ObjectKind(manifest["kind"])
        metadata = manifest["metadata"]
        key = Key(kind, metadata.get("namespace", ""), metadata["name"])
        self.store.put(f"{kind.lower()}s", key, watched_object(manifest))

    def settle(self) -> None:
        self.reconciler.look_at(self.store.changed(0))
        self.reconciler.settle(gathering=True)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_a_pod_that_comes_alone_is_sent_at_once(cluster: Cluster):
    for name in ("a", "b"):
        cluster.put(pod_manifest(name, "host-0"))
        cluster.settle()
        assert cluster.service.calls[-1] == {name}
        cluster.now += 2 * GATHERED_SECONDS


def test_those_that_follow_shortly_wait_for_each_other(cluster: Cluster):
    for number in range(20):
        cluster.put(pod_manifest(f"web-{number}", "host-0"))
        cluster.settle()
        assert cluster.reconciler.gathers == (number % 4 != 0)
        cluster.now += GATHERED_SECONDS / 3.5
    cluster.settle()
    portions = [{"web-0"}, *({f"web-{first + number}" for number in range(4)} for first in range(1, 17, 4))]
    assert cluster.service.calls == [*portions, {"web-17", "web-18", "web-19"}]
    assert not cluster.reconciler.gathers


def test_what_gives_back_room_waits_for_nobody(cluster: Cluster):
    first, second = pod_manifest("a", "host-0"), pod_manifest("b", "host-0")
    cluster.put(first)
    cluster.settle()
    cluster.put(second)
    cluster.put({**first, "status": {"phase": "Succeeded"}})
    cluster.settle()
    assert cluster.service.calls == [{"a"}, {"no a"}]
    cluster.now += GATHERED_SECONDS
    cluster.settle()
    assert cluster.service.calls == [{"a"}, {"no a"}, {"b"}]


def test_who_does_not_gather_leaves_nothing_due(cluster: Cluster):
    for name in ("a", "b"):
        cluster.put(pod_manifest(name, "host-0"))
        cluster.reconciler.look_at(cluster.store.changed(0))
        cluster.reconciler.settle()
    assert cluster.service.calls == [{"a"}, {"b"}]
