"""The credential of a request: the one token, or session of the pages, by which its caller is identified.

The event loop shares threads out by it before a token is checked. So it has to be what the strategy will
check, whatever else the request carries: `Basic anything:TOKEN` is TOKEN, with any other cookie beside it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from werkzeug.datastructures import Authorization
from werkzeug.sansio.http import parse_cookie

PAGES = "/ui"
"""The start of the paths of pages, which have no microversions and no place in the OpenAPI document."""
SESSION_COOKIE = "placement_session"
SECURE_SESSION_COOKIE = f"__Host-{SESSION_COOKIE}"
"""The name of the cookie where connections are encrypted; browsers let only this very host set it."""
SIGNED_IN = "t."
"""The start of a cookie of a caller that has signed in; other cookies are there for the sake of forms."""
HEADERS = {
    "X-AUTH-TOKEN": "HTTP_X_AUTH_TOKEN",
    "AUTHORIZATION": "HTTP_AUTHORIZATION",
    "COOKIE": "HTTP_COOKIE",
}
"""The headers that may hold a credential, by their names in capitals, with their names in WSGI."""
# Browsers send fewer than 200. The event loop parses them, and 65,000 would keep it from all other callers.
_MOST_COOKIES = 500


def sent_token(environ: Mapping[str, Any]) -> str | None:
    """Return the token of X-Auth-Token, Bearer, or the password of Basic; None if there is none of these."""
    token: str | None = environ.get("HTTP_X_AUTH_TOKEN")
    if token is not None:
        return token
    header = environ.get("HTTP_AUTHORIZATION", "")
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "basic":
        # Callers that can set no header, such as kube-scheduler, have it in their URL: https://:TOKEN@host.
        # The parser returns None for most of what is no Base64, but raises ValueError for `Basic \xff`.
        given = Authorization.from_header(header) if header.isascii() else None
        return given.password if given is not None else None
    return rest.strip() if scheme.lower() == "bearer" else None


def session_cookie(environ: Mapping[str, Any]) -> tuple[str, str]:
    """Return name and value of the cookie of the pages; the one of encrypted connections counts first.

    The value is empty without such a cookie, and where more cookies came than any browser sends.
    """
    header = environ.get("HTTP_COOKIE", "")
    if header.count(";") >= _MOST_COOKIES:
        header = ""
    # WSGI has bytes as Latin-1. Some cookies beside ours may be no UTF-8: `a=\xff; placement_session=...`.
    cookies = parse_cookie(header.encode("latin-1", "replace").decode(errors="replace"))
    name = SECURE_SESSION_COOKIE if SECURE_SESSION_COOKIE in cookies else SESSION_COOKIE
    return name, cookies.get(name, "")


def sent_session(environ: Mapping[str, Any]) -> str | None:
    """Return the session that identifies the caller of a page; None without one, or where a token counts."""
    if "HTTP_X_AUTH_TOKEN" in environ or not environ["PATH_INFO"].startswith(f"{PAGES}/"):
        return None
    cookie = session_cookie(environ)[1]
    return cookie if cookie.startswith(SIGNED_IN) else None


def digest_of(environ: Mapping[str, Any]) -> bytes | None:
    """Return the SHA-256 of the credential of a request, None without one."""
    credential = sent_session(environ) or sent_token(environ)
    return digest(credential) if credential else None


def digest(credential: str) -> bytes:
    """Return the SHA-256 of a token or a session."""
    return hashlib.sha256(credential.encode("utf-8", "surrogateescape")).digest()


Kept = TypeVar("Kept")


class SharedMemory(Generic[Kept]):
    """A bounded map from digests of credentials to what is known of them, shared fairly by users.

    Where it is full the oldest entry of the user with the most goes. So a user with any number of tokens
    pushes out none of a user with few.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._users: dict[bytes, str] = {}
        # By user, the latest used last.
        self._entries: dict[str, OrderedDict[bytes, Kept]] = {}
        # The users with as many entries, the latest used last; so the one with the most is found at once.
        self._by_count: defaultdict[int, OrderedDict[str, None]] = defaultdict(OrderedDict)
        self._most_of_a_user = 0

    def __len__(self) -> int:
        return len(self._users)

    def get(self, digest: bytes) -> Kept | None:
        """Return what is known of the credential, None if it is unknown; it counts as used now."""
        with self._lock:
            user = self._users.get(digest)
            if user is None:
                return None
            entries = self._entries[user]
            entries.move_to_end(digest)
            self._by_count[len(entries)].move_to_end(user)
            return entries[digest]

    def keep(self, digest: bytes, user_id: str, known: Kept) -> None:
        """Remember a credential of the user."""
        with self._lock:
            if digest in self._users:
                self._forget(digest)
            entries = self._entries.setdefault(user_id, OrderedDict())
            before = len(entries)
            self._users[digest], entries[digest] = user_id, known
            self._recount(user_id, before)
            if len(self._users) > self._most:
                greediest = next(iter(self._by_count[self._most_of_a_user]))
                self._forget(next(iter(self._entries[greediest])))

    def _forget(self, digest: bytes) -> None:
        user_id = self._users.pop(digest)
        entries = self._entries[user_id]
        before = len(entries)
        del entries[digest]
        self._recount(user_id, before)
        if not entries:
            del self._entries[user_id]

    def _recount(self, user_id: str, before: int) -> None:
        """Let the user stand where it belongs; it has one entry more or less than `before`."""
        count = len(self._entries[user_id])
        if before:
            del self._by_count[before][user_id]
            if not self._by_count[before]:
                del self._by_count[before]
        if count:
            self._by_count[count][user_id] = None
        if count > self._most_of_a_user or self._most_of_a_user not in self._by_count:
            self._most_of_a_user = count


class KnownCaller(NamedTuple):
    """The user and the project of an accepted credential."""

    user_id: str
    project_id: str | None


_MOST_KNOWN = 10_000


class KnownCredentials(SharedMemory[KnownCaller]):
    """The accepted credentials of a process, by SHA-256, with their callers."""

    def __init__(self) -> None:
        super().__init__(_MOST_KNOWN)

    def note(self, digest: bytes, user_id: str, project_id: str | None) -> None:
        """Remember that the credential was accepted."""
        # Most requests are of a credential that is known.
        caller = KnownCaller(user_id, project_id)
        if self.get(digest) != caller:
            self.keep(digest, user_id, caller)
