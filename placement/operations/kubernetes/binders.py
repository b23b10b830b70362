"""The API servers in which the service creates Bindings, by cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.operations.kubernetes.api_server import ApiServer, object_path
from placement.operations.kubernetes.collection import ALL_PODS, pods_path


class Binder:
    """What of one API server binding needs. Every call raises PlacementError."""

    def __init__(self, api_server: ApiServer) -> None:
        self._api_server = api_server

    def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The pod; None if there is none."""
        return self._api_server.get(_path(namespace, name))

    def uids_on(self, node: str) -> set[str]:
        """The uids of the pods on a node that are not over; from the cache of the API server."""
        selector = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
        pages = self._api_server.pages(ALL_PODS, {"fieldSelector": selector, "resourceVersion": "0"})
        return {str(pod["metadata"].get("uid")) for page in pages for pod in page.items}

    def annotate(self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations, remove those that are None; refused if another pod has that name by now."""
        body = {"metadata": {"uid": uid, "annotations": annotations}}
        self._api_server.patch(_path(namespace, name), body)

    def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Assign the pod to the node; refused if it is assigned, or another pod has that name by now."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._api_server.post(f"{_path(namespace, name)}/binding", body)


class Binders:
    """One for each context of a kubeconfig; the context of a cluster is called like the cluster."""

    def __init__(self, kubeconfig: str) -> None:
        self._kubeconfig = kubeconfig
        self._found: dict[str, Binder] = {}

    def of(self, cluster: str) -> Binder:
        """The one of that cluster. Raises PlacementError that says what is missing."""
        found = self._found.get(cluster)
        if found is None:
            # Two threads may do this at the same time; either of the two is as good as the other.
            found = self._found[cluster] = Binder(ApiServer(self._kubeconfig, cluster))
        return found


def _path(namespace: str, name: str) -> str:
    return object_path(pods_path(namespace), name)
