"""The storage of sessions of the pages: half of each token is here, the other half in the cookie.

    token = half in the database XOR half in the cookie, which is random

Neither tells anything of the token without the other. So a session ends for every process, and for every copy
of its cookie, when its row goes.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import secrets

import sqlalchemy as sa

from placement.common.clock import utcnow
from placement.storage import tables
from placement.storage.database import Database, Transaction, run_in_transaction

_SECONDS = 12 * 3600
MOST_OF_A_USER = 20
_REMOVED_AT_ONCE = 500
# As far as the clocks of processes may be apart.
_AHEAD_SECONDS = 60
_table = tables.sessions


class Sessions:
    """The sessions of a database, by the cookie of each; a user has a bounded number, and the latest stay.

    A session lasts for `seconds` at most.
    """

    seconds = _SECONDS

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, token: str, user_id: str) -> str:
        """Keep a session of the token; return what its cookie holds. Raises Unavailable."""
        text = token.encode("utf-8", "surrogateescape")
        random = secrets.token_bytes(len(text))
        cookie = base64.urlsafe_b64encode(random).decode()

        def work(transaction: Transaction) -> None:
            now = transaction.now
            ended = sa.select(_table.c.digest).where(~self._lasts(now)).limit(_REMOVED_AT_ONCE)
            latest = sa.select(_table.c.digest).where(_table.c.user_id == user_id)
            surplus = latest.order_by(_table.c.expires_at.desc(), _table.c.digest).offset(MOST_OF_A_USER - 1)
            for query in (ended, surplus.limit(_REMOVED_AT_ONCE)):
                digests = list(transaction.execute(query).scalars())
                if digests:
                    transaction.execute(sa.delete(_table).where(_table.c.digest.in_(digests)))
            row = {
                "digest": _digest(cookie),
                "user_id": user_id,
                "half": _mixed(text, random),
                "expires_at": now + datetime.timedelta(seconds=self.seconds),
            }
            transaction.execute(sa.insert(_table).values(row))

        run_in_transaction(self._database, work)
        return cookie

    def token_of(self, cookie: str) -> str | None:
        """Return the token of the session, None if there is no such session any more. Raises Unavailable."""
        lasts = self._lasts(utcnow())
        with self._database.read() as connection:
            half = connection.execute(
                sa.select(_table.c.half).where(_table.c.digest == _digest(cookie), lasts)
            ).scalar()
        if half is None:
            return None
        try:
            random = base64.urlsafe_b64decode(cookie)
        except (ValueError, binascii.Error):
            return None
        return _mixed(half, random).decode("utf-8", "surrogateescape")

    def end(self, cookie: str) -> str | None:
        """Let the session be over; return the id of its user, None if it was over. Raises Unavailable."""
        of_cookie = _table.c.digest == _digest(cookie)

        def work(transaction: Transaction) -> str | None:
            user_id: str | None = transaction.execute(sa.select(_table.c.user_id).where(of_cookie)).scalar()
            transaction.execute(sa.delete(_table).where(of_cookie))
            return user_id

        return run_in_transaction(self._database, work)

    def _lasts(self, now: datetime.datetime) -> sa.ColumnElement[bool]:
        # One that would last longer began while a clock was ahead, and would outlive its hours.
        latest = now + datetime.timedelta(seconds=self.seconds + _AHEAD_SECONDS)
        return (_table.c.expires_at > now) & (_table.c.expires_at <= latest)


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).hexdigest()


def _mixed(text: bytes, random: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(text, random, strict=False))
