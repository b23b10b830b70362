"""The collections that are watched, and how their objects are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from placement.common.documents import RESERVATION_API_VERSION, TOPOLOGY_API_VERSIONS
from placement.common.pod_groups import POD_GROUP_KINDS, PodGroupKind
from placement.sync.api_server import ALL_PODS, CORE, NOT_FOUND, ApiServer, ApiServerError, pods_path
from placement.sync.watched_objects import Key, ObjectKind, WatchedObject, pod_group_key, watched_object

RESERVATIONS = "reservations"
_UNKNOWN = frozenset({NOT_FOUND})
_FORBIDDEN = 403
_NO_TOPOLOGIES = "nodes have no NUMA nodes and cores"


class Collection(NamedTuple):
    """The objects of one kind under one path.

    A list that is refused with one of the `absent` statuses means that there are none; `without` is the
    consequence, empty if nothing needs to be reported. `older_collection` is the same collection in
    a former version of the API, for API servers that do not offer this one.
    """

    title: str
    kind: ObjectKind
    api_version: str
    path: str
    absent: frozenset[int] = frozenset()
    without: str = ""
    older_collection: Collection | None = None

    def watched(self, manifest: dict[str, Any]) -> tuple[Key, WatchedObject]:
        """Return an object of the collection. Items of a list may omit what the list says for all of them."""
        try:
            whole = {"apiVersion": self.api_version, "kind": str(self.kind), **manifest}
            metadata = whole["metadata"]
            namespace, name = metadata.get("namespace") or "", metadata["name"]
            if self.kind is ObjectKind.POD_GROUP:
                key = pod_group_key(self.api_version.partition("/")[0], namespace, name)
            else:
                key = Key(self.kind, namespace, name)
            return key, watched_object(whole)
        except (LookupError, TypeError, AttributeError) as error:
            raise ApiServerError(f"not a {self.kind}: {error!r}") from None

    def listed(self, api_server: ApiServer) -> tuple[dict[Key, WatchedObject], str]:
        """Return all objects now, and the version from which a watch goes on. Raises ApiServerError."""
        found: dict[Key, WatchedObject] = {}
        version = ""
        for page in api_server.pages(self.path):
            found.update(self.watched(manifest) for manifest in page.items)
            version = page.resource_version
        return found, version


def _topologies() -> Collection:
    """Return the topologies in the newest version; it has all members that older ones have."""
    newest_collection: Collection | None = None
    for version in TOPOLOGY_API_VERSIONS:
        path = f"/apis/{version}/noderesourcetopologies"
        newest_collection = Collection(
            "topologies", ObjectKind.TOPOLOGY, version, path, _UNKNOWN, _NO_TOPOLOGIES, newest_collection
        )
    assert newest_collection is not None
    return newest_collection


def title_of_pod_groups(kind: PodGroupKind) -> str:
    """Return the title of the collection of the PodGroups of that kind."""
    return f"PodGroups of {kind.api_group}"


def collections(namespaces: Iterable[str]) -> list[Collection]:
    """Return the collections of nodes, topologies, reservations, PodGroups of all kinds, and pods.

    The pods are the ones in these namespaces, or in all if none is given.
    """
    reservations = f"/apis/{RESERVATION_API_VERSION}/reservations"
    pods = [
        Collection(f"pods of {namespace}", ObjectKind.POD, "v1", pods_path(namespace))
        for namespace in dict.fromkeys(namespaces)
    ]
    return [
        Collection("nodes", ObjectKind.NODE, "v1", f"{CORE}/nodes"),
        _topologies(),
        # Roles of clusters without these kinds need not name them, and then the answer is 403.
        Collection(
            RESERVATIONS,
            ObjectKind.RESERVATION,
            RESERVATION_API_VERSION,
            reservations,
            _UNKNOWN | {_FORBIDDEN},
        ),
        *(
            Collection(
                title_of_pod_groups(kind),
                ObjectKind.POD_GROUP,
                kind.api_version,
                f"/apis/{kind.api_version}/podgroups",
                _UNKNOWN | {_FORBIDDEN},
            )
            for kind in POD_GROUP_KINDS
        ),
        *(pods or [Collection("pods", ObjectKind.POD, "v1", ALL_PODS)]),
    ]


def version_of(manifest: dict[str, Any]) -> str:
    """Return the version of an object, from which a watch can go on. Raises ApiServerError."""
    try:
        return str(manifest["metadata"]["resourceVersion"])
    except (LookupError, TypeError):
        raise ApiServerError("an event names no resourceVersion") from None
