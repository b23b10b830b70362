"""Authentication: the caller of a request. Source: placement-api.md, "Authentication"."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import io
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from flask import Response, request
from keystoneauth1.exceptions import ClientException
from oslo_config import cfg

from placement.common.secrets import is_open_to_others
from placement.engine.domain.request_scope import Full, WaitingRoom
from placement.http.context import Caller, HttpError, Misconfigured, Relayed
from placement.http.credentials import SharedMemory, sent_token
from placement.http.keystone import GROUP, NotSignedIn, TokenMiddleware
from placement.metrics.catalog import IDENTITY

# Static bearer tokens and their owners. The file is YAML (so JSON will do) and maps each token to its owner.
#
# sha256:<64 hexadecimal digits>:
# user: scheduler
# project: platform
# roles: [service]
# clusters: [edge]
#
# A key without `sha256:` is the token itself, 32 characters or more. Only the service may be able to read it.


SHORTEST = 32
_MEMBERS = ("user", "project", "roles", "clusters")
_HASHED = "sha256:"
_HASH = re.compile(r"sha256:([0-9a-fA-F]{64})")
_TOKEN = re.compile(r"[!-~]+")
_NAME = re.compile(r"[!-~]{1,255}")
# The hashes of the empty text and of "test", an example in documentation.
_KNOWN_TO_ALL = frozenset(hashlib.sha256(text).digest() for text in (b"", b"test"))
_TEXT = "tag:yaml.org,2002:str"
_NOTHING = "tag:yaml.org,2002:null"
NO_FILE = "[api] auth_strategy token needs [api] tokens_file."


class BadTokens(Misconfigured):
    """An error of the tokens file; the message says what to change, and never shows a token."""


class TokenEntry(NamedTuple):
    """A token, by its SHA-256, and its owner."""

    digest: bytes
    caller: Caller


class _Problem(Exception):
    def __init__(self, node: yaml.Node, message: str) -> None:
        super().__init__(f"line {node.start_mark.line + 1}: {message}")


def read(path: Path) -> tuple[TokenEntry, ...]:
    """Return the entries of the file. Raises BadTokens naming the line."""
    try:
        with path.open(encoding="utf-8") as file:
            if is_open_to_others(os.fstat(file.fileno())):
                raise BadTokens(f"{path}: others than its owner may read it; run `chmod 600` on it.")
            document = yaml.compose(file, Loader=yaml.SafeLoader)
        if document is None:
            raise BadTokens(f"{path}: a map from tokens to their owners is expected.")
        return tuple(_entries(document))
    except OSError as error:
        raise BadTokens(f"{path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise BadTokens(f"{path}: is not UTF-8.") from None
    except yaml.MarkedYAMLError as error:
        # The library quotes the line, and there may be a token in it.
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise BadTokens(f"{path}: {line}is no YAML.") from None
    except (yaml.YAMLError, RecursionError):
        raise BadTokens(f"{path}: is no YAML.") from None
    except _Problem as problem:
        raise BadTokens(f"{path}: {problem}.") from None


def _entries(document: yaml.Node) -> Iterator[TokenEntry]:
    if not isinstance(document, yaml.MappingNode) or not document.value:
        raise _Problem(document, "a map from tokens to their owners is expected")
    seen: set[bytes] = set()
    for key, owner in document.value:
        digest = _digest(key)
        if digest in seen:
            raise _Problem(key, "this token stands in the file twice")
        seen.add(digest)
        if not isinstance(owner, yaml.MappingNode):
            raise _Problem(key, "a token needs its owner: user, project, roles, clusters")
        given: dict[str, yaml.Node] = {}
        for name, value in owner.value:
            if name.value not in _MEMBERS or name.tag != _TEXT:
                raise _Problem(name, "only user, project, roles and clusters are understood")
            if name.value in given:
                raise _Problem(name, f"{name.value} is given twice")
            given[name.value] = value
        if "user" not in given:
            raise _Problem(key, "user is missing")
        project = given.get("project")
        caller = Caller(
            _name("user", given["user"]),
            None if project is None or project.tag == _NOTHING else _name("project", project),
            frozenset(role.lower() for role in _names("roles", given)),
            clusters=frozenset(_names("clusters", given)) if "clusters" in given else None,
        )
        yield TokenEntry(digest, caller)


def _digest(key: yaml.Node) -> bytes:
    if not isinstance(key, yaml.ScalarNode) or key.tag != _TEXT:
        raise _Problem(key, "a token must be text; put it in quotes")
    token: str = key.value
    hashed = _HASH.fullmatch(token)
    if token.startswith(_HASHED) and hashed is None:
        raise _Problem(key, "sha256: must be followed by the 64 hexadecimal digits of a token's SHA-256")
    if hashed is None and (len(token) < SHORTEST or not _TOKEN.fullmatch(token)):
        raise _Problem(key, f"a token must be {SHORTEST} or more printable ASCII characters without blanks")
    digest = bytes.fromhex(hashed[1]) if hashed else hashlib.sha256(token.encode()).digest()
    if digest in _KNOWN_TO_ALL:
        raise _Problem(key, "this token is public; make one of your own")
    return digest


def _names(what: str, given: Mapping[str, yaml.Node]) -> list[str]:
    node = given.get(what)
    if node is not None and not isinstance(node, yaml.SequenceNode):
        raise _Problem(node, f"{what} must be a list of names")
    return [_name(what, item) for item in node.value] if node is not None else []


def _name(what: str, node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode) or node.tag != _TEXT or not _NAME.fullmatch(node.value):
        raise _Problem(node, f"{what}: text without blanks is expected, in quotes where YAML needs them")
    name: str = node.value
    return name


# The entries that the master process has read. Workers that start later get the tokens of the running
# workers, whatever happened to the file.
prepared: dict[Path, tuple[TokenEntry, ...]] = {}


class Tokens:
    """The strategy `token`, which looks up the token of X-Auth-Token, Bearer, or the password of Basic.

    The memory of the process holds hashes and no usable token.
    """

    def __init__(self, path: Path) -> None:
        """Take the tokens that were prepared, else read the file. Raises BadTokens."""
        self._entries = prepared.get(path) or read(path)

    def __call__(self) -> Caller:
        """Return the caller of this request. Raises HttpError 401."""
        caller = self.caller(sent_token(request.environ) or "")
        if caller is None:
            raise HttpError(
                401,
                "A known token is required in the X-Auth-Token header, or as Authorization: Bearer.",
                headers={"WWW-Authenticate": 'Bearer realm="placement"'},
            )
        return caller

    def caller(self, token: str) -> Caller | None:
        """Return the owner of the token, None if it is unknown.

        All hashes are compared, each in constant time, so that response times reveal nothing about tokens.
        """
        found = None
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, digest):
                found = entry.caller
        return found if token else None


Strategy = Callable[[], Caller]


def noauth2() -> Caller:
    """Return the caller that the token names, `user` or `user:project`. For development and tests only.

    The user `admin` has the role admin unless X-Roles says otherwise. Raises HttpError 401 without a token.
    """
    token = request.headers.get("X-Auth-Token")
    if token is None:
        raise HttpError(401, "A token is required in the X-Auth-Token header.")
    user, _, project = token.partition(":")
    sent_roles = request.headers.get("X-Roles")
    roles = _roles(sent_roles) if sent_roles is not None else frozenset({"admin"} & {user})
    system_scope = request.headers.get("OpenStack-System-Scope") == "all"
    project_id = request.headers.get("X-Project-Id") or project or user
    return Caller(user, None if system_scope else project_id, roles, system_scope)


def _roles(text: str) -> frozenset[str]:
    return frozenset(role.strip().lower() for role in text.split(",") if role.strip())


# Callers with tokens of OpenStack Identity, which its middleware validates and this service remembers.
#
# token -> remembered? -> waiting room -> middleware asks Keystone -> remembered until it expires
#
# A Keystone that hangs must not take all threads with it: callers with a remembered token never wait, and of
# the others only as many wait as the waiting room lets in.


LOG = logging.getLogger(__name__)
_ASKING_AT_ONCE = 4
# Each failed request would have a line, and all say the same.
_WARN_AGAIN_SECONDS = 30.0
_LATER = {"Retry-After": "1"}
_UNREACHABLE = "The identity service cannot be asked."
_MOST_REMEMBERED = 10_000
_KEYSTONE_TOKEN, _SERVICE_TOKEN = "X-Auth-Token", "X-Service-Token"
# The key under which the application behind the middleware leaves the caller, and how long it is known.
_FOUND = "placement.found"


class Keystone:
    """The strategy `keystone`, which returns the caller that the request's token stands for."""

    def __init__(self, configuration: cfg.ConfigOpts) -> None:
        """Set up the middleware. Raises Misconfigured with what to install or to configure."""
        self.middleware = TokenMiddleware(_note, configuration)
        self._seconds = float(configuration[GROUP].token_cache_time)
        self._warned_at = -_WARN_AGAIN_SECONDS
        self._remembered: SharedMemory[tuple[float, Caller]] = SharedMemory(_MOST_REMEMBERED)
        self._room = WaitingRoom(_ASKING_AT_ONCE)

    def __call__(self) -> Caller:
        """Return the caller of this request.

        Raises Relayed with what the middleware answers, HttpError 503 if too many wait, 401 without a user,
        403 for a token without any scope.
        """
        caller = self._identified()
        if not (caller.project_id or caller.domain_id or caller.system_scope):
            # No role that it may have was given for anything.
            raise HttpError(403, "This token has no scope: ask the identity service for one of a project.")
        return caller

    def _identified(self) -> Caller:
        # A key for the request's tokens that does not reveal them.
        tokens = (request.headers.get(name, "").encode() for name in (_KEYSTONE_TOKEN, _SERVICE_TOKEN))
        digest = b"".join(hashlib.sha256(token).digest() for token in tokens)
        key = digest if request.headers.get(_KEYSTONE_TOKEN) else None
        caller = self._recall(key)
        if caller is not None:
            return caller
        try:
            with self._room.entered():
                # Another thread may have validated this very token while this one waited.
                return self._recall(key) or self._ask(key)
        except Full:
            IDENTITY.labels("busy").inc()
            message = "Too many requests wait for the identity service to validate their tokens."
            raise HttpError(503, message, headers=_LATER) from None

    def _recall(self, key: bytes | None) -> Caller | None:
        if key is None:
            return None
        until, caller = self._remembered.get(key) or (0.0, None)
        return caller if time.monotonic() < until else None

    def _ask(self, key: bytes | None) -> Caller:
        environ = {**request.environ, "wsgi.input": io.BytesIO(), "CONTENT_LENGTH": "0"}
        # The middleware would read it as X-Auth-Token, by which callers are remembered.
        environ.pop("HTTP_X_STORAGE_TOKEN", None)
        answered: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            answered[:] = status, headers

        try:
            body = b"".join(self.middleware(environ, start))
        except ClientException as error:
            # The middleware answers 503 itself, unless its own login fails.
            raise self._unreachable(str(error)) from None
        found = environ.get(_FOUND)
        if found is None:
            status, headers = answered
            if status.startswith("503"):
                # The middleware's own page is HTML, whatever the caller accepts.
                raise self._unreachable("the line of keystonemiddleware before this one has the reason")
            if key is not None:
                IDENTITY.labels("refused").inc()
            raise Relayed(Response(body, status, headers))
        IDENTITY.labels("valid").inc()
        caller: Caller = found[0]
        if not caller.user_id:
            raise HttpError(401, "The request you have made requires authentication.")
        seconds = min(found[1], self._seconds)
        if key is not None and seconds > 0:
            self._remembered.keep(key, caller.user_id, (time.monotonic() + seconds, caller))
        return caller

    def sign_in_beside(self) -> None:
        """Sign in from a thread of its own, so that an Identity that is away is known before any request.

        The process starts and is ready either way: it answers callers that it knows, and probes.
        """

        def sign_in() -> None:
            try:
                self.middleware.sign_in()
            except NotSignedIn as error:
                self._unreachable(str(error))

        threading.Thread(target=sign_in, name="identity", daemon=True).start()

    def _unreachable(self, reason: str) -> HttpError:
        """Count that Identity could not be asked, warn of it, and return the answer to the caller."""
        IDENTITY.labels("unreachable").inc()
        now = time.monotonic()
        if now - self._warned_at >= _WARN_AGAIN_SECONDS:
            self._warned_at = now
            LOG.warning(
                "identity unreachable: OpenStack Identity at %s cannot be asked, so tokens that "
                "this process does not remember are answered 503: %s",
                self.middleware.address,
                reason,
            )
        return HttpError(503, _UNREACHABLE, headers=_LATER)


def _note(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Note the caller, as the application behind the middleware: only valid tokens get here."""
    caller = Caller(
        environ.get("HTTP_X_USER_ID"),
        environ.get("HTTP_X_PROJECT_ID"),
        _roles(environ.get("HTTP_X_ROLES", "")),
        environ.get("HTTP_OPENSTACK_SYSTEM_SCOPE") == "all",
        environ.get("HTTP_X_DOMAIN_ID"),
    )
    # How many seconds the token alone identifies the caller; 0 if the request matters, too.
    token = (environ.get("keystone.token_info") or {}).get("token") or {}
    credential = token.get("application_credential") or {}
    seconds = 0.0
    if not token.get("bind") and credential.get("access_rules") is None:
        with suppress(KeyError, TypeError, ValueError):
            expires = datetime.datetime.fromisoformat(token["expires_at"])
            seconds = (expires - datetime.datetime.now(datetime.UTC)).total_seconds()
    environ[_FOUND] = caller, seconds
    start_response("204 No Content", [])
    return []
