"""The calls of the reconciler to the service, for one cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from placement.client.client import Client, ServiceError, message_of, path

_NOT_FOUND = 404
_REFUSALS = frozenset({400, 409, 413, 422})
CONFLICT = 409


class PodId(NamedTuple):
    """A pod; its uid distinguishes it from pods that have its name before or after it."""

    namespace: str
    name: str
    uid: str


class HeldPod(NamedTuple):
    """A pod that the service knows; without node it occupies nothing."""

    namespace: str
    name: str
    uid: str
    node: str | None
    changed_at: str | None = None

    @property
    def id(self) -> PodId:
        """Return the identity of the pod."""
        return PodId(self.namespace, self.name, self.uid)


NodeManifests = tuple[str, Mapping[str, Any], Mapping[str, Any] | None]
"""The name of a node, its Node and its NodeResourceTopology."""


class Sent(NamedTuple):
    """The outcome for a thing: warnings about it, or why the service did not take it."""

    warnings: list[str]
    refusal: ServiceError | None = None


class ServiceCluster:
    """A cluster of the service. Every call raises ServiceError."""

    def __init__(self, client: Client, name: str, allow: Callable[[], None] = lambda: None) -> None:
        """Have `allow` called before each write; its exceptions prevent the write."""
        self._client = client
        self._allow = allow
        self._path = f"/ext/v1{path('clusters', name)}"

    def create_if_missing(self) -> bool:
        """Create the cluster unless it exists; return whether it had to be created."""
        try:
            self._client.get(self._path)
        except ServiceError as error:
            if error.status != _NOT_FOUND:
                raise
            self._put("", {})
            return True
        return False

    def nodes(self) -> list[str]:
        """Return the names of its nodes."""
        return [node["name"] for node in self._client.get(f"{self._path}/nodes")["nodes"]]

    def put_node(self, name: str, node: Mapping[str, Any], topology: Mapping[str, Any] | None) -> list[str]:
        """Create or update a node; return the warnings about it."""
        body = {"node": node, "nodeResourceTopology": topology}
        return self._put(path("nodes", name), body)

    def put_nodes(self, nodes: Sequence[NodeManifests]) -> list[Sent]:
        """Create or update many nodes; return what became of each, in their order."""
        items = [manifest for _, *manifests in nodes for manifest in manifests if manifest is not None]
        return self._put_many("nodes", items, [partial(self.put_node, *node) for node in nodes])

    def put_pods(self, pods: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[Sent]:
        """Record many pods, given by namespace, name and manifest; return what became of each, in order."""
        items = [manifest for *_, manifest in pods]
        return self._put_many("pods", items, [partial(self.put_pod, *pod) for pod in pods])

    def _put_many(
        self, kind: str, items: Sequence[Mapping[str, Any]], singly: Sequence[Callable[[], list[str]]]
    ) -> list[Sent]:
        """Send many things, `singly` if one of them spoils the body for all; return what became of each."""
        self._allow()
        found = []
        try:
            answer = self._client.post(f"{self._path}/{kind}", {"kind": "List", "items": items})
        except ServiceError as error:
            if not is_refusal(error):
                raise
            for put in singly:
                try:
                    found.append(Sent(put()))
                except ServiceError as refusal:
                    found.append(Sent([], refusal))
            return found
        for outcome in answer[kind]:
            if "error" in outcome:
                refused = ServiceError(message_of(outcome["error"]), outcome["status"])
                found.append(Sent([], refused))
            else:
                found.append(Sent(outcome.get("pod", outcome)["warnings"]))
        return found

    def delete_node(self, name: str) -> None:
        """Delete a node, if it is there."""
        self._delete(path("nodes", name))

    def reservations(self, node: str | None = None) -> list[str]:
        """Return the names of its reservations, or of the ones on one of its nodes."""
        return [each["name"] for each in self._listed("reservations", node=node)]

    def put_reservation(self, name: str, reservation: Mapping[str, Any]) -> list[str]:
        """Place a reservation, or change its terms; return the warnings about it."""
        return self._put(path("reservations", name), reservation)

    def delete_reservation(self, name: str) -> None:
        """Release a reservation, if it is there."""
        self._delete(path("reservations", name))

    def pods(self, node: str | None = None) -> Iterator[HeldPod]:
        """Return its pods, or the pods on one of its nodes."""
        return map(_held, self._listed("pods", node=node))

    def claims(self) -> Iterator[HeldPod]:
        """Return pods that the service has placed and that were not reported on their nodes yet."""
        return map(_held, self._listed("pods", scheduled="true"))

    def _listed(self, kind: str, **wanted: str | None) -> Iterator[dict[str, Any]]:
        query = {name: value for name, value in wanted.items() if value is not None}
        while True:
            page = self._client.get(f"{self._path}/{kind}", query.items())
            yield from page[kind]
            if page["next"] is None:
                return
            query["marker"] = str(page["next"])

    def put_pod(self, namespace: str, name: str, pod: Mapping[str, Any]) -> list[str]:
        """Record a pod on its node; return the warnings about it."""
        return self._put(path("pods", namespace, name), pod)

    def release(self, pod: PodId, changed_at: str | None = None) -> bool:
        """Release what the pod of that uid holds; return whether it held anything.

        With `changed_at`, do so only if the pod was not claimed or reported again since.
        """
        query = [("uid", pod.uid)]
        if changed_at is not None:
            query.append(("changed_at", changed_at))
        try:
            return self._delete(path("pods", pod.namespace, pod.name), query)
        except ServiceError as error:
            if changed_at is None or error.status != CONFLICT:
                raise
            return False

    def _put(self, of: str, body: Mapping[str, Any]) -> list[str]:
        """Put something and return the warnings about it, of which clusters have none."""
        self._allow()
        warnings: list[str] = self._client.put(self._path + of, body).get("warnings", [])
        return warnings

    def _delete(self, of: str, query: Sequence[tuple[str, str]] = ()) -> bool:
        self._allow()
        try:
            self._client.delete(self._path + of, query)
        except ServiceError as error:
            if error.status != _NOT_FOUND:
                raise
            return False
        return True


def _held(pod: Mapping[str, Any]) -> HeldPod:
    return HeldPod(pod["namespace"], pod["name"], pod["uid"], pod["node"], pod.get("changed_at"))


def is_refusal(error: ServiceError) -> bool:
    """Return whether the service works but refuses this."""
    return error.status in _REFUSALS
