"""The collections that are watched, and how their objects are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from placement.dialects.koordinator.reservation.reservation import API_VERSION
from placement.operations.kubernetes.api_server import NOT_FOUND, ApiServer, ApiServerError, object_path
from placement.operations.kubernetes.informer_store import (
    Key,
    Kind,
    WatchedObject,
    watched_object,
)

_CORE = "/api/v1"
ALL_PODS = f"{_CORE}/pods"
_TOPOLOGY_GROUP = "topology.node.k8s.io/v1alpha1"
RESERVATIONS = "reservations"
_UNKNOWN = frozenset({NOT_FOUND})
_FORBIDDEN = 403
_NO_TOPOLOGIES = "nodes have no NUMA nodes and cores"


class Collection(NamedTuple):
    """Objects of one kind under one path.

    A list that is refused with one of the `absent` statuses means that there are none; `without` is what
    follows from that, empty if nothing needs to be said.
    """

    title: str
    kind: Kind
    api_version: str
    path: str
    absent: frozenset[int] = frozenset()
    without: str = ""

    def seen(self, manifest: dict[str, Any]) -> tuple[Key, WatchedObject]:
        """An object of the collection. Items of a list may leave out what the list says for all of them."""
        try:
            whole = {"apiVersion": self.api_version, "kind": str(self.kind), **manifest}
            metadata = whole["metadata"]
            return Key(self.kind, metadata.get("namespace") or "", metadata["name"]), watched_object(whole)
        except (LookupError, TypeError, AttributeError) as error:
            raise ApiServerError(f"not a {self.kind}: {error!r}") from None

    def listed(self, api_server: ApiServer) -> tuple[dict[Key, WatchedObject], str]:
        """All objects now, and the version from which a watch goes on. Raises ApiServerError."""
        found: dict[Key, WatchedObject] = {}
        version = ""
        for page in api_server.pages(self.path):
            found.update(self.seen(manifest) for manifest in page.items)
            version = page.resource_version
        return found, version


def collections(namespaces: Iterable[str]) -> list[Collection]:
    """What to watch: nodes, topologies, reservations, and the pods of these namespaces, or of all."""
    reservations = f"/apis/{API_VERSION}/reservations"
    topologies = f"/apis/{_TOPOLOGY_GROUP}/noderesourcetopologies"
    pods = [
        Collection(f"pods of {namespace}", Kind.POD, "v1", pods_path(namespace))
        for namespace in dict.fromkeys(namespaces)
    ]
    return [
        Collection("nodes", Kind.NODE, "v1", f"{_CORE}/nodes"),
        Collection("topologies", Kind.TOPOLOGY, _TOPOLOGY_GROUP, topologies, _UNKNOWN, _NO_TOPOLOGIES),
        # Roles of clusters without that kind need not name it, and then the answer is 403.
        Collection(RESERVATIONS, Kind.RESERVATION, API_VERSION, reservations, _UNKNOWN | {_FORBIDDEN}),
        *(pods or [Collection("pods", Kind.POD, "v1", ALL_PODS)]),
    ]


def pods_path(namespace: str) -> str:
    """The path of the pods of a namespace."""
    return object_path(_CORE, "namespaces", namespace, "pods")


def version_of(manifest: dict[str, Any]) -> str:
    """The version of an object, from which a watch can go on. Raises ApiServerError."""
    try:
        return str(manifest["metadata"]["resourceVersion"])
    except (LookupError, TypeError):
        raise ApiServerError("an event names no resourceVersion") from None
