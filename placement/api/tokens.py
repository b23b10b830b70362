"""Static bearer tokens: who they stand for, from a file that only the service may read.

The file is YAML (so JSON will do) and maps each token to its owner:

    sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08:
      user: scheduler
      project: platform
      roles: [service]

A key without `sha256:` is the token itself.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import stat
from pathlib import Path
from typing import Any

import yaml

from placement.api.context import Caller

_HASHED = re.compile(r"sha256:([0-9a-fA-F]{64})")


class BadTokens(Exception):
    """The file cannot be used; the message says what to change."""


class Tokens:
    """The tokens of a file by their hashes: what is in memory logs nobody in."""

    def __init__(self, path: Path) -> None:
        self._callers = _load(path)

    def caller(self, token: str) -> Caller | None:
        """Whose token this is.

        All hashes are compared, each in constant time, so the answer's time tells nothing about the tokens.
        """
        found = None
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        for known, caller in self._callers:
            if hmac.compare_digest(known, digest):
                found = caller
        return found if token else None


def _load(path: Path) -> list[tuple[bytes, Caller]]:
    try:
        with path.open(encoding="utf-8") as file:
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                raise BadTokens(f"{path}: others than its owner may read it; run `chmod 600` on it.")
            content = yaml.safe_load(file)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadTokens(f"{path}: {error}") from None
    if not isinstance(content, dict) or not content:
        raise BadTokens(f"{path}: a map from tokens to their owners is expected.")
    return [_entry(path, str(token), owner) for token, owner in content.items()]


def _entry(path: Path, token: str, owner: Any) -> tuple[bytes, Caller]:
    # Never the token itself: the message may end up in a log.
    hashed = _HASHED.fullmatch(token)
    digest = bytes.fromhex(hashed[1]) if hashed else hashlib.sha256(token.encode()).digest()
    place = f"{path}: the entry with SHA-256 {digest.hex()[:8]}..."
    if not token or (token.startswith("sha256:") and hashed is None):
        raise BadTokens(f"{place} has no usable token.")
    if not isinstance(owner, dict) or not owner.keys() <= {"user", "project", "roles"}:
        raise BadTokens(f"{place} must have user, project and roles.")
    user, project, roles = owner.get("user"), owner.get("project"), owner.get("roles", [])
    if not isinstance(user, str) or not isinstance(project, str | None):
        raise BadTokens(f"{place} needs a user, and a project that is text.")
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise BadTokens(f"{place} needs roles as a list of names.")
    return digest, Caller(user, project or user, frozenset(role.lower() for role in roles))
