"""Claims of the service for pods that are not reported on their nodes: kept for a while, then released."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from placement.operations.kubernetes.api_server import ApiServerError
from placement.operations.kubernetes.informer_store import InformerStore
from placement.operations.kubernetes.journal import Journal
from placement.operations.kubernetes.reconciled_pods import ReconciledPods, key_of
from placement.operations.kubernetes.service import HeldPod, PodId, ServiceCluster

LOOK_EVERY_SECONDS = 60.0
PATIENCE_SECONDS = 600.0
# A bind is decided within two minutes of its claim: see the extender.
LEAST_PATIENCE_SECONDS = 180


class _Seen(NamedTuple):
    changed_at: str | None
    since: float


class ExpiringClaims:
    """Releases claims whose pod is gone, or was never bound.

    Kubernetes says whether a pod is over or gone. A pod that waits may be about to be bound, so its claim is
    left alone until it has not been renewed for `patience` seconds on the clock of this process. What the
    watches told may be old, so Kubernetes is then asked whether the pod `is_placed`, and the service checks
    that it is still the same claim.
    """

    def __init__(
        self,
        service: ServiceCluster,
        store: InformerStore,
        pods: ReconciledPods,
        journal: Journal,
        is_placed: Callable[[PodId], bool],
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._service = service
        self._store = store
        self._pods = pods
        self._journal = journal
        self._is_placed = is_placed
        self._patience = patience
        self._seen: dict[PodId, _Seen] = {}

    def look(self) -> None:
        """Look at all of them. Raises ServiceError, ApiServerError."""
        claims = [claim for claim in self._service.claims() if self._pods.is_ours(claim)]
        waiting: dict[PodId, _Seen] = {}
        for claim in claims:
            if self._pods.has_ended(claim.id):
                self._pods.end([claim.id])
            elif self._is_bound(claim.id):
                # Reported, and placed again since; or about to be reported.
                self._pods.forget(claim.id)
                self._pods.look_at([key_of(claim.id)])
            else:
                waiting[claim.id] = self._still(claim)
        self._seen = waiting
        for pod, seen in waiting.items():
            if time.monotonic() - seen.since >= self._patience:
                self._expire(pod, seen)

    def _is_bound(self, pod: PodId) -> bool:
        seen = self._store.get(key_of(pod))
        return seen is not None and seen.uid == pod.uid and seen.node is not None

    def _still(self, claim: HeldPod) -> _Seen:
        known = self._seen.get(claim.id)
        same = known is not None and known.changed_at == claim.changed_at
        return known if known is not None and same else _Seen(claim.changed_at, time.monotonic())

    def _expire(self, pod: PodId, seen: _Seen) -> None:
        source = f"claim of pod {pod.namespace}/{pod.name}"
        try:
            if self._is_placed(pod):
                return
        except ApiServerError as error:
            self._journal.trouble(source, f"stays, Kubernetes cannot be asked about the pod: {error}")
            return
        self._journal.well(source)
        if self._service.release(pod, seen.changed_at):
            self._journal.note(
                f"pod {pod.namespace}/{pod.name}: waits, and was not bound for {self._patience:.0f} s "
                "after its place was claimed; the claim is released"
            )
            self._pods.forget(pod)
