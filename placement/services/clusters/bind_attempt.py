"""Binding a pod once, beside other attempts for the same pod that may still be under way.

A Binding that was sent cannot be called back: kube-scheduler may hang up and try again while the API server
is still at work. So only the attempt that made or renewed a claim last releases it, and only if no Binding
for it can still take effect. In doubt the claim stays, and the synchronisation releases it later.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from placement.domain import deadline
from placement.domain.errors import (
    Conflict,
    NotFound,
    PlacementError,
    Unanswered,
)
from placement.kubernetes.pod_affinity import without_unknown_namespaces
from placement.services.clusters.pod_answers import PodAnswer
from placement.services.clusters.pod_scheduler import Taken
from placement.services.clusters.pod_writing import Precondition
from placement.services.clusters.pods import ClaimedElsewhere, Pods
from placement.services.clusters.vanished_pods import Binder
from placement.storage.database import utcnow

# An attempt does not last longer, and leaves a part of the time of its request for finding out what happened.
_BINDS_WITHIN_SECONDS = 60.0
_PART_OF_REQUEST = 2 / 3
# API servers give up on a call after a minute. So no attempt can succeed any more so long after its claim.
_DECIDED_AFTER = datetime.timedelta(seconds=150)
_TOO_SLOW = "the API server took so long that the pod is not bound any more; its place was given back"
_MAY_STILL_BE_BOUND = "the pod may still be bound, so its place stays claimed"


@dataclass(frozen=True, slots=True)
class Binding:
    """Which pod goes where."""

    namespace: str
    name: str
    uid: str
    node: str


class _Overtaken(Conflict):
    """Another attempt has renewed the claim since."""


class BindAttempt:
    """Binding one pod once."""

    def __init__(self, pods: Pods, binder: Binder, cluster: str, binding: Binding) -> None:
        self._pods = pods
        self._binder = binder
        self._cluster = cluster
        self._binding = binding
        self.freed: list[Binding] = []
        """Who need not wait any longer for others of its gang, for this pod has its place."""

    def run(self) -> None:
        """Raises PlacementError."""
        error = None
        with deadline.within(min(_BINDS_WITHIN_SECONDS, deadline.remaining() * _PART_OF_REQUEST)):
            pod = self._pod()
            if self._is_bound(pod):
                return
            taken = self._claimed(pod)
            try:
                self._assign(taken.answer)
            except PlacementError as failure:
                error = failure
        if error is not None:
            self._settle(error, taken)

    def _is_bound(self, pod: Mapping[str, Any]) -> bool:
        node = _node(pod)
        if node and node != self._binding.node:
            raise Conflict(f"{self._title} is assigned to node {node} already")
        return bool(node)

    def _claimed(self, pod: Mapping[str, Any]) -> Taken:
        known = without_unknown_namespaces(pod)
        try:
            taken = self._placed(known)
        except ClaimedElsewhere as elsewhere:
            held = elsewhere.claim
            if _is_undecided(datetime.datetime.fromisoformat(held.changed_at)):
                raise Conflict(
                    f"{self._title} has a claim on node {held.node}, to which it may still be bound; "
                    f"after {_DECIDED_AFTER.seconds} s it can go to another node"
                ) from None
            self._release(held)
            taken = self._placed(known)
        self.freed = [
            Binding(each.pod.namespace, each.pod.name, each.pod.uid, each.node.name) for each in taken.freed
        ]
        return taken

    def _placed(self, pod: Mapping[str, Any]) -> Taken:
        binding = self._binding
        return self._pods.bind(self._cluster, binding.namespace, binding.name, binding.uid, binding.node, pod)

    def _assign(self, claim: PodAnswer) -> None:
        """Bind the pod with its annotations, if the claim is still its own. Raises PlacementError."""
        binding = self._binding
        if not self._pods.is_held(self._cluster, claim):
            raise _Overtaken(f"{self._title}: its claim was released or renewed by somebody else meanwhile")
        if deadline.is_over():
            raise PlacementError(_TOO_SLOW)
        self._binder.bind(binding.namespace, binding.name, binding.uid, binding.node, claim.annotations)

    @property
    def _title(self) -> str:
        return f"pod {self._binding.namespace}/{self._binding.name}"

    def _pod(self) -> Mapping[str, Any]:
        """The pod that is meant. Raises PlacementError."""
        pod = self._binder.pod(self._binding.namespace, self._binding.name)
        if pod is None:
            raise NotFound(f"{self._title} does not exist")
        uid = pod["metadata"]["uid"]
        if uid != self._binding.uid:
            raise Conflict(f"{self._title} is another one by now, with uid {uid}, not {self._binding.uid}")
        return pod

    def _settle(self, error: PlacementError, taken: Taken) -> None:
        """After a failed call, which may have taken effect: raises unless the pod is on its node."""
        if isinstance(error, _Overtaken):
            raise error
        claim = taken.answer
        try:
            now = self._pod()
        except (NotFound, Conflict):
            self._release(claim)
            raise error from None
        except PlacementError as unknown:
            raise PlacementError(
                f"{error}; whether the pod was bound cannot be told ({unknown}), so its place stays claimed"
            ) from None
        bound_to = _node(now)
        if bound_to == self._binding.node:
            return
        if not bound_to and (isinstance(error, Unanswered) or _is_undecided(taken.before)):
            raise PlacementError(f"{error}; {_MAY_STILL_BE_BOUND}")
        self._release(claim)
        raise error

    def _release(self, claim: PodAnswer) -> None:
        """Release the claim, unless another attempt has made or renewed it meanwhile."""
        precondition = Precondition(claim.uid, claim.changed_at)
        with suppress(NotFound, Conflict):
            self._pods.delete(self._cluster, claim.namespace, claim.name, precondition)


def _is_undecided(claimed_at: datetime.datetime | None) -> bool:
    """Whether an attempt that claimed then may still succeed."""
    return claimed_at is not None and utcnow() - claimed_at < _DECIDED_AFTER


def _node(pod: Mapping[str, Any]) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")
