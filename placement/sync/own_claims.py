"""Pods that this process places and binds itself, which the synchronization need not report in full."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import orjson

from placement.common.manifest import PINNED
from placement.sync.watched_objects import WatchedObject

# Kubernetes gives these labels of its node to a pod with the Binding, from 1.35 on.
_LABELS_OF_NODE = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
# What a Binding, or taking a gate away, changes in a pod.
_CHANGED_IN_SPEC = ("nodeName", "schedulingGates")
_CHANGED_IN_METADATA = ("annotations", "generation", "labels", "managedFields", "resourceVersion")
# A Binding that the watch does not show for so long is lost: Kubernetes was set back.
SHOWN_WITHIN_SECONDS = 30.0


class OwnClaim(NamedTuple):
    """A bound pod: its node, the annotations it got, what it looked like before, and when it was bound."""

    node: str
    written: frozenset[str]
    essence: bytes
    bound_at: float


class OwnClaims:
    """The pods that are being bound, by uid, and the ones that are bound and not reported yet."""

    def __init__(self) -> None:
        self._binding: set[str] = set()
        self._bound: dict[str, OwnClaim] = {}
        self._lock = threading.Lock()

    @property
    def binding(self) -> int:
        """Return how many pods are being bound."""
        return len(self._binding)

    def begins(self, uid: str) -> None:
        """Note that a pod is being bound: no report of it is sent until that is over."""
        with self._lock:
            self._binding.add(uid)

    def binds(self, uid: str, node: str, manifest: Mapping[str, Any], annotations: Collection[str]) -> None:
        """Note that a pod is bound to the node; it was placed with that manifest, and got the annotations."""
        written = frozenset([*annotations, PINNED])
        claim = OwnClaim(node, written, essence(manifest, written), time.monotonic())
        with self._lock:
            self._binding.discard(uid)
            self._bound[uid] = claim

    def fails(self, uid: str) -> None:
        """Note that a pod could not be bound."""
        with self._lock:
            self._binding.discard(uid)

    def is_binding(self, uid: str) -> bool:
        """Return whether the pod is being bound."""
        return uid in self._binding

    def is_bound(self, uid: str) -> bool:
        """Return whether the pod was bound a moment ago, whatever the watch shows."""
        claim = self._bound.get(uid)
        return claim is not None and time.monotonic() - claim.bound_at < SHOWN_WITHIN_SECONDS

    def says_all(self, watched: WatchedObject) -> bool:
        """Return whether the service knows all about a bound pod: it changed by its Binding alone."""
        claim = self._bound.get(watched.uid)
        if claim is None or claim.node != watched.node:
            return False
        return claim.essence == essence(watched.manifest, claim.written)

    def forget(self, uid: str) -> None:
        """Note that a pod was reported, or is gone."""
        with self._lock:
            self._bound.pop(uid, None)


def essence(manifest: Mapping[str, Any], written: Collection[str]) -> bytes:
    """Return a digest of what the service keeps of a pod and its Binding does not change.

    `written` are annotations that the Binding gives the pod.
    """
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    affinity = {key: value for key, value in (spec.get("affinity") or {}).items() if key != "nodeAffinity"}
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    lasting = {
        "metadata": {key: value for key, value in metadata.items() if key not in _CHANGED_IN_METADATA},
        "annotations": {key: value for key, value in annotations.items() if key not in written},
        "labels": {key: value for key, value in labels.items() if key not in _LABELS_OF_NODE},
        "spec": {key: value for key, value in spec.items() if key not in _CHANGED_IN_SPEC},
        "affinity": affinity,
    }
    lasting["spec"].pop("affinity", None)
    return hashlib.blake2b(orjson.dumps(lasting, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
