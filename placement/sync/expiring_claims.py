"""Claims of the service for pods that are not reported on their nodes: kept for a while, then released."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from placement.sync.api_server import ApiServerError
from placement.sync.informer_store import InformerStore
from placement.sync.journal import Journal
from placement.sync.reconciled_pods import PodLookup, ReconciledPods, key_of
from placement.sync.service import PodId, ServiceCluster

LOOK_EVERY_SECONDS = 60.0


@dataclass
class ExpiringClaims:
    """The claims, which are released if their pod is gone, or was never bound.

    Kubernetes says whether a pod is over or gone. A pod that waits may be about to be bound. So its claim
    stays until it was not renewed for `patience` seconds on the clock of this process. What the watches saw
    may be old, so Kubernetes is then asked whether the pod is on a node. The service checks that the claim is
    still the same.
    """

    _service: ServiceCluster
    _store: InformerStore
    _pods: ReconciledPods
    _journal: Journal
    _asked: PodLookup
    _patience: float
    _seen: dict[PodId, _Seen] = field(default_factory=dict)

    def look(self) -> None:
        """Look at all claims. Raises ServiceError, ApiServerError."""
        claims = [claim for claim in self._service.claims() if self._pods.is_ours(claim)]
        waiting: dict[PodId, _Seen] = {}
        for claim in claims:
            if self._pods.has_ended(claim.id):
                self._pods.end([claim.id])
            elif (bound := self._store.get(key_of(claim.id))) and bound.uid == claim.id.uid and bound.node:
                # Reported, and placed again since; or about to be reported.
                self._pods.forget(claim.id)
                self._pods.look_at([key_of(claim.id)])
            else:
                known = self._seen.get(claim.id)
                is_same = known is not None and known.changed_at == claim.changed_at
                waiting[claim.id] = known if known and is_same else _Seen(claim.changed_at, time.monotonic())
        self._seen = waiting
        for pod, seen in waiting.items():
            if time.monotonic() - seen.since >= self._patience:
                self._expire(pod, seen)

    def _expire(self, pod: PodId, seen: _Seen) -> None:
        source = f"claim of pod {pod.namespace}/{pod.name}"
        try:
            placed = self._asked(pod)
            # A pinned pod may be bound to its node with its CPUs, however long that takes.
            if placed is not None and (placed.node is not None or placed.pinned_to):
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


class _Seen(NamedTuple):
    changed_at: str | None
    since: float
