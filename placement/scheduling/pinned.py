"""Pods without their gate: pinned to a node by their affinity, where another scheduler binds them.

A pod that it refuses cannot be unpinned: Kubernetes changes no affinity of a pod without gates. So the claim
stays, as the pod may still be bound there with its CPUs. The pod gets an Event. If it has an owner, and where
that is allowed, it is deleted, so that its owner makes another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from placement.engine.domain.errors import PlacementError
from placement.scheduling.figures import REPLACED
from placement.scheduling.pending import PendingPod
from placement.scheduling.telling import REFUSED_ON_NODE, PodTeller
from placement.sync.api_server import NOT_FOUND, ApiServer, ApiServerError, object_path, pods_path
from placement.sync.journal import Journal
from placement.sync.service import CONFLICT
from placement.sync.watched_objects import Key, ObjectKind

# What the other scheduler refuses at once may be right a moment later, such as a volume that is being made.
_REFUSED_SECONDS = 20.0
# A new pod of the same owner does not go where one was refused so short a time ago.
_REMEMBERED_SECONDS = 600.0
_MOST_REMEMBERED = 10_000
_REFUSAL = "PodScheduled", "False", "Unschedulable"


class _RefusedPod(NamedTuple):
    pod: PendingPod
    since: float


class PinnedPods:
    """The pinned pods that their scheduler refuses; one thread uses it."""

    def __init__(
        self,
        api_server: ApiServer,
        teller: PodTeller,
        allow: Callable[[], None],
        journal: Journal,
        *,
        replaces: bool,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api_server = api_server
        self._teller = teller
        self._allow = allow
        self._journal = journal
        self._replaces = replaces
        self._now = now
        self._refused: dict[Key, _RefusedPod] = {}
        self._nodes: dict[str, dict[str, float]] = {}

    def saw(self, pod: PendingPod) -> None:
        """Note a pinned pod as it is now, and what its scheduler says of it."""
        key = Key(ObjectKind.POD, pod.id.namespace, pod.id.name)
        text = _refusal(pod)
        if text is None:
            self._refused.pop(key, None)
            return
        known = self._refused.get(key)
        if known is None or known.pod.id != pod.id:
            self._refused[key] = _RefusedPod(pod, self._now())
            self._teller.notes(
                pod,
                REFUSED_ON_NODE,
                f"node {pod.pinned_to} was chosen for its CPUs, and its scheduler refuses it there: {text} "
                "Only a new pod can go elsewhere.",
            )

    def forget(self, key: Key) -> None:
        """Note that a pod is bound, or gone."""
        self._refused.pop(key, None)

    def replace_overdue(self) -> None:
        """Delete the pods that have been refused long enough, where that is allowed and an owner is known."""
        for key, (pod, since) in list(self._refused.items()):
            if self._now() - since < _REFUSED_SECONDS:
                continue
            owner = _owner(pod)
            if not (self._replaces and owner):
                REPLACED.labels("kept").inc()
            else:
                self._remember(owner, str(pod.pinned_to))
                try:
                    self._delete(pod)
                except PlacementError as error:
                    self._journal.trouble("pinned pods", str(error))
                    return
                self._journal.well("pinned pods")
                REPLACED.labels("deleted").inc()
                self._journal.note(f"pod {pod.title}: refused on node {pod.pinned_to}, so it is made anew")
            del self._refused[key]

    def _delete(self, pod: PendingPod) -> None:
        path = object_path(pods_path(pod.id.namespace), pod.id.name)
        self._allow()
        try:
            self._api_server.delete(path, {"preconditions": {"uid": pod.manifest["metadata"]["uid"]}})
        except ApiServerError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                raise

    def _remember(self, owner: str, node: str) -> None:
        if len(self._nodes) >= _MOST_REMEMBERED:
            self._nodes.clear()
        self._nodes.setdefault(owner, {})[node] = self._now() + _REMEMBERED_SECONDS

    def refused_for(self, pod: PendingPod) -> set[str]:
        """Return the nodes on which pods of the same owner were refused lately."""
        nodes = self._nodes.get(_owner(pod), {})
        return {node for node, until in nodes.items() if until > self._now()}


def _refusal(pod: PendingPod) -> str | None:
    """Return why the scheduler of a pinned pod refuses it, None if it does not say so."""
    for each in (pod.manifest.get("status") or {}).get("conditions") or ():
        if (each.get("type"), each.get("status"), each.get("reason")) == _REFUSAL:
            return str(each.get("message") or "it is unschedulable.")
    return None


def _owner(pod: PendingPod) -> str:
    """Return the uid of the controller of a pod, empty if it has none."""
    for each in pod.manifest["metadata"].get("ownerReferences") or ():
        if each.get("controller"):
            return str(each.get("uid") or "")
    return ""
