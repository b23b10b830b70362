"""Static bearer tokens and their owners. The file is YAML (so JSON will do) and maps each token to its owner.

    sha256:<64 hexadecimal digits>:
      user: scheduler
      project: platform
      roles: [service]
      clusters: [edge]

A key without `sha256:` is the token itself, 32 characters or more. Only the service may be able to read it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml
from flask import request

from placement.common.secrets import is_open_to_others
from placement.http.context import Caller
from placement.http.credentials import sent_token
from placement.http.errors import HttpError, Misconfigured

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
        raise BadTokens(f"{path}: {line}is not YAML.") from None
    except (yaml.YAMLError, RecursionError):
        raise BadTokens(f"{path}: is not YAML.") from None
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
