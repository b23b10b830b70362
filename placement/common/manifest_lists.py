"""Kubernetes manifests among documents: which of them describe a node, a pod or a reservation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from placement.common.gang import POD_GROUP, with_pod_groups
from placement.engine.domain.errors import BadRequest

RESERVATION_API_VERSION = "scheduling.koordinator.sh/v1alpha1"
_TOPOLOGY = "NodeResourceTopology"


class NodeManifests(NamedTuple):
    """The manifests that describe one node."""

    node: Mapping[str, Any]
    topology: Mapping[str, Any] | None


def node_manifests(documents: list[Any]) -> NodeManifests:
    """Return the Node and the NodeResourceTopology among the documents, List objects opened.

    Also takes one object {"node": ..., "nodeResourceTopology": ...}. Raises BadRequest.
    """
    return _paired(_flattened(documents))


def nodes_manifests(documents: list[Any]) -> dict[str, NodeManifests]:
    """Return the manifests of any number of nodes by name, in order of appearance. Raises BadRequest."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for manifest in _flattened(documents):
        metadata = manifest.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if not isinstance(name, str):
            raise BadRequest(f"metadata.name: a {manifest.get('kind')} has none")
        by_name.setdefault(name, []).append(manifest)
    if not by_name:
        raise BadRequest("kind: the Node is missing")
    return {name: _paired(manifests) for name, manifests in by_name.items()}


def pod_manifest(documents: list[Any]) -> Mapping[str, Any]:
    """Return the one Pod among the documents. Raises BadRequest."""
    return _one_of_kind("Pod", documents)


def pods_manifests(documents: list[Any]) -> list[Mapping[str, Any]]:
    """Return any number of Pods, List objects opened, with what PodGroups among them say of their gangs.

    Raises BadRequest for anything else.
    """
    found = list(_flattened(documents))
    groups = [manifest for manifest in found if manifest.get("kind") == POD_GROUP]
    others = [manifest for manifest in found if manifest.get("kind") != POD_GROUP]
    return with_pod_groups(_of_kind("Pod", others), groups)


def reservation_manifest(documents: list[Any]) -> Mapping[str, Any]:
    """Return the one Reservation among the documents. Raises BadRequest."""
    return _one_of_kind("Reservation", documents)


def reservations_manifests(documents: list[Any]) -> list[Mapping[str, Any]]:
    """Return any number of Reservations, List objects opened. Raises BadRequest for anything else."""
    return _of_kind("Reservation", documents)


def _one_of_kind(kind: str, documents: list[Any]) -> Mapping[str, Any]:
    found = _of_kind(kind, documents)
    if len(found) != 1:
        raise BadRequest(f"expected one {kind}, got {len(found)} manifests")
    return found[0]


def _of_kind(kind: str, documents: list[Any]) -> list[Mapping[str, Any]]:
    found = list(_flattened(documents))
    for manifest in found:
        if manifest.get("kind") != kind:
            raise BadRequest(f"kind: expected {kind}, got {manifest.get('kind')!r}")
    return found


def _paired(manifests: Iterable[Mapping[str, Any]]) -> NodeManifests:
    found: dict[str, Mapping[str, Any]] = {}
    for manifest in manifests:
        kind = manifest.get("kind")
        if kind not in ("Node", _TOPOLOGY):
            raise BadRequest(f"kind: expected Node or {_TOPOLOGY}, got {kind!r}")
        if kind in found:
            raise BadRequest(f"kind: more than one {kind}")
        found[kind] = manifest
    if "Node" not in found:
        raise BadRequest("kind: the Node is missing")
    return NodeManifests(found["Node"], found.get(_TOPOLOGY))


def _flattened(documents: list[Any]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        if not isinstance(document, Mapping):
            raise BadRequest(f"expected a manifest, got {type(document).__name__}")
        if document.get("kind") == "List" and isinstance(document.get("items"), list):
            yield from _flattened(document["items"])
        elif "kind" not in document and "node" in document:
            parts = [document["node"], document.get("nodeResourceTopology")]
            yield from _flattened([part for part in parts if part is not None])
        else:
            yield document
