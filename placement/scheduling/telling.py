"""Conditions PodScheduled of pods, and Events in the words of kube-scheduler.

A thread writes them, the conditions first. Of a pod only the latest condition is written. Events are dropped
when too many wait: they are a courtesy.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from placement.engine.domain.errors import PlacementError
from placement.scheduling.figures import WRITES
from placement.scheduling.pending import PendingPod
from placement.sync.api_server import (
    NOT_FOUND,
    STRATEGIC_PATCH,
    ApiServer,
    ApiServerError,
    object_path,
    pods_path,
)
from placement.sync.events import EventSource, reference_of
from placement.sync.journal import Journal
from placement.sync.service import CONFLICT, PodId
from placement.sync.watched_objects import Key, ObjectKind

FAILED, SCHEDULED, PREEMPTED = "FailedScheduling", "Scheduled", "Preempted"
NOT_DECIDED, REFUSED_ON_NODE = "NotDecided", "RefusedOnNode"
UNSCHEDULABLE, GATED = "Unschedulable", "SchedulingGated"
_SOURCE = "events and conditions"
_MOST_EVENTS = 5_000
_LONGEST_MESSAGE = 1000
_MOST_PATCHES = 5


class PodTeller(threading.Thread):
    """The thread that writes conditions and Events, until the process ends."""

    def __init__(self, api_server: ApiServer, allow: Callable[[], None], journal: Journal) -> None:
        super().__init__(name="telling", daemon=True)
        self._api_server = api_server
        self._allow = allow
        self._journal = journal
        self._sources: dict[str, EventSource] = {}
        self._given: dict[str, str] = {}
        self._conditions: OrderedDict[str, tuple[PendingPod, dict[str, Any]]] = OrderedDict()
        self._events: deque[_PodEvent] = deque()
        self._condition = threading.Condition()

    def waits(self, pod: PendingPod, text: str, nominated: str | None = None) -> None:
        """Tell a pod why it waits, unless it has that already; `nominated` is the node kept for it."""
        text = text[:_LONGEST_MESSAGE]
        given = f"{nominated}\0{text}"
        with self._condition:
            if self._given.get(pod.id.uid) == given:
                return
            self._given[pod.id.uid] = given
            self._conditions[pod.id.uid] = pod, _unscheduled(pod, text, nominated)
            self._add(_event(pod, "Warning", FAILED, text))

    def bound(self, pod: PendingPod, node: str) -> None:
        """Tell a pod that it has a node."""
        self.forget(pod.id.uid)
        with self._condition:
            self._add(_event(pod, "Normal", SCHEDULED, f"Successfully assigned {pod.title} to {node}"))

    def evicted(
        self, victim_id: PodId, manifest: Mapping[str, Any], preemptor_pod: PendingPod, node: str
    ) -> None:
        """Tell a pod that it goes for a more important one."""
        event = _PodEvent(
            victim_id,
            manifest,
            "Normal",
            PREEMPTED,
            f"Preempted by pod {preemptor_pod.id.uid} on node {node}",
        )
        with self._condition:
            self._add(event)

    def notes(self, pod: PendingPod, reason: str, text: str) -> None:
        """Tell a pod what was not looked at when it was placed, or what its other scheduler has refused."""
        with self._condition:
            self._add(_event(pod, "Warning", reason, text[:_LONGEST_MESSAGE]))

    def forget(self, uid: str) -> None:
        """Note that a pod waits no more."""
        with self._condition:
            self._given.pop(uid, None)
            self._conditions.pop(uid, None)

    def _add(self, event: _PodEvent) -> None:
        if len(self._events) >= _MOST_EVENTS:
            WRITES.labels("event", "dropped").inc()
        else:
            self._events.append(event)
        self._condition.notify()

    def run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._conditions or self._events)
                condition = self._conditions.popitem(last=False)[1] if self._conditions else None
                event = None if condition else self._events.popleft()
            try:
                self._allow()
                if condition is not None:
                    self._write_condition(*condition)
                elif event is not None:
                    self._write_event(event)
            except PlacementError as error:
                WRITES.labels("condition" if condition else "event", "failed").inc()
                self._journal.trouble(_SOURCE, str(error))
                if condition is not None:
                    # Told again with the next attempt.
                    self.forget(condition[0].id.uid)
            else:
                WRITES.labels("condition" if condition else "event", "written").inc()
                self._journal.well(_SOURCE)

    def _write_condition(self, pod: PendingPod, status: Mapping[str, Any]) -> None:
        """Change the status, if the pod is still the same and waits. Raises ApiServerError.

        It may have been bound meanwhile, so the version that was read is part of the patch.
        """
        path = object_path(pods_path(pod.id.namespace), pod.id.name)
        known: Mapping[str, Any] | None = pod.manifest
        for _ in range(_MOST_PATCHES):
            if known is None or (known.get("spec") or {}).get("nodeName"):
                return
            metadata = {"uid": pod.manifest["metadata"]["uid"]}
            metadata["resourceVersion"] = known["metadata"]["resourceVersion"]
            try:
                self._api_server.patch(
                    object_path(path, "status"), {"metadata": metadata, "status": status}, STRATEGIC_PATCH
                )
            except ApiServerError as error:
                if error.status == NOT_FOUND:
                    return
                if error.status != CONFLICT:
                    raise
            else:
                return
            known = self._api_server.get(path)
            if known is not None and known["metadata"].get("uid") != metadata["uid"]:
                return
        raise ApiServerError("the pod changes all the time")

    def _write_event(self, event: _PodEvent) -> None:
        component = str((event.manifest.get("spec") or {}).get("schedulerName") or "placement")
        source = self._sources.setdefault(component, EventSource(self._api_server, component))
        key = Key(ObjectKind.POD, event.pod.namespace, event.pod.name)
        reference = reference_of(key, {"apiVersion": "v1", "kind": "Pod", **event.manifest})
        source.write(reference, event.reason, event.text, event.kind)


class _PodEvent(NamedTuple):
    """An Event about a pod: its type, reason and message."""

    pod: PodId
    manifest: Mapping[str, Any]
    kind: str
    reason: str
    text: str


def _event(pod: PendingPod, kind: str, reason: str, text: str) -> _PodEvent:
    return _PodEvent(pod.id, pod.manifest, kind, reason, text)


def _unscheduled(pod: PendingPod, text: str, nominated: str | None) -> dict[str, Any]:
    """Return the status of a pod that waits."""
    condition = {"type": "PodScheduled", "status": "False", "reason": UNSCHEDULABLE, "message": text}
    if pod.manifest["spec"].get("schedulingGates"):
        # Kubernetes itself gives this reason; autoscalers leave such pods alone.
        condition["reason"] = GATED
    stated = (pod.manifest.get("status") or {}).get("conditions") or ()
    was = next((each for each in stated if each.get("type") == "PodScheduled"), None)
    if was is None or was.get("status") != "False":
        condition["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status: dict[str, Any] = {"conditions": [condition]}
    if nominated or (pod.manifest.get("status") or {}).get("nominatedNodeName"):
        status["nominatedNodeName"] = nominated
    return status
