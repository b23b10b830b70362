"""A stand-in of a Kubernetes API server: lists, watches, and what a scheduler writes, over real HTTP."""

from __future__ import annotations

import json
import re
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.api_server import KIND_OF, TOKEN, ApiServer
from tests.certificates import Pair

_POD_PATH = re.compile(r"/api/v1/namespaces/([^/]+)/pods(?:/([^/]+))?(/binding)?")


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
        if kind is None or kind in self._cluster.unknown_kinds:
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
