"""The cluster behind a stand-in of a Kubernetes API server; tests/api_server_http.py speaks for it.

Written after "Kubernetes API Concepts": pages with continue tokens, watches as chunked lines of JSON,
bookmarks, 410 for versions that are not remembered any more. Items of built-in kinds come without kind and
apiVersion in lists and with both in events, items of custom kinds with both everywhere.
"""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.patience import PATIENCE_SECONDS

TOKEN = "a-token-of-a-service-account"
_TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
KIND_OF = {
    "/api/v1/nodes": "Node",
    "/api/v1/pods": "Pod",
    _TOPOLOGIES: "NodeResourceTopology",
    "/apis/scheduling.koordinator.sh/v1alpha1/reservations": "Reservation",
}
_BUILT_IN = ("Node", "Pod")

Identity = tuple[str, str, str]


class Logged(NamedTuple):
    """An event as it is remembered."""

    version: int
    type: str
    object: dict[str, Any]


class Held(NamedTuple):
    """A write that waits: whether it is there, and whether it may go on."""

    has_come: threading.Event
    may_go: threading.Event


class ApiServer:
    """The cluster behind it; change it with the methods, all of them may be called while it serves."""

    def __init__(self) -> None:
        self.url = ""
        self.page = 2
        self.unknown_kinds: set[str] = set()
        self.token = TOKEN
        self.gone_by_status = False
        self.pages_that_expire = 0
        # Names of objects that are newer than any list.
        self.unlisted: set[str] = set()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.writes: list[tuple[str, str, Any]] = []
        # Events about rejected objects.
        self.told: list[Any] = []
        self.condition = threading.Condition()
        self.connections = 0
        self.is_away = False
        self._objects: dict[Identity, dict[str, Any]] = {}
        self._log: list[Logged] = []
        self._watches = 0
        self._version = 1
        self._oldest = 0
        self._pages: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self._failures: list[tuple[str, int]] = []
        self._held: dict[tuple[str, str], Held] = {}

    # -- what happens in the cluster ------------------------------------------------------------------

    def put(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create or replace an object; as stored."""
        with self.condition:
            stored = copy.deepcopy(manifest)
            known = _identity(stored) in self._objects
            self._record("MODIFIED" if known else "ADDED", stored)
            self._objects[_identity(stored)] = stored
            return copy.deepcopy(stored)

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """Delete an object."""
        with self.condition:
            gone = self._objects.pop((kind, namespace, name))
            self._record("DELETED", copy.deepcopy(gone))

    def get(self, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        """An object."""
        with self.condition:
            return copy.deepcopy(self._objects.get((kind, namespace, name)))

    def bookmark(self) -> None:
        """Tell every watch the present version."""
        with self.condition:
            for kind in KIND_OF.values():
                self._record("BOOKMARK", {"kind": kind, "metadata": {}})

    def forget(self) -> None:
        """Remember no event of before; the present version can still be watched from."""
        with self.condition:
            self._forget_before(self._version)

    def forget_before_bookmark(self) -> None:
        """Remember no event before the latest bookmark."""
        with self.condition:
            self._forget_before(max(event.version for event in self._log if event.type == "BOOKMARK"))

    def _forget_before(self, version: int) -> None:
        self._log = [event for event in self._log if event.version > version]
        self._oldest = version

    @contextmanager
    def away(self) -> Iterator[None]:
        """Watches break off in the middle of a line, and nobody can connect before the block is over."""
        with self.condition:
            self.is_away = True
            self.connections += 1
            self.condition.notify_all()
            # Each watch tells first what happened before.
            self.condition.wait_for(lambda: not self._watches, PATIENCE_SECONDS)
        yield
        self.is_away = False

    def restore(self, kept: int) -> None:
        """Be restored from a backup: newer objects are gone, and versions go on from that one."""
        with self.condition:
            self._objects = {
                identity: stored
                for identity, stored in self._objects.items()
                if int(stored["metadata"]["resourceVersion"]) <= kept
            }
            self._log = [event for event in self._log if event.version <= kept]
            self._version = kept

    @property
    def version(self) -> int:
        """The version of the latest change."""
        return self._version

    def fail_next(self, path: str, status: int) -> None:
        """Answer a request whose path ends so with that status, once those told of before have failed.

        Status 0: do what is asked and break off without an answer; 200: do what is asked.
        """
        with self.condition:
            self._failures.append((path, status))

    def hold_next(self, method: str, path: str) -> Held:
        """The next write like that, whose path ends so, waits before it has its effect."""
        with self.condition:
            held = self._held[method, path] = Held(threading.Event(), threading.Event())
            return held

    def wait_where_held(self, method: str, path: str) -> None:
        """Wait if this is a write that was told to."""
        with self.condition:
            keys = [key for key in self._held if key[0] == method and path.endswith(key[1])]
            found = [self._held.pop(key) for key in keys]
        for held in found:
            held.has_come.set()
            assert held.may_go.wait(PATIENCE_SECONDS)

    def _record(self, type_: str, stored: dict[str, Any]) -> None:
        self._version += 1
        stored.setdefault("metadata", {})["resourceVersion"] = str(self._version)
        self._log.append(Logged(self._version, type_, copy.deepcopy(stored)))
        self.condition.notify_all()

    # -- what is asked ----------------------------------------------------------------------------------

    def failure_of(self, path: str) -> int | None:
        """The status this request is to fail with."""
        with self.condition:
            if self._failures and path.endswith(self._failures[0][0]):
                return self._failures.pop(0)[1]
            return None

    def list(self, kind: str, namespace: str | None, limit: int, token: str | None) -> dict[str, Any] | None:
        """A page of a list; None if the token has expired."""
        with self.condition:
            if token is None:
                version, items = self._version, self._of(kind, namespace)
            elif self.pages_that_expire:
                self.pages_that_expire -= 1
                return None
            else:
                version, items = self._pages.pop(token)
            size = min(limit, self.page)
            metadata = {"resourceVersion": str(version)}
            if items[size:]:
                metadata["continue"] = f"page-{len(self._pages)}-{version}-{len(items)}"
                self._pages[metadata["continue"]] = version, items[size:]
            shown = [self._listed(kind, item) for item in items[:size]]
            return {"kind": f"{kind}List", "apiVersion": "v1", "metadata": metadata, "items": shown}

    def _of(self, kind: str, namespace: str | None) -> list[dict[str, Any]]:
        return [
            copy.deepcopy(stored)
            for identity, stored in sorted(self._objects.items())
            if identity[0] == kind and namespace in (None, identity[1]) and identity[2] not in self.unlisted
        ]

    @staticmethod
    def _listed(kind: str, stored: dict[str, Any]) -> dict[str, Any]:
        hidden = ("kind", "apiVersion") if kind in _BUILT_IN else ()
        return {name: value for name, value in stored.items() if name not in hidden}

    def has_forgotten(self, query: dict[str, str]) -> bool:
        """Whether a watch cannot begin at the version it asks for."""
        return int(query["resourceVersion"]) < self._oldest

    def events(self, kind: str, namespace: str | None, after: int) -> Iterator[Logged]:
        """What happens after that version, until connections are dropped, or up to an ERROR."""
        connections = self.connections
        with self.condition:
            self._watches += 1
        try:
            yield from self._events(kind, namespace, after, connections)
        finally:
            with self.condition:
                self._watches -= 1
                self.condition.notify_all()

    def _events(self, kind: str, namespace: str | None, after: int, connections: int) -> Iterator[Logged]:
        while True:
            with self.condition:
                if after < self._oldest:
                    gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
                    ready = [Logged(0, "ERROR", gone)]
                else:
                    ready = [event for event in self._log if event.version > after]
                if not ready:
                    # A watch that was let in before may begin only now.
                    if connections != self.connections or self.is_away:
                        return
                    self.condition.wait()
                    continue
                after = self._version
            for event in ready:
                if event.type == "ERROR":
                    yield event
                    return
                mine = event.type == "BOOKMARK" or namespace in (
                    None,
                    event.object["metadata"].get("namespace"),
                )
                if event.object["kind"] == kind and mine:
                    yield event


def _identity(manifest: dict[str, Any]) -> Identity:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]
