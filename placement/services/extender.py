"""What kube-scheduler asks an extender: which nodes fit a pod, how well, and to bind it to one of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from placement.dialects.koordinator.plain_words import in_plain_words
from placement.dialects.koordinator.pod_identity import canonical_uid
from placement.domain.errors import Conflict, NotFound, PlacementError
from placement.services.clusters import Clusters
from placement.services.pod_writing import Condition
from placement.services.pods import Pods
from placement.services.preemption import ENOUGH_NODES, Preemption, Victims
from placement.services.vanished_pods import Binder, Binders, VanishedPods
from placement.topology.refusal import RefusalClass

_UNKNOWN_NODE = "placement does not know this node"
_CANNOT_BIND = (
    "this service cannot bind: [kubernetes] kubeconfig is not set, so it cannot create the Binding; "
    "set it, or leave bindVerb out of the scheduler's configuration"
)

# Later than that after the claim no Binding is sent, and API servers give up on a call after a minute. So a
# claim that is much older belongs to no attempt that could still succeed, and may be released.
_BINDS_WITHIN_SECONDS = 60.0
_TOO_SLOW = "the API server took so long that the pod is not bound any more; its place was given back"


@dataclass(frozen=True, slots=True)
class Filtered:
    """Why nodes do not fit, by name; the others do. Removing pods can help on `failed` nodes only."""

    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Binding:
    """Which pod goes where."""

    namespace: str
    name: str
    uid: str
    node: str


class Extender:
    """Answers kube-scheduler. Nothing is remembered between its calls, so any process can take each."""

    def __init__(
        self, clusters: Clusters, pods: Pods, preemption: Preemption, binders: Binders | None
    ) -> None:
        self._clusters = clusters
        self._pods = pods
        self._preemption = preemption
        self._binders = binders
        self._vanished = VanishedPods(pods, binders)

    def filter(self, cluster: str, pod: Mapping[str, Any], names: Sequence[str]) -> Filtered:
        """Which of these nodes do not fit, and why. Raises NotFound for the cluster, ManifestError."""
        preview = self._pods.preview(cluster, pod, names, most=0)
        nominated = str((pod.get("status") or {}).get("nominatedNodeName"))
        if nominated in preview.refusals and self._vanished.release(cluster, nominated):
            # Others were evicted there for this pod, which the scheduler heard of before this service did.
            preview = self._pods.preview(cluster, pod, names, most=0)
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        for name, refusal in preview.refusals.items():
            lasting = refusal.status is RefusalClass.UNRESOLVABLE
            (unresolvable if lasting else failed)[name] = "; ".join(
                in_plain_words(reason) for reason in refusal.reasons
            )
        if preview.fitting + len(preview.refusals) < len(names):
            known = {name for name, _ in self._clusters.nodes(cluster)}
            unresolvable.update((name, _UNKNOWN_NODE) for name in names if name not in known)
        return Filtered(failed, unresolvable)

    def prioritize(self, cluster: str, pod: Mapping[str, Any], names: Sequence[str]) -> list[tuple[str, int]]:
        """The score of each of these nodes, 0 to 100; 0 where the pod does not fit.

        Raises NotFound for the cluster, ManifestError.
        """
        scores = self._pods.scores(cluster, pod, names)
        return [(name, scores.get(name, 0)) for name in names]

    def preempt(
        self, cluster: str, pod: Mapping[str, Any], proposed: Mapping[str, Victims]
    ) -> dict[str, Victims]:
        """Who has to go from each of the proposed nodes; nodes where that does not help are left out.

        Raises NotFound for the cluster, ManifestError.
        """
        return self._preemption.victims(
            cluster, pod, proposed, self._vanished.refresher(cluster, ENOUGH_NODES)
        )

    def bind(self, cluster: str, binding: Binding) -> None:
        """Claim a place for the pod on the node, write it to the pod, and assign the pod to the node.

        In this order, so that nobody sees a pod on a node without its CPUs. Raises PlacementError; nothing is
        claimed then, unless the text says so.
        """
        if self._binders is None:
            raise PlacementError(_CANNOT_BIND)
        attempt = _Attempt(self._pods, self._binders.of(cluster), cluster, binding)
        attempt.run()


class _Attempt:
    """Binding one pod once."""

    def __init__(self, pods: Pods, binder: Binder, cluster: str, binding: Binding) -> None:
        self._pods = pods
        self._binder = binder
        self._cluster = cluster
        self._binding = binding

    def run(self) -> None:
        """Raises PlacementError."""
        pod = self._pod()
        node = _node(pod)
        if node == self._binding.node:
            return
        if node:
            raise Conflict(f"{self._label} is assigned to node {node} already")
        binding = self._binding
        self._release_elsewhere()
        began = time.monotonic()
        answer = self._pods.bind(
            self._cluster, binding.namespace, binding.name, binding.uid, binding.node, pod
        )
        try:
            if answer.annotations:
                self._annotate(answer.annotations)
            if time.monotonic() - began > _BINDS_WITHIN_SECONDS:
                raise PlacementError(_TOO_SLOW)
            self._binder.bind(binding.namespace, binding.name, binding.uid, binding.node)
        except PlacementError as error:
            self._settle(error, pod, answer.annotations)

    def _release_elsewhere(self) -> None:
        """A claim on another node is left from an attempt that came to nothing: the pod is on none."""
        if self._claimed_node() != self._binding.node:
            self._release()

    def _claimed_node(self) -> str | None:
        """The node on which this pod, not one of the same name, has a claim."""
        binding = self._binding
        try:
            held = self._pods.get(self._cluster, binding.namespace, binding.name)
        except NotFound:
            return None
        return held.node if held.uid == canonical_uid(binding.uid) else None

    @property
    def _label(self) -> str:
        return f"pod {self._binding.namespace}/{self._binding.name}"

    def _pod(self) -> Mapping[str, Any]:
        """The pod that is meant. Raises PlacementError."""
        pod = self._binder.pod(self._binding.namespace, self._binding.name)
        if pod is None:
            raise NotFound(f"{self._label} does not exist")
        uid = pod["metadata"]["uid"]
        if uid != self._binding.uid:
            raise Conflict(f"{self._label} is another one by now, with uid {uid}, not {self._binding.uid}")
        return pod

    def _annotate(self, annotations: Mapping[str, str | None]) -> None:
        self._binder.annotate(self._binding.namespace, self._binding.name, self._binding.uid, annotations)

    def _settle(self, error: PlacementError, before: Mapping[str, Any], written: Mapping[str, str]) -> None:
        """A call failed, which may have had its effect; raises unless the pod is where it shall be."""
        try:
            bound_to = _node(self._pod())
        except (NotFound, Conflict):
            self._release()
            raise error from None
        except PlacementError as unknown:
            raise PlacementError(
                f"{error}; whether the pod was bound cannot be told ({unknown}), so its place stays claimed"
            ) from None
        if bound_to == self._binding.node:
            return
        self._release()
        if not bound_to:
            self._take_back(before, written)
        raise error

    def _release(self) -> None:
        """Give the claim back; a pod of the same name that came meanwhile keeps its own."""
        binding = self._binding
        if self._claimed_node() is not None:
            with suppress(NotFound):
                self._pods.delete(self._cluster, binding.namespace, binding.name, Condition(binding.uid))

    def _take_back(self, before: Mapping[str, Any], written: Mapping[str, str]) -> None:
        """What is left on a pod that waits misleads nobody but people, so a failure is none here."""
        had = before["metadata"].get("annotations") or {}
        with suppress(PlacementError):
            self._annotate({key: had.get(key) for key in written})


def _node(pod: Mapping[str, Any]) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")
