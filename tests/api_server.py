"""A stand-in of a Kubernetes API server over real HTTP: lists, watches, and what a scheduler writes.

Written after "Kubernetes API Concepts": pages with continue tokens, watches as chunked lines of JSON,
bookmarks, 410 for versions that are not remembered any more. Items of built-in kinds come without kind and
apiVersion in lists and with both in events, items of custom kinds with both everywhere.
"""

from __future__ import annotations

import copy
import json
import re
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.certificates import Pair
from tests.patience import PATIENCE_SECONDS

TOKEN = "a-token-of-a-service-account"
_TOPOLOGY_VERSIONS = ("v1alpha1", "v1alpha2")
KIND_OF = {
    "/api/v1/nodes": "Node",
    "/api/v1/pods": "Pod",
    **{
        f"/apis/topology.node.k8s.io/{version}/noderesourcetopologies": "NodeResourceTopology"
        for version in _TOPOLOGY_VERSIONS
    },
    "/apis/scheduling.koordinator.sh/v1alpha1/reservations": "Reservation",
    # There are several kinds of that name.
    **{
        f"/apis/{version}/podgroups": f"PodGroup.{version.partition('/')[0]}"
        for version in (
            "scheduling.sigs.k8s.io/v1alpha1",
            "scheduling.x-k8s.io/v1alpha1",
            "scheduling.volcano.sh/v1beta1",
            "scheduling.k8s.io/v1alpha2",
        )
    },
}
_BUILT_IN = ("Node", "Pod", "PodGroup.scheduling.k8s.io")
_POD_PATH = re.compile(r"/api/v1/namespaces/([^/]+)/pods(?:/([^/]+))?(/binding)?")

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
        # The version in which NodeResourceTopologies are offered.
        self.topology_version = "v1alpha1"
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
            for kind in dict.fromkeys(KIND_OF.values()):
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
                if _kind(event.object) == kind and mine:
                    yield event


def _identity(manifest: dict[str, Any]) -> Identity:
    metadata = manifest["metadata"]
    return _kind(manifest), metadata.get("namespace", ""), metadata["name"]


def _kind(manifest: dict[str, Any]) -> str:
    """The kind of an object, of a PodGroup with its API group."""
    kind: str = manifest["kind"]
    return f"{kind}.{manifest['apiVersion'].partition('/')[0]}" if kind == "PodGroup" else kind


class _Handler(BaseHTTPRequestHandler):
    """Speaks for the cluster of its server."""

    protocol_version = "HTTP/1.1"

    @property
    def _cluster(self) -> ApiServer:
        return self.server.cluster  # type: ignore[attr-defined, no-any-return]

    def handle_one_request(self) -> None:
        if self._cluster.is_away:
            self.close_connection = True
            return
        super().handle_one_request()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        watching = query.get("watch") == "true"
        # A page of one object is asked for the version of the list.
        method = "WATCH" if watching else "VERSION" if query.get("limit") == "1" else "GET"
        if self._is_refused(method, parts.path):
            return
        kind, namespace, name = _meant(parts.path)
        is_offered = kind != "NodeResourceTopology" or f"/{self._cluster.topology_version}/" in parts.path
        if kind is None or kind in self._cluster.unknown_kinds or not is_offered:
            self._fail(404, "the server could not find the requested resource")
        elif name is not None:
            found = self._cluster.get(kind, name, namespace or "")
            self._answer(200, found) if found else self._fail(404, f'pods "{name}" not found')
        elif watching and self._cluster.gone_by_status and self._cluster.has_forgotten(query):
            self._fail(410, "too old resource version")
        elif watching:
            self._watch(kind, namespace, int(query["resourceVersion"]))
        else:
            page = self._cluster.list(kind, namespace, int(query["limit"]), query.get("continue"))
            self._answer(200, page) if page else self._fail(410, "the continue token is too old")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer_is_lost = False
        if self._is_refused("POST", self.path):
            return
        if self.path.endswith("/events"):
            self._cluster.told.append(body)
            self._answer(201, body)
            return
        self._cluster.wait_where_held("POST", self.path)
        kind, namespace, name = _meant(self.path)
        stored = kind and name and self._cluster.get(kind, name, namespace or "")
        if not stored:
            self._fail(404, f'pods "{name}" not found')
            return
        if body["metadata"]["uid"] != stored["metadata"]["uid"]:
            self._fail(409, "Precondition failed: UID in precondition is not that of the object")
            return
        if stored["spec"].get("nodeName"):
            self._fail(409, f"pod {name} is already assigned to node {stored['spec']['nodeName']!r}")
            return
        self._cluster.writes.append(("POST", self.path, body))
        annotations = body["metadata"].get("annotations") or {}
        changes = {"metadata": {"annotations": annotations}, "spec": {"nodeName": body["target"]["name"]}}
        self._cluster.put(_merged(stored, changes))
        if self._answer_is_lost:
            self.close_connection = True
        else:
            self._answer(201, {"kind": "Status", "status": "Success"})

    def _is_refused(self, method: str, path: str) -> bool:
        self._cluster.calls[method, path] += 1
        if self.headers["Authorization"] != f"Bearer {self._cluster.token}":
            self._fail(401, "Unauthorized")
            return True
        status = self._cluster.failure_of(path)
        self._answer_is_lost = status == 0
        if status not in (None, 0, 200):
            self._fail(status, "told to fail")
        return status not in (None, 0, 200)

    def _watch(self, kind: str, namespace: str | None, after: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        for event in self._cluster.events(kind, namespace, after):
            line = json.dumps({"type": event.type, "object": event.object}).encode() + b"\n"
            # Chunks need not be lines.
            self._chunk(line[:20])
            self._chunk(line[20:])
            if event.type == "ERROR":
                self.wfile.write(b"0\r\n\r\n")
                return
        self._chunk(b'{"type":"ADDED","object":{"meta')

    def _chunk(self, text: bytes) -> None:
        self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")

    def _fail(self, status: int, message: str) -> None:
        self._answer(status, {"kind": "Status", "status": "Failure", "message": message, "code": status})

    def _answer(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing; tests look at `calls`."""


def _meant(path: str) -> tuple[str | None, str | None, str | None]:
    """(kind, namespace, name) of a path; no kind if it leads nowhere."""
    pod = _POD_PATH.fullmatch(path)
    if pod:
        return "Pod", pod[1], pod[2]
    return KIND_OF.get(path), None, None


def _merged(stored: Any, changes: Any) -> Any:
    """RFC 7396."""
    if not isinstance(changes, dict):
        return changes
    merged = dict(stored) if isinstance(stored, dict) else {}
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that are broken off are no news."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def running_api_server(certificate: Pair | None = None) -> Iterator[ApiServer]:
    """An API server of an empty cluster on loopback, through TLS if it has a certificate."""
    cluster = ApiServer()
    server = _Server(("127.0.0.1", 0), _Handler)
    server.cluster = cluster  # type: ignore[attr-defined]
    scheme = "http"
    if certificate is not None:
        scheme, context = "https", ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate.certificate, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    cluster.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield cluster
    finally:
        with cluster.condition:
            cluster.connections += 1
            cluster.condition.notify_all()
        server.shutdown()
        server.server_close()


def write_kubeconfig(
    file: Path, *contexts: tuple[str, str], token: str = TOKEN, authority: Path | None = None
) -> Path:
    """A kubeconfig with these contexts, (name, URL) each, the first one current."""
    trusted = {} if authority is None else {"certificate-authority": str(authority)}
    users = [{"name": "scheduler", "user": {"token": token}}]
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": contexts[0][0],
        "clusters": [{"name": name, "cluster": {"server": url, **trusted}} for name, url in contexts],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": "scheduler"}} for name, _ in contexts
        ],
        "users": users,
    }
    file.write_text(yaml.safe_dump(document))
    file.chmod(0o600)
    return file
