"""Binding a pod once, beside other attempts for the same pod that may still be under way.

A Binding that was sent cannot be called back: kube-scheduler may hang up and try again while the API server
is still at work. So only the attempt that made or renewed a claim last releases it, and only if no Binding
for it can still take effect. In doubt the claim stays, and the synchronisation releases it later.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from placement.common.clock import utcnow
from placement.engine.domain import request_scope
from placement.engine.domain.errors import Conflict, NotFound, PlacementError, Unanswered
from placement.pods.manifests.affinity import without_unknown_namespaces
from placement.pods.services.pods import ClaimedElsewhere, Pods, Precondition
from placement.pods.services.scheduler import PlacementResult
from placement.pods.store.answers import PodAnswer

# An attempt does not last longer, and leaves a part of the time of its request for finding out what happened.
_BINDS_WITHIN_SECONDS = 60.0
_PART_OF_REQUEST = 2 / 3
# API servers give up on a call after a minute. So no attempt can succeed any more so long after its claim.
_DECIDED_AFTER = datetime.timedelta(seconds=150)
_TOO_SLOW = "the API server took so long that the pod is not bound any more; its place was given back"


class Binder(Protocol):
    """An API server of a cluster that binds pods. Every call may raise PlacementError."""

    def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return the pod; None if there is none."""

    def pods_on(self, node: str) -> Iterable[Mapping[str, Any]]:
        """Return the pods on a node that are not over; possibly as of a moment ago."""

    def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Assign the pod to the node and set annotations, both or neither; refused if it is assigned.

        Raises Unanswered if the pod may have been bound, or may still be.
        """


class Binders(Protocol):
    """The API servers in which this service may bind."""

    def of(self, cluster: str) -> Binder:
        """Return the API server of a cluster. Raises PlacementError that names missing settings."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod to bind, and the node to which it goes."""

    namespace: str
    name: str
    uid: str
    node: str


class _Overtaken(Conflict):
    """A conflict: the claim was released or renewed since."""


class BindAttempt:
    """An attempt that binds one pod once."""

    def __init__(self, pods: Pods, binder: Binder, cluster: str, binding: Binding) -> None:
        self._pods = pods
        self._binder = binder
        self._cluster = cluster
        self._binding = binding
        self._title = f"pod {binding.namespace}/{binding.name}"
        self.freed_bindings: list[Binding] = []
        """The pods of its gang that need not wait any longer, because this pod has its place."""

    def run(self) -> None:
        """Bind the pod with its annotations, unless it is bound already. Raises PlacementError."""
        binding, error = self._binding, None
        with request_scope.within(min(_BINDS_WITHIN_SECONDS, request_scope.remaining() * _PART_OF_REQUEST)):
            pod = self._pod()
            node = _node(pod)
            if node and node != binding.node:
                raise Conflict(f"{self._title} is assigned to node {node} already")
            if node:
                return
            result = self._claimed(without_unknown_namespaces(pod))
            claim, target = result.answer, (binding.namespace, binding.name, binding.uid, binding.node)
            try:
                if not self._pods.is_held(self._cluster, claim):
                    raise _Overtaken(f"{self._title}: another caller released or renewed its claim meanwhile")
                if request_scope.is_over():
                    raise PlacementError(_TOO_SLOW)
                self._binder.bind(*target, claim.annotations)
            except _Overtaken:
                raise
            except PlacementError as failure:
                error = failure
        if error is not None:
            self._settle(error, result)

    def _pod(self) -> Mapping[str, Any]:
        """Return the pod with the name and the uid of the binding. Raises PlacementError."""
        pod = self._binder.pod(self._binding.namespace, self._binding.name)
        if pod is None:
            raise NotFound(f"{self._title} does not exist")
        uid = pod["metadata"]["uid"]
        if uid != self._binding.uid:
            raise Conflict(f"{self._title} is another one by now, with uid {uid}, not {self._binding.uid}")
        return pod

    def _claimed(self, pod: Mapping[str, Any]) -> PlacementResult:
        """Claim the place on the node; one elsewhere is released once the pod cannot go there any more."""
        of = self._binding
        wanted = self._cluster, of.namespace, of.name, of.uid, of.node, pod
        try:
            result = self._pods.bind(*wanted)
        except ClaimedElsewhere as elsewhere:
            held = elsewhere.claim
            if _is_undecided(datetime.datetime.fromisoformat(held.changed_at)):
                raise Conflict(
                    f"{self._title} has a claim on node {held.node}, to which it may still be bound; "
                    f"after {_DECIDED_AFTER.seconds} s it can go to another node"
                ) from None
            self._release(held)
            result = self._pods.bind(*wanted)
        self.freed_bindings = [
            Binding(each.pod.namespace, each.pod.name, each.pod.uid, each.node.name) for each in result.freed
        ]
        return result

    def _settle(self, error: PlacementError, result: PlacementResult) -> None:
        """Raise the error of a failed call unless the pod is on its node, as the call may have succeeded."""
        try:
            bound_to = _node(self._pod())
        except (NotFound, Conflict):
            self._release(result.answer)
            raise error from None
        except PlacementError as unknown:
            raise PlacementError(
                f"{error}; it is unknown whether the pod was bound ({unknown}), so its place stays claimed"
            ) from None
        if bound_to == self._binding.node:
            return
        if not bound_to and (isinstance(error, Unanswered) or _is_undecided(result.before)):
            raise PlacementError(f"{error}; the pod may still be bound, so its place stays claimed")
        self._release(result.answer)
        raise error

    def _release(self, claim_answer: PodAnswer) -> None:
        """Release the claim, unless another attempt has made or renewed it meanwhile."""
        precondition = Precondition(claim_answer.uid, claim_answer.changed_at)
        with suppress(NotFound, Conflict):
            self._pods.delete(self._cluster, claim_answer.namespace, claim_answer.name, precondition)


def _is_undecided(claimed_at: datetime.datetime | None) -> bool:
    """Return whether an attempt with a claim of that time may still succeed."""
    return claimed_at is not None and utcnow() - claimed_at < _DECIDED_AFTER


def _node(pod: Mapping[str, Any]) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")
