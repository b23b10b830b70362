"""What is removed by time does not come back, so a clock that is wrong removes none of it.

Clocks are wrong after a boot without NTP, or where a battery is empty: by years, ahead or behind.
"""

from __future__ import annotations

import datetime
import logging
import random
from collections.abc import Iterable
from typing import Any

import pytest
import sqlalchemy as sa

from placement.common.clock import utcnow
from placement.engine.domain.audit import Action, TargetKind
from placement.metrics.catalog import RETENTION_HELD
from placement.storage import database as storage
from placement.storage import tables
from placement.storage.database import Database
from placement.storage.retention import AT_ONCE, Retention
from tests.patience import eventually

KEEP = datetime.timedelta(days=90)
DAY = datetime.timedelta(days=1)
_table = tables.audit_records


def write(database: Database, times: Iterable[datetime.datetime]) -> None:
    with database.write() as transaction:
        for time in times:
            transaction.execute(
                sa.insert(_table).values(
                    recorded_at=time, action="create", kind="trait", target="T", revision=transaction.stamp
                )
            )


def kept(database: Database) -> list[datetime.datetime]:
    with database.read() as connection:
        return list(connection.execute(sa.select(_table.c.recorded_at).order_by(_table.c.id)).scalars())


def shift(patch: pytest.MonkeyPatch, by: datetime.timedelta) -> None:
    """The clock of this process is wrong by that."""
    patch.setattr(storage, "utcnow", lambda: utcnow() + by)


def all_removed(retention: Retention) -> list[int]:
    found = [retention.remove_some()]
    while found[-1]:
        found.append(retention.remove_some())
    return found


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def held(reason: str) -> float:
    return RETENTION_HELD.labels("audit records", reason)._value.get()


@pytest.fixture
def days(database: Database) -> list[datetime.datetime]:
    """A record every six hours, for the last 100 days."""
    now = utcnow()
    found = [now - datetime.timedelta(hours=6 * back) for back in range(400, -1, -1)]
    write(database, found)
    return found


def test_old_records_go_and_new_ones_stay(database: Database):
    now, long_ago = utcnow(), datetime.datetime(2020, 1, 1)
    write(database, [long_ago] * (AT_ONCE + 1))
    write(database, [now - DAY, now, now])
    retention = Retention(database, datetime.timedelta(days=2))
    assert all_removed(retention) == [AT_ONCE, 1, 0]
    assert len(kept(database)) == 3


def test_a_write_that_leaves_records_starts_the_removal(
    database: Database, days: list[Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(random, "uniform", lambda *_: 0.0)
    Retention(database, KEEP).follow()
    with database.write() as transaction:
        transaction.record(Action.CREATE, TargetKind.TRAIT, "T")
    eventually(True, lambda: kept(database)[0] > days[0])


def test_with_a_right_clock_records_are_kept_for_their_days(database: Database, days: list[Any]):
    all_removed(Retention(database, KEEP))
    found = kept(database)
    assert found == [time for time in days if time >= found[0]]
    assert utcnow() - KEEP - datetime.timedelta(hours=6) <= found[0] <= utcnow() - KEEP


@pytest.mark.parametrize("ahead", [400, 4000])
@pytest.mark.parametrize("writes", [False, True])
def test_a_clock_that_is_ahead_removes_no_more_than_a_day_of_records(
    database: Database,
    days: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    ahead: int,
    writes: bool,
):
    retention = Retention(database, KEEP)
    all_removed(retention)
    before, counted = kept(database), held("clock jumped")
    shift(monkeypatch, datetime.timedelta(days=ahead))
    if writes:
        write(database, [storage.utcnow()])
    for _ in range(4):
        all_removed(retention)
    assert before[4:] == [time for time in kept(database) if time <= days[-1]][-len(before) + 4 :]
    assert len(warnings(caplog)) == 1
    assert "No old audit records are removed: the clock here says" in warnings(caplog)[0]
    assert held("clock jumped") > counted
    monkeypatch.undo()
    all_removed(retention)
    assert len(kept(database)) >= len(before) - 4


def test_a_clock_that_was_ahead_for_a_day_is_believed(
    database: Database, days: list[Any], monkeypatch: pytest.MonkeyPatch
):
    shift(monkeypatch, datetime.timedelta(days=400))
    write(database, [storage.utcnow() - DAY, storage.utcnow()])
    all_removed(Retention(database, KEEP))
    assert len(kept(database)) == 2


def test_records_of_a_clock_that_was_behind_stay(database: Database, days: list[Any]):
    retention = Retention(database, KEEP)
    all_removed(retention)
    before = len(kept(database))
    write(database, [datetime.datetime(1970, 1, 1, 0, 5)] * 3)
    write(database, [utcnow()])
    assert all_removed(retention) == [0]
    assert len(kept(database)) == before + 4
    # Nor do records of a clock that was ahead keep the others, or stay any longer.
    write(database, [utcnow() + 400 * DAY])
    write(database, [utcnow()])
    assert all_removed(retention) == [0]
    # They go with the records beside them.
    monthly = Retention(database, datetime.timedelta(seconds=0))
    write(database, [utcnow()])
    all_removed(monthly)
    assert datetime.datetime(1970, 1, 1, 0, 5) not in kept(database)
    assert max(kept(database)) <= utcnow()


@pytest.mark.parametrize("apart", [-61.0, 61.0])
def test_nothing_is_removed_while_the_database_has_another_clock(
    database: Database,
    days: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    apart: float,
):
    retention, counted = Retention(database, KEEP), held("clocks differ")
    monkeypatch.setattr(Database, "seconds_apart", lambda _: apart)
    assert [retention.remove_some() for _ in range(3)] == [0, 0, 0]
    assert len(kept(database)) == len(days)
    (line,) = warnings(caplog)
    assert f"the clock of the database is {apart:+.0f} s from the one here" in line
    assert held("clocks differ") == counted + 3
    monkeypatch.setattr(Database, "seconds_apart", lambda _: 59.0)
    assert retention.remove_some() > 0
    monkeypatch.setattr(Database, "seconds_apart", lambda _: apart)
    retention.remove_some()
    assert len(warnings(caplog)) == 2


def test_how_far_clocks_are_apart_is_measured(database: Database):
    assert abs(database.seconds_apart()) < 60
