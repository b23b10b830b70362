"""Releasing pods that are recorded on a node but over or gone in Kubernetes, before they are reported."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol

from placement.domain.errors import NotFound, PlacementError
from placement.kubernetes.pod import ENDED_PHASES
from placement.kubernetes.pod_identity import canonical_uid
from placement.services.clusters.pod_answers import PodAnswer
from placement.services.clusters.pod_pages import PodFilter
from placement.services.clusters.pod_writing import Precondition
from placement.services.clusters.pods import Pods

_MOST_PODS_OF_A_NODE = 2000


class Binder(Protocol):
    """The API server of a cluster. Every call raises PlacementError."""

    def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The pod; None if there is none."""

    def uids_on(self, node: str) -> Collection[str]:
        """The uids of the pods on a node that are not over; possibly as of a moment ago."""

    def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Assign the pod to the node and set annotations, both or neither; refused if it is assigned.

        Raises Unanswered if it may have been done or still be.
        """


class Binders(Protocol):
    """The API servers that this service may bind in."""

    def of(self, cluster: str) -> Binder:
        """The API server of a cluster. Raises PlacementError that says what is missing."""


class VanishedPods:
    """Releases them by their uids, which never come back."""

    def __init__(self, pods: Pods, binders: Binders | None) -> None:
        self._pods = pods
        self._binders = binders

    def release(self, cluster: str, node: str) -> bool:
        """Release pods on that node that are over or gone; whether there was one.

        Without an answer of Kubernetes none is released. Raises Unavailable.
        """
        return self.refresher(cluster)(node)

    def refresher(self, cluster: str, most: int = 1) -> Callable[[str], bool]:
        """A function that does the same node by node: for a number of nodes, and for none after a failure.

        Otherwise the time-outs of an API server that does not answer would add up.
        """
        left = most if self._binders is not None else 0

        def refresh(node: str) -> bool:
            nonlocal left
            if left <= 0:
                return False
            left -= 1
            try:
                vanished = self._on(cluster, node)
            except PlacementError:
                left = 0
                return False
            self._release(cluster, vanished)
            return bool(vanished)

        return refresh

    def _release(self, cluster: str, vanished: Collection[PodAnswer]) -> None:
        for pod in vanished:
            with suppress(NotFound):
                self._pods.delete(cluster, pod.namespace, pod.name, Precondition(pod.uid))

    def _on(self, cluster: str, node: str) -> list[PodAnswer]:
        if self._binders is None:
            return []
        binder = self._binders.of(cluster)
        recorded = self._pods.listed(cluster, PodFilter(node=node), 0, _MOST_PODS_OF_A_NODE).pods
        present = {canonical_uid(uid) for uid in binder.uids_on(node)}
        # Pods on no node yet, or newer than the list, are asked for one by one.
        return [pod for pod in recorded if pod.uid not in present and not _lives(binder, pod)]


def _lives(binder: Binder, pod: PodAnswer) -> bool:
    found = binder.pod(pod.namespace, pod.name)
    if found is None or canonical_uid(found["metadata"]["uid"]) != pod.uid:
        return False
    return (found.get("status") or {}).get("phase") not in ENDED_PHASES
