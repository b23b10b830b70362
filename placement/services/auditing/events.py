"""Changes of providers and consumers since a moment, without loss.

A moment is handed out as a token: which history of writes it is in (storage.changes.history), when it was
handed out, and which transactions were over then. Providers that changed are found by the stamps that every
look at the database goes by, deleted ones and consumers by the audit records that carry the same stamps. Each
change is told once, in whatever order transactions commit.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from placement.domain import deadline
from placement.domain.audit import Change, Kind
from placement.domain.errors import BadRequest, Gone, NotFound, Unavailable
from placement.storage.audit import reading
from placement.storage.changes.feed import Feed
from placement.storage.database import Database

# Records are kept for longer (operations.options), by more than any transaction takes.
_TOKEN_SECONDS = 86_400
# Whoever missed more is better off reading all again.
_MOST_CHANGES = 100_000
_LOOK_EVERY_SECONDS = 0.5
# Where requests have no deadline.
_TURN_SECONDS = 60
_DIGEST = 12
_AGAIN = (
    "read all providers and consumers again, and follow from the token that a request without `since` gives"
)


class TooManyFollowers(Unavailable):
    """All places in which requests may wait for changes are taken."""

    code = "placement.events.too_many_followers"


class TokenTooOld(Gone):
    """What changed since a token cannot be told any more."""

    code = "placement.events.token_too_old"


class News(NamedTuple):
    """What changed, and the token from which to go on."""

    changes: list[Change]
    token: str


class Events:
    """Tells what changed. Few threads may wait at a time, and one of them looks at the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._feed = Feed(database)
        self._looking = threading.Lock()
        self._counting = threading.Lock()
        self._waiting: Counter[str | None] = Counter()

    def now(self) -> News:
        """Nothing, and the token of this moment. Raises NotFound where no records are kept, Unavailable."""
        self._check_kept()
        return self._look(None)

    @contextmanager
    def place(self, most: int, user_id: str | None) -> Iterator[None]:
        """Take one of `most` places for requests that wait, while the block runs. Raises TooManyFollowers.

        One user gets three quarters of the places, rounded down, and at least one.
        """
        with self._counting:
            waiting = self._waiting.total()
            if waiting >= most:
                raise TooManyFollowers(
                    f"{waiting} requests wait for changes in this process already; try again."
                )
            own = self._waiting[user_id]
            if own >= max(1, most * 3 // 4):
                raise TooManyFollowers(
                    f"{own} requests of this user wait for changes in this process already; try again."
                )
            self._waiting[user_id] += 1
        try:
            yield
        finally:
            with self._counting:
                self._waiting[user_id] -= 1
                if not self._waiting[user_id]:
                    del self._waiting[user_id]

    def since(self, token: str, wait_seconds: float) -> News:
        """What changed since the token, waiting so long for something to change.

        Raises BadRequest for what is no token, TokenTooOld, NotFound where no records are kept, Unavailable.
        """
        self._check_kept()
        end = time.monotonic() + wait_seconds
        while True:
            news = self._look(token)
            left = min(end, deadline.at()) - time.monotonic()
            if news.changes or left <= 0 or deadline.caller_is_gone():
                return news
            time.sleep(min(_LOOK_EVERY_SECONDS, left))

    def _check_kept(self) -> None:
        if not self._database.audits:
            raise NotFound("Changes are told from audit records, which [audit] enabled switches off here.")

    def _look(self, token: str | None) -> News:
        """One at a time, so that those who wait take one connection from the others."""
        known = None if token is None else _read(token)
        if not self._looking.acquire(timeout=deadline.remaining(_TURN_SECONDS)):
            raise Unavailable("Others look for changes, and the database is slow; try again.")
        try:
            with self._database.snapshot() as connection:
                history = _digest(self._feed.horizon(connection).history)
                present = reading.moment(connection, self._database.backend)
                fresh = _written(history, present)
                if known is None:
                    return News([], fresh)
                _check(known, history)
                found = reading.changes_since(connection, self._database.backend, known.moment, _MOST_CHANGES)
        finally:
            self._looking.release()
        if found is None or any(change.kind == Kind.DATABASE for change in found):
            raise TokenTooOld(f"since: too much changed since then at once; {_AGAIN}")
        return News(found, fresh)

    def close(self) -> None:
        """Give back the connection."""
        self._feed.close()


class _Token(NamedTuple):
    history: str
    issued: int
    moment: str


def _written(history: str, moment: str) -> str:
    text = f"{history}/{int(time.time())}/{moment}"
    return base64.urlsafe_b64encode(f"{text}/{_digest(text)}".encode()).decode().rstrip("=")


def _read(token: str) -> _Token:
    try:
        padded = token + "=" * (-len(token) % 4)
        text, _, check = base64.b64decode(padded, altchars=b"-_", validate=True).decode().rpartition("/")
        history, issued, moment = text.split("/")
        if check == _digest(text):
            return _Token(history, int(issued), moment)
    except (binascii.Error, ValueError):
        pass
    raise BadRequest(f"since: {token[:100]!r} is no token; it must be the `next` of an earlier answer")


def _check(token: _Token, history: str) -> None:
    """Raises TokenTooOld for a token that is too old or of another history."""
    if token.history != history:
        what = "the database was restarted, promoted, restored or replaced"
        raise TokenTooOld(f"since: {what} since then; {_AGAIN}")
    if time.time() - token.issued > _TOKEN_SECONDS:
        raise TokenTooOld(f"since: the token is older than {_TOKEN_SECONDS // 3600} hours; {_AGAIN}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
