"""Changes of providers and consumers since a moment, without loss.

A moment is handed out as a token: its history of writes, the time at which it was handed
out, and which transactions were over then. Changed providers are found by the stamps that every look at the
database uses, deleted providers and consumers by the audit records that carry these stamps. Each change is
reported once, in whatever order transactions commit.
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
from functools import cache
from typing import NamedTuple

import sqlalchemy as sa

from placement.engine.domain import request_scope
from placement.engine.domain.audit import (
    Action,
    Change,
    TargetKind,
)
from placement.engine.domain.errors import BadRequest, Gone, NotFound, Unavailable, parameter
from placement.storage.backends.backend import Backend
from placement.storage.database import Database, Executor
from placement.storage.feed import Feed

# The number of changes that have none: they come last.
_LAST = 2**62


def changes_since(connection: Executor, backend: Backend, since: str, most: int) -> list[Change] | None:
    """Return the last change of each thing after a moment, by order of records; existing providers last.

    Return None if there are more than `most` changes to look through.
    """
    rows = connection.execute(_changes(type(backend)), {"since": since, "most": most + 1}).all()
    if len(rows) > most:
        return None
    last: dict[tuple[str, str], Change] = {}
    for row in rows:
        change = Change(*row[:4])
        # The last change counts, at its place in the order.
        last.pop((change.kind, change.id), None)
        last[change.kind, change.id] = change
    return list(last.values())


@cache
def _changes(backend: type[Backend]) -> sa.TextClause:
    """Return the query: existing providers carry the stamp of their last change; records have all else.

    A deletion of a provider that exists now came earlier, perhaps in the same transaction. A transaction
    writes records last, while it locks what it changed, so records of one thing are in the order of commits.
    Stamps are not: they are taken when a transaction begins to write.
    """
    provider, record = (
        backend.is_later.format(column=f"{table}.revision") for table in ("provider", "record")
    )
    return sa.text(
        f"""
        SELECT '{TargetKind.PROVIDER}' AS kind, provider.uuid AS id, '{Action.UPDATE}' AS action,
               provider.generation AS generation, {_LAST} AS number
          FROM resource_providers AS provider WHERE {provider}
        UNION ALL
        SELECT CASE WHEN record.kind IN ('{TargetKind.PROVIDER}', '{TargetKind.DATABASE}') THEN record.kind
                    ELSE 'consumer' END,
               COALESCE(record.consumer_id, record.target), record.action, NULL, record.id
          FROM audit_records AS record
         WHERE {record}
           AND (record.consumer_id IS NOT NULL OR record.kind = '{TargetKind.DATABASE}'
                OR record.kind = '{TargetKind.PROVIDER}' AND record.action = '{Action.DELETE}')
         ORDER BY 5 LIMIT :most
        """
    )


# Records are kept for longer (server.options), by more than any transaction takes.
_TOKEN_SECONDS = 86_400
# A caller that missed more does better to read everything again.
_MOST_CHANGES = 100_000
_LOOK_EVERY_SECONDS = 0.5
# Where requests have no deadline.
_TURN_SECONDS = 60
_DIGEST = 12
_AGAIN = (
    "read all providers and consumers again, and follow from the token that a request without `since` gives"
)


class TooManyFollowers(Unavailable):
    """The error that all places for requests that wait for changes are taken."""

    code = "placement.events.too_many_followers"


class TokenTooOld(Gone):
    """The error that the changes since a token are no longer kept."""

    code = "placement.events.token_too_old"


class News(NamedTuple):
    """The changes, and the token from which to go on."""

    changes: list[Change]
    token: str


class Events:
    """The changes since a token. Few threads may wait at a time, and one at a time looks at the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._feed = Feed(database)
        self._looking = threading.Lock()
        self._counting = threading.Lock()
        self._waiting: Counter[str | None] = Counter()

    def now(self) -> News:
        """Return the token of now and no changes. Raises NotFound if no records are kept, Unavailable."""
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
        """Return the changes since the token, waiting up to `wait_seconds` for one.

        Raises BadRequest for an invalid token, TokenTooOld, NotFound if no records are kept, Unavailable.
        """
        self._check_kept()
        end = time.monotonic() + wait_seconds
        while True:
            news = self._look(token)
            left = min(end, request_scope.deadline()) - time.monotonic()
            if news.changes or left <= 0 or request_scope.caller_is_gone():
                return news
            time.sleep(min(_LOOK_EVERY_SECONDS, left))

    def _check_kept(self) -> None:
        if not self._database.audits:
            raise NotFound("Changes come from audit records, which [audit] enabled switches off here.")

    def _look(self, token: str | None) -> News:
        """Look at the database, one thread at a time, so that waiting requests take only one connection."""
        known = None if token is None else _read(token)
        if not self._looking.acquire(timeout=request_scope.remaining(_TURN_SECONDS)):
            raise Unavailable("Other requests are reading the changes, and the database is slow; try again.")
        try:
            with self._database.snapshot() as connection:
                history = _digest(self._feed.horizon(connection).history)
                moment = sa.text(f"SELECT {self._database.backend.moment}")
                fresh = _written(history, str(connection.execute(moment).scalar_one()))
                if known is None:
                    return News([], fresh)
                _check(known, history)
                found = changes_since(connection, self._database.backend, known.moment, _MOST_CHANGES)
        finally:
            self._looking.release()
        if found is None or any(change.kind == TargetKind.DATABASE for change in found):
            raise TokenTooOld(f"since: too much changed since then at once; {_AGAIN}")
        return News(found, fresh)

    def close(self) -> None:
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
    raise BadRequest(
        f"{token[:100]!r} is not a token; use the `next` of an earlier answer", place=parameter("since")
    )


def _check(token: _Token, history: str) -> None:
    """Raise TokenTooOld for a token that is too old or of another history."""
    if token.history != history:
        what = "the database was restarted, promoted, restored or replaced"
        raise TokenTooOld(f"since: {what} since then; {_AGAIN}")
    if time.time() - token.issued > _TOKEN_SECONDS:
        raise TokenTooOld(f"since: the token is older than {_TOKEN_SECONDS // 3600} hours; {_AGAIN}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
