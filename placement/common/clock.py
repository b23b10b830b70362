"""The clocks by which things begin and end: that of this process, and that of the database's server.

All processes of a service share the database, so its clock decides how long something lasts. A statement that
asks for it would be one more on the way of each pod. So each new connection notes how the clock of the server
stands to the monotonic clock of this machine, by which the time since is counted.

Databases in a file have no clock of their own: the one of this process counts alone.
"""

from __future__ import annotations

import datetime
import time

# Seconds since 1970 of the server, less seconds of `time.monotonic`; None where there is no server. A process
# has one database.
_ahead: float | None = None


def utcnow() -> datetime.datetime:
    """Return the present in UTC without a zone, as the tables keep it, by the clock of this process."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


def note_server(seconds: float, asked: float, answered: float) -> None:
    """Note the server's seconds since 1970, between two moments of `time.monotonic`."""
    global _ahead
    _ahead = seconds - (asked + answered) / 2


def server_now() -> datetime.datetime:
    """Return the present in UTC without a zone, by the clock of the database's server."""
    if _ahead is None:
        return utcnow()
    return datetime.datetime.fromtimestamp(_ahead + time.monotonic(), datetime.UTC).replace(tzinfo=None)


def agreed_now() -> datetime.datetime:
    """Return the latest moment that has come by both clocks; what ends by it does not end early.

    A clock that is ahead, here or at the server, ends nothing alone.
    """
    return min(utcnow(), server_now())
