"""Pods that wait for a place from the loop, read from their manifests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from placement.common.gang import gang_of
from placement.common.manifest import CHOOSE_GATE
from placement.sync.service import PodId
from placement.sync.watched_objects import Key, WatchedObject

# The parts of a spec and of a container on which it depends whether a node takes the pod.
_OF_SPEC = (
    "affinity",
    "hostNetwork",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priority",
    "resourceClaims",
    "resources",
    "runtimeClassName",
    "schedulingGroup",
    "tolerations",
    "topologySpreadConstraints",
)
_OF_CONTAINER = ("name", "ports", "resources", "restartPolicy")
_CLAIMING_VOLUMES = ("ephemeral", "persistentVolumeClaim")


class BindingWay(StrEnum):
    """The way in which a pod gets to its node."""

    BINDING = "binding"
    """The pod names the loop as its scheduler, which binds it."""
    GATE = "gate"
    """The loop chooses CPUs and node, takes the gate away, and another scheduler binds."""


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod without a node: `manifest` as Kubernetes has it, without volatile parts.

    `group_key` is the PodGroup that it names. `shape` is equal for pods that the same nodes take. `gang` has
    the gangs that are placed together, none for a pod alone. `other_gates` keep it from being placed.
    `pinned_to` is the node that its affinity names since its gate was taken away.
    """

    id: PodId
    manifest: Mapping[str, Any]
    way: BindingWay
    priority: int
    created_at: str
    shape: bytes
    gang: frozenset[str]
    other_gates: tuple[str, ...]
    pinned_to: str | None = None
    group_key: Key | None = None

    @property
    def title(self) -> str:
        return f"{self.id.namespace}/{self.id.name}"

    @property
    def needs_pods(self) -> bool:
        """Return whether pods that come elsewhere may help it: it wants to be near some, or spread."""
        spec = _mapping(self.manifest.get("spec"))
        near = _mapping(_mapping(spec.get("affinity")).get("podAffinity"))
        return bool(near or spec.get("topologySpreadConstraints"))


def read_pending(
    key: Key,
    watched: WatchedObject,
    schedulers: Collection[str],
    annotated: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> PendingPod | None:
    """Return the pod if it waits for the loop, or was pinned by it; None for every other pod.

    `annotated` returns a manifest with what its PodGroup says. A pod that is being deleted waits for nothing.
    The members of a manifest may have any type.
    """
    if watched.node is not None or watched.over or not watched.text:
        return None
    manifest = watched.manifest
    metadata, spec = manifest["metadata"], _mapping(manifest.get("spec"))
    if metadata.get("deletionTimestamp"):
        return None
    gates = _names(spec.get("schedulingGates"))
    pinned_to = watched.pinned_to
    if CHOOSE_GATE in gates:
        # Kubernetes binds no pod that has a gate, also of this scheduler.
        way = BindingWay.GATE
    elif spec.get("schedulerName") in schedulers:
        way = BindingWay.BINDING
    elif pinned_to:
        way = BindingWay.GATE
    else:
        return None
    metadata.pop("managedFields", None)
    gang = gang_of(annotated(manifest), key.namespace)
    priority = spec.get("priority")
    return PendingPod(
        id=PodId(key.namespace, key.name, watched.uid),
        manifest=manifest,
        way=way,
        group_key=watched.group_key,
        priority=priority if isinstance(priority, int) else 0,
        created_at=str(metadata.get("creationTimestamp") or ""),
        shape=_shape(manifest, way),
        gang=frozenset() if gang is None else gang.together,
        other_gates=tuple(name for name in gates if name != CHOOSE_GATE),
        pinned_to=pinned_to if way is BindingWay.GATE and CHOOSE_GATE not in gates else None,
    )


def _shape(manifest: Mapping[str, Any], way: BindingWay) -> bytes:
    """Return a digest of all that decides which nodes take the pod: no names, no mounts, no images."""
    metadata, spec = manifest["metadata"], _mapping(manifest.get("spec"))
    deciding = {
        "way": way,
        "namespace": metadata.get("namespace"),
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "spec": {name: spec[name] for name in _OF_SPEC if name in spec},
        "containers": [
            {name: each[name] for name in _OF_CONTAINER if name in each}
            for kind in ("initContainers", "containers")
            for each in map(_mapping, _list(spec.get(kind)))
        ],
        "volumes": [
            {name: each[name] for name in _CLAIMING_VOLUMES if name in each}
            for each in map(_mapping, _list(spec.get("volumes")))
            if not each.keys().isdisjoint(_CLAIMING_VOLUMES)
        ],
    }
    return hashlib.blake2b(orjson.dumps(deciding, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def _names(gates: Any) -> list[str]:
    return [str(_mapping(each).get("name")) for each in _list(gates)]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
