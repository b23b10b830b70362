"""The pool of connections, and what it notes of each."""

from __future__ import annotations

import logging
import time
from typing import Any

import sqlalchemy as sa

from placement.domain import deadline

_LAST_USE = "placement_last_use"
_OPENED = "placement_opened"


class Pool(sa.QueuePool):
    """A pool that waits for a connection no longer than until the deadline of the request."""

    @property
    def _timeout(self) -> float:
        return deadline.remaining(self._usual_timeout)

    @_timeout.setter
    def _timeout(self, seconds: float) -> None:
        self._usual_timeout = seconds


# Its debug lines show whole connection strings, with whatever secrets are in them; the others tell operators
# nothing, and would be printed by every command.
logging.getLogger(f"{Pool.__module__}.{Pool.__name__}").setLevel(logging.WARNING)


def note_opening(info: dict[Any, Any]) -> None:
    """A connection was made."""
    info[_OPENED] = time.monotonic()


def note_use(connection: Any, record: Any) -> None:
    """A connection goes back to the pool."""
    if connection is not None:
        record.info[_LAST_USE] = time.monotonic()


def idle_seconds(record: Any) -> float | None:
    """How long a connection lay in the pool; None for one that was just made."""
    used = record.info.get(_LAST_USE)
    return None if used is None else time.monotonic() - used


def age_seconds(info: dict[Any, Any]) -> float:
    """How long ago a connection was made."""
    return float(time.monotonic() - info[_OPENED])
