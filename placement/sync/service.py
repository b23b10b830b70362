"""The calls of the reconciler to the service, for one cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from placement.client.client import Client, ServiceError, message_of, path
from placement.common.pod_identity import canonical_uid

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

    id: PodId
    node: str | None
    changed_at: str | None = None


class HeldNode(NamedTuple):
    """A node that the service knows; a closed one takes no new pod. A node may have no uid."""

    name: str
    uid: str | None
    is_closed: bool


NamedNodeManifests = tuple[str, Mapping[str, Any], Mapping[str, Any] | None]
"""The name of a node, its Node and its NodeResourceTopology."""


class Sent(NamedTuple):
    """The outcome for a thing: warnings about it, or why the service did not take it.

    `shares_cpus`: it is a pod, and another pod has some of its CPUs.
    """

    warnings: list[str]
    refusal: ServiceError | None = None
    shares_cpus: bool = False


class ServiceCluster:
    """A cluster of the service. Every call raises ServiceError."""

    def __init__(self, client: Client, name: str, allow: Callable[[], None] = lambda: None) -> None:
        """Have `allow` called before each write; its exceptions prevent the write.

        Raises ServiceError for a name that no cluster can have.
        """
        self._client = client
        self._name = name
        self._allow = allow
        self._path = f"/ext/v1{path('clusters', name)}"

    def by(self, client: Client) -> ServiceCluster:
        """Return the same cluster by another client, for another thread."""
        return ServiceCluster(client, self._name, self._allow)

    def _at(self, *of: str) -> str:
        return self._path + path(*of)

    def create_if_missing(self) -> bool:
        """Create the cluster unless it exists; return whether it had to be created."""
        try:
            self._client.get(self._at())
        except ServiceError as error:
            if error.status != _NOT_FOUND:
                raise
            self.put({})
            return True
        return False

    def nodes(self) -> list[HeldNode]:
        """Return its nodes; a node with unreadable stored manifests counts as closed."""
        listed = self._client.get(self._at("nodes"), [("include", "state")])["nodes"]
        return [_held_node(node) for node in listed]

    def delete_node(self, name: str, *, with_reservations: bool = False) -> bool:
        """Delete a node and return whether it was there; while it is in use, it is closed to new pods.

        Reservations there are deleted with it on request, and otherwise keep it.
        """
        query = [("closes", "true"), *([("reservations", "true")] if with_reservations else [])]
        try:
            return self.delete("nodes", name, query=query)
        except ServiceError as error:
            if error.status != CONFLICT:
                raise
            raise ServiceError(f"it is closed to new pods: {error}", CONFLICT) from None

    def put_nodes(self, nodes: Sequence[NamedNodeManifests]) -> list[Sent]:
        """Create or update many nodes; return the outcome for each, in their order."""
        items = [manifest for _, *manifests in nodes for manifest in manifests if manifest is not None]
        singly = [
            partial(self.put, {"node": node, "nodeResourceTopology": topology}, "nodes", name)
            for name, node, topology in nodes
        ]
        return self._put_many("nodes", items, singly)

    def put_pods(self, pods: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[Sent]:
        """Record many pods, given by namespace, name and manifest; return the outcome for each, in order."""
        items = [manifest for *_, manifest in pods]
        singly = [partial(self.put, pod, "pods", namespace, name) for namespace, name, pod in pods]
        return self._put_many("pods", items, singly)

    def place(self, pods: Sequence[Mapping[str, Any]], seconds: float) -> list[dict[str, Any]]:
        """Have many pods placed within some seconds; return for each its `status`, and `pod` or `error`."""
        self._allow()
        answer = self._client.post(self._at("pods"), {"kind": "List", "items": pods}, seconds)
        found: list[dict[str, Any]] = answer["pods"]
        return found

    def confirm(self, pods: Sequence[tuple[PodId, str]]) -> list[bool]:
        """Report pods that were bound to these nodes; return for which the service holds that claim."""
        self._allow()
        items = [{**pod._asdict(), "node": node} for pod, node in pods]
        try:
            answer = self._client.post(self._at("pods", "bound"), {"pods": items})
        except ServiceError as error:
            if error.status != _NOT_FOUND:
                raise
            # A release before this one, during an upgrade, takes full reports.
            return [False] * len(pods)
        return [each["outcome"] == "confirmed" for each in answer["pods"]]

    def preemption(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the node and the pods to evict there, chosen for a pod."""
        found: dict[str, Any] = self._client.post(self._at("pods", "preemption"), body)
        return found

    def settings(self) -> dict[str, Any]:
        """Return the cluster with its settings."""
        found: dict[str, Any] = self._client.get(self._at())
        return found

    def _put_many(
        self, kind: str, items: Sequence[Mapping[str, Any]], singly: Sequence[Callable[[], Sent]]
    ) -> list[Sent]:
        """Send many things, `singly` if one of them spoils the body for all; return the outcome for each."""
        self._allow()
        try:
            answer = self._client.post(self._at(kind), {"kind": "List", "items": items})
        except ServiceError as error:
            if not is_refusal(error):
                raise
            return list(map(outcome_of, singly))
        found = []
        for outcome in answer[kind]:
            if "error" in outcome:
                service_error = ServiceError(message_of(outcome["error"]), outcome["status"])
                found.append(Sent([], service_error))
            else:
                found.append(_taken(outcome.get("pod", outcome)))
        return found

    def reservations(self, node: str | None = None) -> list[str]:
        """Return the names of its reservations, or of the ones on one of its nodes."""
        return [each["name"] for each in self._listed("reservations", node=node)]

    def reservation(self, name: str) -> dict[str, Any] | None:
        """Return one of its reservations, None if there is none of that name."""
        try:
            found: dict[str, Any] = self._client.get(self._at("reservations", name))
        except ServiceError as error:
            if error.status != _NOT_FOUND:
                raise
            return None
        return found

    def pods(self, node: str | None = None) -> Iterator[HeldPod]:
        """Return its pods, or the pods on one of its nodes."""
        return map(_held, self._listed("pods", node=node))

    def claims(self) -> Iterator[HeldPod]:
        """Return pods that the service has placed and that were not reported on their nodes yet."""
        return map(_held, self._listed("pods", scheduled="true"))

    def _listed(self, kind: str, **wanted: str | None) -> Iterator[dict[str, Any]]:
        query = {name: value for name, value in wanted.items() if value is not None}
        while True:
            page = self._client.get(self._at(kind), query.items())
            yield from page[kind]
            if page["next"] is None:
                return
            query["marker"] = str(page["next"])

    def release(self, pod: PodId, changed_at: str | None = None) -> bool:
        """Release the resources of the pod with that uid; return whether it held any.

        With `changed_at`, do so only if the pod was not claimed or reported again since.
        """
        query = [("uid", pod.uid)]
        if changed_at is not None:
            query.append(("changed_at", changed_at))
        try:
            return self.delete("pods", pod.namespace, pod.name, query=query)
        except ServiceError as error:
            if changed_at is None or error.status != CONFLICT:
                raise
            return False

    def put(self, body: Mapping[str, Any], *of: str) -> Sent:
        """Create or change the cluster or a thing of it; return the outcome."""
        self._allow()
        return _taken(self._client.put(self._at(*of), body))

    def delete(self, *of: str, query: Sequence[tuple[str, str]] = ()) -> bool:
        """Delete a thing of the cluster; return whether it was there."""
        self._allow()
        try:
            self._client.delete(self._at(*of), query)
        except ServiceError as error:
            if error.status != _NOT_FOUND:
                raise
            return False
        return True


def _held_node(node: Mapping[str, Any]) -> HeldNode:
    uid, closed = node.get("uid"), node.get("closed") or ()
    return HeldNode(node["name"], uid and canonical_uid(uid), "closed" in closed or "unreadable" in closed)


def _held(pod: Mapping[str, Any]) -> HeldPod:
    return HeldPod(PodId(pod["namespace"], pod["name"], pod["uid"]), pod["node"], pod.get("changed_at"))


def _taken(answer: Mapping[str, Any]) -> Sent:
    """Return the outcome for a thing that the service took, by its answer; clusters have no warnings."""
    return Sent(answer.get("warnings", []), shares_cpus=bool(answer.get("shared_with")))


def outcome_of(send: Callable[[], Sent | bool]) -> Sent:
    """Send a thing, or a deletion; return the outcome."""
    try:
        sent = send()
        return sent if isinstance(sent, Sent) else Sent([])
    except ServiceError as error:
        return Sent([], error)


def is_refusal(error: ServiceError) -> bool:
    """Return whether the service works but refuses this."""
    return error.status in _REFUSALS
