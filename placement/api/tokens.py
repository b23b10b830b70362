"""Static bearer tokens: who they stand for."""

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
    """Read the file; once the result is called, processes started from then on have it. Raises BadTokens."""
    if path is None:
        raise BadTokens(NO_FILE)
    entries = read(path)

    def publish() -> None:
        _prepared[path] = entries

    return publish


class Tokens:
    """The tokens of a file by their hashes: what is in memory logs nobody in."""

    def __init__(self, path: Path) -> None:
        """Those that were prepared, or the file as it is. Raises BadTokens."""
        self._entries = _prepared.get(path) or read(path)

    def caller(self, token: str) -> Caller | None:
        """Whose token this is.

        All hashes are compared, each in constant time, so the answer's time tells nothing about the tokens.
        """
        found = None
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, digest):
                found = entry.caller
        return found if token else None
