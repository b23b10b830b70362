"""What the mirror says to the service about one cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from placement.operations.client import Client, ServiceError, path

_NOT_FOUND = 404
_REFUSALS = frozenset({400, 409, 413, 422})
CONFLICT = 409


class HeldPod(NamedTuple):
    """A pod that the service knows; without node it occupies nothing."""

    namespace: str
    name: str
    uid: str
    node: str | None


class ServiceCluster:
    """One cluster of the service. Every call raises ServiceError."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._path = f"/ext/v1{path('clusters', name)}"

    def create_if_missing(self) -> bool:
        """See to it that the cluster exists; whether it had to be created."""
        try:
            self._client.get(self._path)
        except ServiceError as error:
            if error.status != _NOT_FOUND:
                raise
            self._client.put(self._path, {})
            return True
        return False

    def nodes(self) -> list[str]:
        """The names of its nodes."""
        return [node["name"] for node in self._client.get(f"{self._path}/nodes")["nodes"]]

    def put_node(self, name: str, node: Mapping[str, Any], topology: Mapping[str, Any] | None) -> list[str]:
        """Create or update a node; the warnings about it."""
        body = {"node": node, "nodeResourceTopology": topology}
        warnings: list[str] = self._client.put(self._path + path("nodes", name), body)["warnings"]
        return warnings

    def delete_node(self, name: str) -> None:
        """Delete a node, if it is there."""
        self._delete(path("nodes", name))

    def pods(self) -> Iterator[HeldPod]:
        """Its pods."""
        query: list[tuple[str, str]] = []
        while True:
            page = self._client.get(f"{self._path}/pods", query)
            for pod in page["pods"]:
                yield _held(pod)
            if page["next"] is None:
                return
            query = [("marker", str(page["next"]))]

    def pod(self, namespace: str, name: str) -> HeldPod | None:
        """One of them, if it is there."""
        try:
            return _held(self._client.get(self._path + path("pods", namespace, name)))
        except ServiceError as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    def put_pod(self, namespace: str, name: str, pod: Mapping[str, Any]) -> list[str]:
        """Record a pod on its node; the warnings about it."""
        warnings: list[str] = self._client.put(self._path + path("pods", namespace, name), pod)["warnings"]
        return warnings

    def delete_pod(self, namespace: str, name: str) -> None:
        """Release what a pod holds, if it holds anything."""
        self._delete(path("pods", namespace, name))

    def _delete(self, of: str) -> None:
        try:
            self._client.delete(self._path + of)
        except ServiceError as error:
            if error.status != _NOT_FOUND:
                raise


def _held(pod: Mapping[str, Any]) -> HeldPod:
    return HeldPod(pod["namespace"], pod["name"], pod["uid"], pod["node"])


def is_refusal(error: ServiceError) -> bool:
    """Whether the service is fine, but does not want this."""
    return error.status in _REFUSALS
