"""Static bearer tokens and their owners."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path

from placement.api.context import Caller
from placement.api.token_file import BadTokens, Entry, read

__all__ = ["NO_FILE", "BadTokens", "Tokens", "prepare"]
NO_FILE = "[api] auth_strategy token needs [api] tokens_file."

# What the process that starts the workers has read: workers that are started later have the same tokens as
# those that run, whatever happened to the file.
_prepared: dict[Path, tuple[Entry, ...]] = {}


def prepare(path: Path | None) -> Callable[[], None]:
    """Read the file; calling the result hands it to processes started from then on. Raises BadTokens."""
    if path is None:
        raise BadTokens(NO_FILE)
    entries = read(path)

    def publish() -> None:
        _prepared[path] = entries

    return publish


class Tokens:
    """The tokens of a file by their hashes, so that the memory of the process holds no usable token."""

    def __init__(self, path: Path) -> None:
        """The tokens that were prepared, or those of the file. Raises BadTokens."""
        self._entries = _prepared.get(path) or read(path)

    def caller(self, token: str) -> Caller | None:
        """The owner of the token, None if it is unknown.

        All hashes are compared, each in constant time, so that response times reveal nothing about tokens.
        """
        found = None
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, digest):
                found = entry.caller
        return found if token else None
