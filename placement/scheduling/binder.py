"""Bindings of pods that have a place: written by several threads, each settled before its pod is let go.

A Binding that was sent cannot be called back, and its answer may be lost. So the claim is given back only
when Kubernetes has refused the Binding, or has the pod elsewhere or not at all; in doubt it stays.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from placement.client.client import ServiceError
from placement.common.manifest import CHOOSE_GATE, PINNED
from placement.common.pod_identity import canonical_uid
from placement.engine.domain.errors import PlacementError
from placement.scheduling.pending import BindingWay, PendingPod
from placement.scheduling.rivals import Rivals
from placement.scheduling.tailoring import on_node, required
from placement.sync.api_server import NOT_FOUND, ApiServer, ApiServerError, object_path, pods_path
from placement.sync.leadership import NotLeading
from placement.sync.pause import Pause
from placement.sync.service import CONFLICT, ServiceCluster

# API servers give up on a call after a minute; what is not known by then is settled with the next attempt.
_SETTLED_WITHIN_SECONDS = 60.0
_THREADS = 8
_MOST_PATCHES = 5
# The first minor version of Kubernetes 1 that refuses a Binding with another uid.
_LOOKS_AT_UIDS = 21


class BindingResult(StrEnum):
    """What became of a pod that had a place."""

    BOUND = "bound"
    PINNED = "pinned"
    GONE = "gone"
    TAKEN_ELSEWHERE = "elsewhere"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A place that the service has given a pod, with the annotations that the pod gets there."""

    pod: PendingPod
    node: str
    annotations: Mapping[str, str]
    changed_at: str


@dataclass(frozen=True, slots=True)
class BindingOutcome:
    """The outcome for a claim; `text` says why it is not bound."""

    claim: PodClaim
    result: BindingResult
    text: str = ""


class PodBinder:
    """The threads that bind; `done` is called by them with each outcome."""

    def __init__(
        self,
        api_server: ApiServer,
        service: ServiceCluster,
        rivals: Rivals,
        allow: Callable[[], None],
        done: Callable[[BindingOutcome], None],
    ) -> None:
        self._api_server = api_server
        self._service = service
        self._rivals = rivals
        self._allow = allow
        self._done = done
        self._minor: int | None = None
        self._claims: queue.SimpleQueue[PodClaim] = queue.SimpleQueue()
        for number in range(_THREADS):
            # The end of the process waits for none of them: a claim that is not settled stays.
            threading.Thread(target=self._bind_all, name=f"binding {number}", daemon=True).start()

    def bind(self, claim: PodClaim) -> None:
        """Have a pod bound, or its gate taken away."""
        self._claims.put(claim)

    def _bind_all(self) -> None:
        while True:
            self._run(self._claims.get())

    def _run(self, claim: PodClaim) -> None:
        try:
            outcome = self._bound(claim)
        except PlacementError as error:
            # The claim stays: the next attempt gets the same place, whatever has become of this one.
            outcome = BindingOutcome(claim, BindingResult.UNKNOWN, str(error))
        except Exception as error:
            # A fault of the loop's own: without an outcome the pod would wait for ever.
            outcome = BindingOutcome(claim, BindingResult.UNKNOWN, repr(error))
        self._done(outcome)

    def _bound(self, claim: PodClaim) -> BindingOutcome:
        """Bind, and find out what happened. Raises PlacementError where that stays unknown."""
        if claim.pod.way is BindingWay.GATE:
            return self._pinned(claim)
        with self._rivals.obstacle(claim.pod, claim.node) as why:
            if why:
                return self._given_back(claim, BindingResult.REFUSED, why)
            return self._written(claim)

    def _written(self, claim: PodClaim) -> BindingOutcome:
        """Write the Binding until it is taken or refused. Raises PlacementError if that stays unknown."""
        if self._has_to_look() and self._pod(claim) is None:
            return self._given_back(claim, BindingResult.GONE, "the pod is gone", ended=True)
        pause, until = Pause(), time.monotonic() + _SETTLED_WITHIN_SECONDS
        while True:
            self._allow()
            try:
                self._api_server.post(self._path(claim, "binding"), _binding(claim))
            except ApiServerError as error:
                found = self._settled(claim, error)
                if found is not None:
                    return found
                if time.monotonic() >= until:
                    raise
                time.sleep(pause.after_failure())
            else:
                return BindingOutcome(claim, BindingResult.BOUND)

    def _has_to_look(self) -> bool:
        """Return whether Kubernetes binds any pod of the name, whatever the uid. Raises ApiServerError."""
        if self._minor is None:
            version = self._api_server.get("/version") or {}
            digits = re.match(r"[0-9]*", str(version.get("minor") or ""))
            self._minor = int(digits[0]) if digits and digits[0] else 0
        return self._minor < _LOOKS_AT_UIDS

    def _settled(self, claim: PodClaim, error: ApiServerError) -> BindingOutcome | None:
        """Return what a refused or unanswered Binding means, None if it may still take effect.

        Raises ApiServerError if Kubernetes cannot be asked.
        """
        if not error.is_refusal:
            return None
        if error.status == NOT_FOUND:
            return self._given_back(claim, BindingResult.GONE, str(error), ended=True)
        if error.status == CONFLICT:
            pod = self._pod(claim)
            if pod is None:
                return self._given_back(claim, BindingResult.GONE, "the pod is gone", ended=True)
            node = (pod.get("spec") or {}).get("nodeName")
            if node == claim.node:
                return BindingOutcome(claim, BindingResult.BOUND)
            if node:
                return self._given_back(claim, BindingResult.TAKEN_ELSEWHERE, f"the pod is on node {node}")
        return self._given_back(claim, BindingResult.REFUSED, str(error))

    def _pinned(self, claim: PodClaim) -> BindingOutcome:
        """Write CPUs and node into the pod and take its gate away, in one patch."""
        pod: Mapping[str, Any] | None = claim.pod.manifest
        for _ in range(_MOST_PATCHES):
            if pod is None:
                return self._given_back(claim, BindingResult.GONE, "the pod is gone", ended=True)
            if _is_pinned(pod, claim.node):
                return BindingOutcome(claim, BindingResult.PINNED)
            try:
                self._allow()
                self._api_server.patch(self._path(claim), _unlocking(pod, claim))
            except ApiServerError as error:
                if error.status == NOT_FOUND:
                    return self._given_back(claim, BindingResult.GONE, str(error), ended=True)
                if error.is_refusal and error.status != CONFLICT:
                    return self._given_back(claim, BindingResult.REFUSED, str(error))
                # Another writer changed the pod meanwhile, or the answer is lost: the pod itself tells.
                pod = self._pod(claim)
            else:
                return BindingOutcome(claim, BindingResult.PINNED)
        raise ApiServerError("the pod changes all the time")

    def _given_back(
        self, claim: PodClaim, result: BindingResult, text: str, *, ended: bool = False
    ) -> BindingOutcome:
        """Give a claim back; that of a pod that ended by its uid alone. If this fails, it expires."""
        with suppress(ServiceError, NotLeading):
            self._service.release(claim.pod.id, None if ended else claim.changed_at)
        return BindingOutcome(claim, result, text)

    def _pod(self, claim: PodClaim) -> dict[str, Any] | None:
        """Return the pod of that uid as it is now, None if it is gone. Raises ApiServerError."""
        pod = self._api_server.get(self._path(claim))
        if pod is None or canonical_uid(str(pod["metadata"].get("uid") or "")) != claim.pod.id.uid:
            return None
        return pod

    def _path(self, claim: PodClaim, *below: str) -> str:
        return object_path(pods_path(claim.pod.id.namespace), claim.pod.id.name, *below)


def _binding(claim: PodClaim) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "namespace": claim.pod.id.namespace,
        "name": claim.pod.id.name,
        # Kubernetes refuses the Binding of another pod of the name.
        "uid": claim.pod.manifest["metadata"]["uid"],
    }
    if claim.annotations:
        metadata["annotations"] = dict(claim.annotations)
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": claim.node},
    }


def _unlocking(pod: Mapping[str, Any], claim: PodClaim) -> dict[str, Any]:
    """Return the patch that takes the gate away; it is refused if the pod was changed since it was read."""
    metadata, spec = pod["metadata"], pod["spec"]
    gates = [gate for gate in spec.get("schedulingGates") or () if gate.get("name") != CHOOSE_GATE]
    affinity = required(spec.get("affinity"), on_node(claim.node))
    return {
        "metadata": {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "annotations": {**claim.annotations, PINNED: claim.node},
        },
        "spec": {"schedulingGates": gates or None, "affinity": affinity},
    }


def _is_pinned(pod: Mapping[str, Any], node: str) -> bool:
    annotations = pod["metadata"].get("annotations") or {}
    gates = [gate.get("name") for gate in pod["spec"].get("schedulingGates") or ()]
    return annotations.get(PINNED) == node and CHOOSE_GATE not in gates
