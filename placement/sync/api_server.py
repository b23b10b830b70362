"""The API server of a Kubernetes cluster: lists, watches and single objects as JSON.

Connection and credentials are the official client's; bodies stay as they are sent. No call lasts longer than
the deadline of the request that it is made for. Source of the protocol:
Kubernetes documentation, "Kubernetes API Concepts".
"""

from __future__ import annotations

import importlib
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import orjson
import urllib3
import yaml

from placement.common.secrets import shown
from placement.engine.domain import request_scope
from placement.engine.domain.errors import PlacementError

GONE = 410
NOT_FOUND = 404
_UNAUTHORIZED = 401
_TOO_MANY_REQUESTS = 429
_CONNECTIONS = 8
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_FILE, AUTHORITY_FILE = f"{_ACCOUNT}/token", f"{_ACCOUNT}/ca.crt"
_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 60.0
_CREDENTIALS_SECONDS = 1.0
_PAGE = 500
_CHUNK_BYTES = 1 << 16
_LONGEST_TEXT = 300
# What the client library runs into where a kubeconfig is not what it expects.
_MALFORMED = (OSError, ValueError, TypeError, AttributeError, LookupError)

_NOT_GIVEN = (
    "no kubeconfig: --kubeconfig is not given, $KUBECONFIG not set, this is not a pod with a service "
    "account, and ~/.kube/config cannot be used"
)

MERGE_PATCH, STRATEGIC_PATCH = "application/merge-patch+json", "application/strategic-merge-patch+json"
KubernetesObject = Mapping[str, Any]
NOTHING_CHOSEN: Mapping[str, str] = MappingProxyType({})


# What says nothing of the call that it answers.
_FOR_ANY_CALL = frozenset({_UNAUTHORIZED, _TOO_MANY_REQUESTS})


class ApiServerError(PlacementError):
    """The API server cannot be reached or refuses; `status` is None if it did not answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_refusal(self) -> bool:
        """Return whether the API server works, knows the caller, and refuses this."""
        return self.status is not None and self.status < 500 and self.status not in _FOR_ANY_CALL


class Page(NamedTuple):
    """A page of the objects of a list, and the version of the whole list."""

    items: list[dict[str, Any]]
    resource_version: str


class Event(NamedTuple):
    """An event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: dict[str, Any]


class ApiServer:
    """An API server with the credentials of the caller; may be used by several threads."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        """Set up the client as the kubeconfig says; without one, as a pod does or as the user's own says.

        Raises PlacementError if the client library is missing or the configuration is of no use.
        """
        self._where = kubeconfig, context
        self._client = _client(kubeconfig, context)
        self._headers: tuple[Any, Mapping[str, str], float] = None, {}, 0.0

    @property
    def _credentials(self) -> str:
        kubeconfig, context = self._where
        if kubeconfig is None:
            return "the credentials of $KUBECONFIG, ~/.kube/config or the pod (no --kubeconfig is given)"
        of = f" of context {context}" if context else ""
        return f"the credentials{of} in the kubeconfig {kubeconfig}"

    @property
    def url(self) -> str:
        # It is in messages, which the extender's bind answers, and tenants read those.
        return shown(str(self._client.configuration.host))

    def pages(self, path: str, chosen: Mapping[str, str] = NOTHING_CHOSEN) -> Iterator[Page]:
        """Yield all objects of a collection, or the chosen ones, page by page.

        Raises ApiServerError, with GONE if it took too long.
        """
        query = {"limit": str(_PAGE), **chosen}
        while True:
            body = self._json("GET", f"{path}?{urlencode(query)}")
            metadata = body.get("metadata") or {}
            version = metadata.get("resourceVersion") or ""
            yield Page(body.get("items") or [], version)
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]
            query.pop("resourceVersion", None)

    def watch(self, path: str, resource_version: str, seconds: int) -> Iterator[Event]:
        """Return the events after that version, until the server ends the watch, after about `seconds`.

        The watch is on when this returns. Raises ApiServerError, at once or at the next event; its status
        is GONE when the server does not remember that version any more.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
        }
        # A server that is gone without a word is given up a little later than it should have ended.
        answer = self._request("GET", f"{path}?{urlencode(query)}", silence=seconds + _ANSWER_SECONDS / 4)
        return self._events(answer)

    def _events(self, answer: urllib3.BaseHTTPResponse) -> Iterator[Event]:
        rest: list[bytes] = []
        try:
            for chunk in answer.stream(_CHUNK_BYTES):
                # What comes behind the last line break is cut off in the end; the next watch brings it again.
                *lines, last = chunk.split(b"\n")
                for line in lines:
                    yield _event(b"".join([*rest, line]))
                    rest.clear()
                rest.append(last)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiServerError(f"{self.url}: the watch broke off: {_one_line(error)}") from None
        finally:
            answer.close()

    def get(self, path: str) -> dict[str, Any] | None:
        """Return one object, or None if there is none. Raises ApiServerError."""
        try:
            return self._json("GET", path)
        except ApiServerError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def post(self, path: str, body: KubernetesObject) -> dict[str, Any]:
        """Create an object. Raises ApiServerError."""
        return self._json("POST", path, body)

    def put(self, path: str, body: KubernetesObject) -> dict[str, Any]:
        """Replace an object. Raises ApiServerError."""
        return self._json("PUT", path, body)

    def patch(self, path: str, body: KubernetesObject, media_type: str = MERGE_PATCH) -> dict[str, Any]:
        """Merge into an object (RFC 7396), or patch it as the media type says. Raises ApiServerError."""
        return self._json("PATCH", path, body, media_type)

    def delete(self, path: str, options: KubernetesObject) -> dict[str, Any]:
        """Delete an object with DeleteOptions, such as preconditions. Raises ApiServerError."""
        return self._json("DELETE", path, options)

    def _json(
        self,
        method: str,
        path: str,
        body: KubernetesObject | None = None,
        media_type: str = "application/json",
    ) -> dict[str, Any]:
        answer = self._request(method, path, body, media_type)
        try:
            document: dict[str, Any] = orjson.loads(answer.data)
        except ValueError:
            raise ApiServerError(f"{self.url} answers, but is not a Kubernetes API server") from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiServerError(f"{self.url}: the answer broke off: {_one_line(error)}") from None
        return document

    def _request(
        self,
        method: str,
        path: str,
        body: KubernetesObject | None = None,
        media_type: str = "application/json",
        silence: float = _ANSWER_SECONDS,
    ) -> urllib3.BaseHTTPResponse:
        ask = partial(self._ask, method, path, body, media_type, silence)
        try:
            try:
                answer = ask()
            except urllib3.exceptions.SSLError as error:
                if not any(isinstance(each, ssl.SSLCertVerificationError) for each in error.args):
                    raise
                # Nothing was sent to the untrusted server; its authority may have been replaced in its file.
                self._renew()
                answer = ask()
            if answer.status == _UNAUTHORIZED:
                # The token may have been replaced in its file since it was read.
                answer.close()
                self._renew()
                answer = ask()
            if answer.status == _UNAUTHORIZED:
                raise ApiServerError(f"{_refusal(answer)}: are {self._credentials} right?", _UNAUTHORIZED)
            if answer.status >= 300:
                raise _refusal(answer)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiServerError(f"{self.url} cannot be reached: {_one_line(error)}") from None
        return answer

    def _credential_headers(self, client: Any) -> Mapping[str, str]:
        """Return the headers by which this client is known, looked up once a second: it takes a while.

        Looking also renews the credentials that are known to expire.
        """
        known, headers, until = self._headers
        if known is not client or time.monotonic() >= until:
            headers = {
                setting["key"]: setting["value"]
                for setting in client.configuration.auth_settings().values()
                if setting["in"] == "header" and setting["value"]
            }
            self._headers = client, headers, time.monotonic() + _CREDENTIALS_SECONDS
        return headers

    def _renew(self) -> None:
        """Make a new client. Raises ApiServerError if its files are unreadable, perhaps half written."""
        try:
            self._client = _client(*self._where)
        except PlacementError as error:
            raise ApiServerError(str(error), _UNAUTHORIZED) from None

    def _ask(
        self, method: str, path: str, body: KubernetesObject | None, media_type: str, silence: float
    ) -> urllib3.BaseHTTPResponse:
        """Return the answer; the server may be silent for at most the time that the caller has left."""
        client = self._client
        left = request_scope.remaining(silence)
        if left <= 0:
            raise ApiServerError(f"{self.url} is not asked any more: time is up")
        headers = {**self._credential_headers(client), "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = media_type
        answer: urllib3.BaseHTTPResponse = client.rest_client.pool_manager.request(
            method,
            str(client.configuration.host) + path,
            headers=headers,
            body=None if body is None else orjson.dumps(body),
            timeout=urllib3.Timeout(connect=min(_CONNECT_SECONDS, left), read=left),
            preload_content=False,
            retries=False,
        )
        return answer


def preload() -> None:
    """Import the client library, which takes most of a second, before a request waits for it.

    Where it is missing, ApiServer raises PlacementError.
    """
    with suppress(ImportError):
        importlib.import_module("kubernetes")


def _client(kubeconfig: str | None, context: str | None) -> Any:
    try:
        from kubernetes import client, config
        from kubernetes.config.incluster_config import InClusterConfigLoader
    except ImportError:
        raise PlacementError(
            "the Kubernetes client is missing; install this package with its extra `kubernetes`"
        ) from None
    configuration = client.Configuration()
    # With fewer the threads would open and close connections all the time.
    configuration.connection_pool_maxsize = _CONNECTIONS
    file = kubeconfig or os.environ.get("KUBECONFIG")
    named = file or context
    try:
        if not named and is_inside():
            InClusterConfigLoader(TOKEN_FILE, AUTHORITY_FILE).load_and_set(configuration)
        else:
            config.load_kube_config(file, context, client_configuration=configuration, persist_config=False)
    except (config.ConfigException, yaml.YAMLError, *_MALFORMED) as error:
        where = kubeconfig or (_NOT_GIVEN if not named else "$KUBECONFIG or ~/.kube/config")
        raise PlacementError(f"{where}: {_one_line(error)}") from None
    return client.ApiClient(configuration)


def is_inside() -> bool:
    """Return whether this process runs in a pod that has a service account."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and Path(TOKEN_FILE).exists()


def object_path(collection: str, *segments: str) -> str:
    """Return the path of something below a collection."""
    return "/".join([collection, *(quote(segment, safe="") for segment in segments)])


CORE = "/api/v1"
ALL_PODS = f"{CORE}/pods"


def pods_path(namespace: str) -> str:
    """Return the path of the pods of a namespace."""
    return object_path(CORE, "namespaces", namespace, "pods")


def _event(line: bytes) -> Event:
    try:
        decoded = orjson.loads(line)
        event = Event(decoded["type"], decoded["object"])
    except (ValueError, KeyError, TypeError):
        raise ApiServerError(f"not an event of a watch: {line[:_LONGEST_TEXT]!r}") from None
    if event.type == "ERROR":
        raise ApiServerError(str(event.object.get("message")), event.object.get("code"))
    return event


def _refusal(answer: urllib3.BaseHTTPResponse) -> ApiServerError:
    text = answer.data
    try:
        message = orjson.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        message = _one_line(text.decode(errors="replace"))[:_LONGEST_TEXT]
    return ApiServerError(f"{message or answer.reason} ({answer.status})", answer.status)


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
