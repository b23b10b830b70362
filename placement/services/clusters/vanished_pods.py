"""Noting that pods recorded on a node are over, gone or being deleted, before that is reported."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.domain import deadline
from placement.domain.errors import NotFound, PlacementError
from placement.kubernetes.pod_identity import ENDED_PHASES, canonical_uid
from placement.services.clusters.pod_writing import Precondition
from placement.services.clusters.pods import Pods


class Binder(Protocol):
    """The API server of a cluster. Every call raises PlacementError."""

    def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The pod; None if there is none."""

    def pods_on(self, node: str) -> Iterable[Mapping[str, Any]]:
        """Return the pods on a node that are not over; possibly as of a moment ago."""

    def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Assign the pod to the node and set annotations, both or neither; refused if it is assigned.

        Raises Unanswered if it may have been done or still be.
        """


class Binders(Protocol):
    """The API servers that this service may bind in."""

    def of(self, cluster: str) -> Binder:
        """The API server of a cluster. Raises PlacementError that says what is missing."""


class VanishedPods:
    """Releases those that are over or gone, by their uids, which never come back; marks those that leave."""

    def __init__(self, pods: Pods, binders: Binders | None) -> None:
        self._pods = pods
        self._binders = binders

    def refresher(self, cluster: str, most_nodes: int, seconds: float = math.inf) -> Callable[[str], bool]:
        """A function that releases pods of a node that are over or gone; it returns whether there was one.

        Pods that are being deleted, of which that was not reported yet, are recorded so, and count likewise.
        It asks Kubernetes about so many nodes, for so many seconds in all, and not again after a failure, so
        that the time-outs of an API server that does not answer do not add up. Without an answer no pod is
        released. The function raises Unavailable.
        """
        left = most_nodes if self._binders is not None else 0
        end = time.monotonic() + seconds

        def refresh(node: str) -> bool:
            nonlocal left
            if left <= 0:
                return False
            left -= 1
            try:
                with deadline.within(end - time.monotonic()):
                    vanished, leaving = self._on(cluster, node)
            except PlacementError:
                left = 0
                return False
            self._release(cluster, vanished)
            if leaving:
                self._pods.put_all(cluster, leaving)
            return bool(vanished or leaving)

        return refresh

    def _release(self, cluster: str, vanished: Collection[RecordedPod]) -> None:
        for pod in vanished:
            with suppress(NotFound):
                self._pods.delete(cluster, pod.namespace, pod.name, Precondition(pod.uid))

    def _on(self, cluster: str, node: str) -> tuple[list[RecordedPod], list[Mapping[str, Any]]]:
        """Return the pods of a node that are over or gone, and the manifests of those that began to leave."""
        if self._binders is None:
            return [], []
        recorded = self._pods.recorded_on(cluster, node)
        binder = self._binders.of(cluster)
        present = {canonical_uid(pod["metadata"]["uid"]): pod for pod in binder.pods_on(node)}
        # Pods on no node yet, or newer than the list, are asked for one by one.
        vanished = [pod for pod in recorded if pod.uid not in present and not _lives(binder, pod)]
        staying = [present[pod.uid] for pod in recorded if pod.uid in present and not pod.is_leaving]
        return vanished, [pod for pod in staying if pod["metadata"].get("deletionTimestamp")]


def _lives(binder: Binder, pod: RecordedPod) -> bool:
    found = binder.pod(pod.namespace, pod.name)
    if found is None or canonical_uid(found["metadata"]["uid"]) != pod.uid:
        return False
    return (found.get("status") or {}).get("phase") not in ENDED_PHASES
