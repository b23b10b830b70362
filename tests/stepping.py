"""A Kubernetes in memory, and the synchronization and the extender at work on it step by step.

Each watch is as far behind as the test lets it be, and a Binding may be carried out long after it was sent.
`between` is called before each call to the service and after each list, so that anything may happen there.
"""

from __future__ import annotations

import copy
import io
import json
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlencode

from placement.client.client import Client as ServiceClient
from placement.client.client import ServiceError
from placement.engine.domain.errors import Conflict, NotFound, Unanswered
from placement.engine.numa.cpus import parse_cpu_list
from placement.sync.informer_store import InformerStore
from placement.sync.journal import Journal
from placement.sync.reconciler import Reconciler
from placement.sync.service import PodId, ServiceCluster
from placement.sync.watched_collections import Collection, collections
from placement.sync.watched_objects import Key as ObjectKey
from placement.sync.watched_objects import WatchedObject
from tests.client import Client
from tests.kubernetes import CLUSTER, STATUS, node_manifests, pod_manifest

NODE, TOPOLOGY, POD = "Node", "NodeResourceTopology", "Pod"
Key = tuple[str, str]


def nothing() -> None:
    """Nothing happens."""


class Kubernetes:
    """Nodes, topologies and pods of a namespace, with what has become of each since it was listed."""

    def __init__(self) -> None:
        self.objects: dict[Key, dict[str, Any]] = {}
        self.followers: list[dict[str, deque[tuple[str, dict[str, Any] | None]]]] = []
        # Bindings that were received, and are carried out later.
        self.in_flight: list[Callable[[], None]] = []
        self.is_slow = False
        self.between: Callable[[], None] = nothing
        self._version = 0

    # -- what its users do ------------------------------------------------------------------------------

    def put(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Store an object, which all that watch will see."""
        self._version += 1
        manifest["metadata"]["resourceVersion"] = str(self._version)
        key = manifest["kind"], manifest["metadata"]["name"]
        self.objects[key] = manifest
        for follower in self.followers:
            follower[manifest["kind"]].append((key[1], copy.deepcopy(manifest)))
        return manifest

    def delete(self, kind: str, name: str) -> None:
        """Remove an object."""
        if self.objects.pop((kind, name), None) is not None:
            for follower in self.followers:
                follower[kind].append((name, None))

    def names(self, kind: str) -> list[str]:
        """The names of the objects of a kind."""
        return sorted(name for of, name in self.objects if of == kind)

    def pods(self) -> list[dict[str, Any]]:
        """All pods."""
        return [self.objects[POD, name] for name in self.names(POD)]

    def register(self, name: str, *, uid: str | None = None, topology: bool = True, **given: Any) -> str:
        """A kubelet registers its node, under a new uid unless one is given; the uid."""
        manifests = node_manifests(name, **given)
        uid = uid or str(uuid.uuid4())
        manifests["node"]["metadata"]["uid"] = uid
        if topology:
            self.put(manifests["nodeResourceTopology"])
        self.put(manifests["node"])
        return uid

    def create_pod(
        self, name: str, cpu: str = "2", *, node: str | None = None, **given: Any
    ) -> dict[str, Any]:
        """A pod that waits, or that its owner has put on a node."""
        manifest = pod_manifest(cpu, uid=str(uuid.uuid4()), node=node, phase="Pending", **given)
        seconds = self._version
        created = f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"
        manifest["metadata"].update(name=name, namespace="default", creationTimestamp=created)
        return self.put(manifest)

    def begin_deletion(self, name: str) -> None:
        """A pod is asked to end."""
        pod = copy.deepcopy(self.objects[POD, name])
        pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
        self.put(pod)

    def end(self, name: str, phase: str = "Succeeded") -> None:
        """A pod is over."""
        pod = copy.deepcopy(self.objects[POD, name])
        pod["status"]["phase"] = phase
        self.put(pod)

    # -- what the extender asks -------------------------------------------------------------------------

    def of(self, cluster: str) -> Kubernetes:
        """The API server of a cluster: this one."""
        return self

    def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """One pod."""
        return copy.deepcopy(self.objects.get((POD, name)))

    def pods_on(self, node: str) -> Iterable[Mapping[str, Any]]:
        """The pods on a node that are not over, as they were a moment ago."""
        found = [copy.deepcopy(pod) for pod in self.pods() if runs(pod) and node_of(pod) == node]
        self.between()
        return found

    def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Assign a pod to a node, now or, without an answer, later."""

        def carried_out() -> None:
            pod = copy.deepcopy(self.objects.get((POD, name)))
            if pod is None:
                raise NotFound(f"pod {name} is gone")
            if pod["metadata"]["uid"] != uid or node_of(pod):
                raise Conflict(f"pod {name} is another one, or is assigned already")
            pod["metadata"]["annotations"].update(annotations)
            pod["spec"]["nodeName"] = node
            pod["status"]["phase"] = "Running"
            self.put(pod)

        if self.is_slow:
            self.in_flight.append(carried_out)
            raise Unanswered("the API server does not answer")
        carried_out()

    def carry_out(self) -> None:
        """Carry out one of the Bindings that were received."""
        with suppress(NotFound, Conflict):
            self.in_flight.pop(0)()

    # -- what the synchronization asks ------------------------------------------------------------------

    def asked(self, collection: Collection, pod: PodId) -> WatchedObject | None:
        """That very pod as it is now."""
        found = self.objects.get((POD, pod.name))
        seen = None if found is None else collection.watched(copy.deepcopy(found))[1]
        return seen if seen is not None and seen.uid == pod.uid else None


def node_of(pod: Mapping[str, Any]) -> str | None:
    """The node of a pod."""
    found: str | None = pod["spec"].get("nodeName")
    return found


def runs(pod: Mapping[str, Any]) -> bool:
    """Whether a pod occupies a node."""
    return bool(node_of(pod)) and pod["status"].get("phase") not in ("Succeeded", "Failed")


def cpus_of(pod: Mapping[str, Any]) -> frozenset[int]:
    """The CPUs that a pod was given as it was bound."""
    status = json.loads(pod["metadata"]["annotations"].get(STATUS, "{}"))
    return frozenset(parse_cpu_list(status.get("cpuset", "")))


class _InProcess(ServiceClient):
    """Calls to the service in this process."""

    def __init__(self, api: Client, between: Callable[[], None]) -> None:
        super().__init__("http://localhost", "admin")
        self._api = api
        self._between = between

    def _call(self, method: str, path: str, *_: Any, **sent: Any) -> Any:
        self._between()
        query = urlencode(sent.get("params") or ())
        answer = self._api.call(method, f"{path}?{query}" if query else path, sent.get("json"))
        if answer.status_code >= 400:
            raise ServiceError(answer.json["errors"][0]["detail"], answer.status_code)
        return answer.json if answer.data else None


class Stepped:
    """The synchronization, which does one thing when it is asked to."""

    def __init__(self, kubernetes: Kubernetes, api: Client) -> None:
        self._kubernetes = kubernetes
        self._api = api
        self.between: Callable[[], None] = nothing
        self.said = io.StringIO()
        self._collections = {found.kind.value: found for found in collections([])}
        self._pods = self._collections[POD]
        self._reconciler: Reconciler | None = None
        self._must_compare = True

    @property
    def runs(self) -> bool:
        """Whether it runs."""
        return self._reconciler is not None

    def start(self) -> None:
        """Begin with lists of everything."""
        self._events: dict[str, deque[tuple[str, dict[str, Any] | None]]] = defaultdict(deque)
        self._kubernetes.followers.append(self._events)
        self._store = InformerStore([found.title for found in self._collections.values()])
        for kind, collection in self._collections.items():
            listed = [each for key, each in self._kubernetes.objects.items() if key[0] == kind]
            self._store.replace(
                collection.title, dict(collection.watched(copy.deepcopy(each)) for each in listed)
            )
        service = ServiceCluster(_InProcess(self._api, lambda: self.between()), "edge")
        journal = Journal(self.said, self.said)
        asked = partial(self._kubernetes.asked, self._pods)
        self._reconciler = Reconciler(service, self._store, journal, asked, [], lambda _: None, 600.0)
        self._must_compare = True

    def stop(self) -> None:
        """End, and forget everything."""
        self._reconciler = None
        self._kubernetes.followers.remove(self._events)

    def see(self, *kinds: str, most: int = 1_000_000) -> None:
        """Hear of what has changed, of these kinds or all, up to so many events."""
        for kind in kinds or tuple(self._collections):
            collection, events = self._collections[kind], self._events[kind]
            for _ in range(min(most, len(events))):
                name, manifest = events.popleft()
                if manifest is None:
                    namespace = "default" if kind == POD else ""
                    self._store.put(collection.title, ObjectKey(collection.kind, namespace, name), None)
                else:
                    self._store.put(collection.title, *collection.watched(manifest))

    def settle(self, *, compare: bool = False, claims: bool = False) -> None:
        """Do what the loop does in a turn."""
        assert self._reconciler is not None
        self._reconciler.look_at(self._store.changed(0))
        try:
            if self._must_compare or compare:
                self._reconciler.compare()
                self._must_compare = False
            if claims:
                self._reconciler.look_at_claims()
            self._reconciler.settle()
        except ServiceError:
            self._must_compare = True

    def catch_up(self) -> None:
        """Hear of everything, and send it, also what was refused before."""
        if not self.runs:
            self.start()
        self.see()
        self.settle(compare=True, claims=True)
        assert self._reconciler is not None
        self._reconciler.settle_all()


class Scheduling:
    """kube-scheduler, as far as it asks the extender."""

    def __init__(self, kubernetes: Kubernetes, api: Client) -> None:
        self._kubernetes = kubernetes
        self._api = api

    def filter(self, name: str) -> list[str]:
        """The nodes, of the ones that it knows, on which a pod fits."""
        pod = copy.deepcopy(self._kubernetes.objects[POD, name])
        body = {"Pod": pod, "NodeNames": self._kubernetes.names(NODE)}
        answer = self._api.post(f"{CLUSTER}/extender/filter", body)
        assert answer.status_code == 200, answer.text
        return list(answer.json["NodeNames"] or ())

    def bind(self, pod: Mapping[str, Any], node: str) -> str:
        """Bind a pod; the error."""
        metadata = pod["metadata"]
        body = {
            "PodName": metadata["name"],
            "PodNamespace": "default",
            "PodUID": metadata["uid"],
            "Node": node,
        }
        answer = self._api.post(f"{CLUSTER}/extender/bind", body)
        assert answer.status_code == 200, answer.text
        error: str = answer.json["Error"]
        return error

    def schedule(self, name: str) -> str:
        """Bind a pod to the first node on which it fits; the node, empty if there is none."""
        found = self.filter(name)
        return found[0] if found and not self.bind(self._kubernetes.objects[POD, name], found[0]) else ""


def recorded(api: Client) -> dict[str, dict[str, Any]]:
    """The pods that the service has on nodes, by name, with node, uid and CPUs."""
    listed = api.get(f"{CLUSTER}/pods?limit=1000")
    if listed.status_code == 404:
        return {}
    return {pod["name"]: pod for pod in listed.json["pods"] if pod["node"]}
