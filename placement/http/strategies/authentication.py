"""Authentication: the caller of a request. Source: placement-api.md, "Authentication"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from placement.http.context import Caller
from placement.http.strategies.keystone import Keystone

AuthStrategy = Callable[[], Caller]


@dataclass(slots=True)
class Authentication:
    """The way in which an application identifies callers.

    `strategy` returns the caller of a request; pages have it look into their sessions first. Requests for
    `open_paths` need no token. `keystone` signs in at Identity, if that is asked about tokens.
    `believes`: callers name themselves, so errors say which name has a role.
    """

    strategy: AuthStrategy
    open_paths: frozenset[str]
    keystone: Keystone | None = None
    believes: bool = False
