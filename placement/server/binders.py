"""The API servers in which the service creates Bindings, by cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from placement.common.pod_identity import ENDED_PHASES
from placement.engine.domain.errors import Conflict, PlacementError, Unanswered
from placement.sync.api_server import ALL_PODS, ApiServer, ApiServerError, object_path, pods_path, preload


class ApiServerBinder:
    """The calls to one API server that binding needs. Each of them raises PlacementError."""

    def __init__(self, api_server: ApiServer) -> None:
        self._api_server = api_server

    def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return the pod, or None if there is none."""
        return self._api_server.get(_path(namespace, name))

    def pods_on(self, node: str) -> Iterator[Mapping[str, Any]]:
        """Return the pods on a node that are not over; from the cache of the API server."""
        selector = ",".join([f"spec.nodeName={node}", *(f"status.phase!={phase}" for phase in ENDED_PHASES)])
        pages = self._api_server.pages(ALL_PODS, {"fieldSelector": selector, "resourceVersion": "0"})
        # Items of a list do not say what they are.
        return ({"apiVersion": "v1", "kind": "Pod", **pod} for page in pages for pod in page.items)

    def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Assign the pod to the node; refused if it is assigned already, or its name is another pod's.

        The API server copies the annotations of a Binding to the pod as it assigns it. Servers before 1.21 or
        so do not look at the uid. Raises Unanswered if the pod may have been assigned, or may still be, and
        Conflict if it is refused.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": uid, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            self._api_server.post(f"{_path(namespace, name)}/binding", body)
        except ApiServerError as error:
            # A server that does not answer, or fails, may have done what it was asked to.
            if error.status is None or error.status >= 500:
                raise Unanswered(str(error)) from error
            # The pod is gone, say: no failure of this service, nor of Kubernetes.
            raise Conflict(str(error)) from error


class KubeconfigBinders:
    """A binder for each context of a kubeconfig, named like its cluster, and one for the own cluster."""

    def __init__(self, kubeconfig: str | None, own_cluster: str | None = None) -> None:
        """Take `own_cluster` for the cluster that this process runs in, as a pod with an account there."""
        self._kubeconfig = kubeconfig
        self._own_cluster = own_cluster
        self._found: dict[str, ApiServerBinder] = {}
        # The first pods to be bound shall not wait for the import, nor kube-scheduler with them.
        preload()

    def of(self, cluster: str) -> ApiServerBinder:
        """Return the binder of that cluster. Raises PlacementError that says what is missing."""
        found = self._found.get(cluster)
        if found is None:
            if cluster != self._own_cluster and self._kubeconfig is None:
                raise PlacementError(
                    f"this service binds pods of cluster {self._own_cluster} only: "
                    "[kubernetes] kubeconfig is not set"
                )
            is_own = cluster == self._own_cluster
            server = ApiServer() if is_own else ApiServer(self._kubeconfig, cluster)
            # Two threads may do this at the same time; either of the two is as good as the other.
            found = self._found[cluster] = ApiServerBinder(server)
        return found


def _path(namespace: str, name: str) -> str:
    return object_path(pods_path(namespace), name)
