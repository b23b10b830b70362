"""Clocks that are wrong, of this process or of the database's server."""

from __future__ import annotations

import datetime
import sys

import pytest

from placement.common import clock
from placement.common.clock import utcnow
from placement.storage.database import Database


def here(patch: pytest.MonkeyPatch, by: datetime.timedelta) -> None:
    """The clock of this process is wrong by that; a service that runs elsewhere has a right one."""
    for name, module in list(sys.modules.items()):
        if name.startswith("placement.") and hasattr(module, "utcnow"):
            patch.setattr(module, "utcnow", lambda: utcnow() + by)


def agreed(patch: pytest.MonkeyPatch, by: datetime.timedelta) -> None:
    """It is that much later, by the clock that all processes agree on."""
    for name, module in list(sys.modules.items()):
        if name.startswith("placement.") and hasattr(module, "agreed_now"):
            patch.setattr(module, "agreed_now", lambda now=module.agreed_now: now() + by)


def at_the_server(patch: pytest.MonkeyPatch, by: datetime.timedelta) -> None:
    """The clock of the database's server is wrong by that."""
    assert clock._ahead is not None
    patch.setattr(clock, "_ahead", clock._ahead + by.total_seconds())


def needs_two(database: Database) -> None:
    """Skip a test with a database that has no clock of its own."""
    if database.backend.is_embedded:
        pytest.skip("a file has no clock of its own")
