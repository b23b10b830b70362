"""Random pods are judged by kube-scheduler and by the service, node by node."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from tests.differential.observer import Observer
from tests.differential.random_pods import (
    NAMESPACES,
    NEVER_PREEMPTS,
    OVERHEADS,
    Chances,
    RandomCluster,
    RandomPod,
    marker,
    probe,
)
from tests.patience import eventually
from tests.real_kubernetes import ControlPlane, Refused
from tests.service import Answer, Service

_PODS_OF_A_CLUSTER = 25
_INVALID = (400, 422)
PREVIEW, FILTER = "preview", "filter"


@dataclass(frozen=True)
class Pair:
    """A pod and a node: whether each side takes the pod there, and the reasons of the service if it does not.

    `asked`: the preview of the manifest as it was written, or the extender's filter of the pod as Kubernetes
    stores it. `nodes` and `there` are the nodes and pods of the cluster.
    """

    minor: int
    asked: str
    pod: RandomPod
    node: dict[str, Any]
    nodes: Collection[dict[str, Any]]
    there: list[dict[str, Any]]
    theirs: bool
    ours: bool
    reasons: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether the two sides say different things."""
        return self.ours is not self.theirs

    @property
    def node_name(self) -> str:
        """The name of the node."""
        name: str = self.node["metadata"]["name"]
        return name

    @property
    def neighbours(self) -> list[dict[str, Any]]:
        """The pods that run on the node."""
        return [
            pod
            for pod in self.there
            if pod["spec"].get("nodeName") == self.node_name
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]


class Comparison:
    """A Kubernetes with a scheduler that tells the observer what it takes, and a service beside it."""

    def __init__(self, kubernetes: ControlPlane, observer: Observer, service: Service) -> None:
        self._kubernetes, self._observer, self._service = kubernetes, observer, service
        self._minor = kubernetes.minor
        self.invalid: list[tuple[RandomPod, str]] = []
        """Pods that the API server does not take, and what it says."""
        for manifest in _surroundings():
            kubernetes.ensure(manifest)

    def pairs(self, pods: int, seed: int) -> Iterator[Pair]:
        """Yield what both sides say of that many pods in random clusters, node by node and way of asking."""
        for start in range(0, pods, _PODS_OF_A_CLUSTER):
            prefix = f"c{seed}-{start}"
            chances = Chances(f"{seed}/{start}/{self._minor}", self._minor, prefix)
            try:
                nodes, there = self._build(prefix, chances.cluster())
                number = min(_PODS_OF_A_CLUSTER, pods - start)
                yield from self._judged(
                    prefix, nodes, there, [chances.pod(f"{prefix}-p{each}") for each in range(number)]
                )
            finally:
                self._clear()

    def _build(
        self, prefix: str, cluster: RandomCluster
    ) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
        """Create a cluster on both sides; its nodes by name, and its pods as Kubernetes stores them."""
        last_node, last_pod = marker(prefix)
        for node in (*cluster.nodes, last_node):
            self._kubernetes.create(node)
        for pod in cluster.running:
            self._create_running(pod, cluster)
        self._kubernetes.create(last_pod)
        self._await_scheduler(prefix)
        nodes = self._kubernetes.call("GET", "/api/v1/nodes")["items"]
        there = self._pods()
        self._service.must("PUT", _cluster(prefix))
        for node in nodes:
            body = {"node": {**node, "apiVersion": "v1", "kind": "Node"}}
            self._service.must("PUT", f"{_cluster(prefix)}/nodes/{node['metadata']['name']}", body)
        for pod in there:
            path = f"{_cluster(prefix)}/pods/{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            self._service.must("PUT", path, pod)
        return {node["metadata"]["name"]: node for node in nodes}, there

    def _create_running(self, pod: dict[str, Any], cluster: RandomCluster) -> None:
        try:
            self._kubernetes.create(pod)
        except Refused as error:
            if error.status not in _INVALID and error.status != 403:
                raise
            self.invalid.append((RandomPod(pod, ("running",)), str(error)))
            return
        name, path = pod["metadata"]["name"], _path(pod)
        if name in cluster.ended:
            merge = {"status": {"phase": "Succeeded"}}
            self._kubernetes.call("PATCH", f"{path}/status", merge, "application/merge-patch+json")
        if name in cluster.leaving:
            self._kubernetes.call("DELETE", f"{path}?gracePeriodSeconds=3600")

    def _await_scheduler(self, prefix: str) -> None:
        """Wait until the scheduler has seen the marker: events of nodes, and those of pods, come in order."""
        number = 0

        def has_seen() -> bool:
            nonlocal number
            number += 1
            pod = self._kubernetes.create(probe(prefix, number))
            eventually(True, lambda: self._is_decided(pod))
            self._kubernetes.call("DELETE", f"{_path(pod)}?gracePeriodSeconds=0")
            return bool(self._observer.taken(pod["metadata"]["uid"]))

        eventually(True, has_seen)

    def _is_decided(self, pod: dict[str, Any]) -> bool:
        return _verdict(self._kubernetes.call("GET", _path(pod)))

    def _pods(self) -> list[dict[str, Any]]:
        listed = self._kubernetes.call("GET", "/api/v1/pods")["items"]
        return [{**pod, "apiVersion": "v1", "kind": "Pod"} for pod in listed]

    def _judged(
        self,
        prefix: str,
        nodes: dict[str, dict[str, Any]],
        there: list[dict[str, Any]],
        pods: list[RandomPod],
    ) -> Iterator[Pair]:
        """Yield the pairs of pods that wait at the same time."""
        created = [(pod, stored) for pod in pods if (stored := self._create_waiting(pod)) is not None]
        uids = {stored["metadata"]["uid"] for _, stored in created}
        eventually(
            True,
            lambda: all(_verdict(pod) for pod in self._pods() if pod["metadata"]["uid"] in uids),
        )
        for pod, stored in created:
            theirs = self._observer.taken(stored["metadata"]["uid"])
            for asked, (ours, reasons) in (
                (PREVIEW, self._previewed(prefix, pod.manifest, nodes)),
                (FILTER, self._filtered(prefix, stored, nodes)),
            ):
                for name, node in nodes.items():
                    yield Pair(
                        self._minor,
                        asked,
                        pod,
                        node,
                        nodes.values(),
                        there,
                        name in theirs,
                        name in ours,
                        reasons.get(name, reasons.get("", ())),
                    )

    def _create_waiting(self, pod: RandomPod) -> dict[str, Any] | None:
        try:
            stored: dict[str, Any] = self._kubernetes.create(pod.manifest)
        except Refused as error:
            if error.status not in _INVALID and error.status != 403:
                raise
            self.invalid.append((pod, str(error)))
            return None
        return stored

    def _previewed(self, prefix: str, pod: dict[str, Any], nodes: dict[str, Any]) -> _Said:
        body = {"pod": copy.deepcopy(pod), "nodeNames": list(nodes)}
        answer = self._service.call("POST", f"{_cluster(prefix)}/pods/preview", body)
        if answer.status != 200:
            return _refused(answer)
        reasons = {each["node"]: tuple(each["reasons"]) for each in answer.body["rejected"]}
        return frozenset(each["name"] for each in answer.body["nodes"]), reasons

    def _filtered(self, prefix: str, pod: dict[str, Any], nodes: dict[str, Any]) -> _Said:
        body = {"Pod": pod, "NodeNames": list(nodes)}
        answer = self._service.call("POST", f"{_cluster(prefix)}/extender/filter", body)
        if answer.status != 200 or answer.body["Error"]:
            return _refused(answer)
        failed = {**answer.body["FailedNodes"], **answer.body["FailedAndUnresolvableNodes"]}
        return frozenset(answer.body["NodeNames"]), {name: (text,) for name, text in failed.items()}

    def _clear(self) -> None:
        """Delete pods before nodes."""
        for namespace in NAMESPACES:
            self._kubernetes.call("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
        eventually([], self._pods)
        self._kubernetes.call("DELETE", "/api/v1/nodes")


_Said = tuple[frozenset[str], dict[str, tuple[str, ...]]]
"""The nodes that take a pod, and the reasons of the others by name; those of all under no name."""


def _refused(answer: Answer) -> _Said:
    return frozenset(), {"": (f"{answer.status}: {answer.body}",)}


def _cluster(prefix: str) -> str:
    return f"/ext/v1/clusters/{prefix}"


def _path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _verdict(pod: dict[str, Any]) -> bool:
    """Whether the scheduler has decided; an attempt that failed otherwise is no decision."""
    conditions = pod["status"].get("conditions") or []
    return any(
        each["type"] == "PodScheduled" and each["status"] == "False" and each["reason"] == "Unschedulable"
        for each in conditions
    )


def _surroundings() -> Iterator[dict[str, Any]]:
    for name, labels in NAMESPACES.items():
        metadata = {"name": name, "labels": labels}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    for name, overhead in OVERHEADS.items():
        yield {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": name},
            "handler": name,
            "overhead": {"podFixed": overhead},
        }
    yield {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": NEVER_PREEMPTS},
        "value": 0,
        "preemptionPolicy": "Never",
    }
