"""A transaction that the database asks to repeat is repeated, a bounded number of times."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from placement.engine.domain.errors import Unavailable
from placement.storage import database as transactions
from placement.storage import tables
from placement.storage.database import Database
from placement.storage.failures import TryAgain
from tests.patience import PATIENCE_SECONDS


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(transactions.time, "sleep", lambda _: None)


def test_work_is_repeated_until_it_succeeds(database: Database):
    tries = []

    def work(_):
        tries.append(1)
        if len(tries) < 3:
            raise TryAgain("collided")
        return "done"

    assert transactions.run_in_transaction(database, work) == "done"
    assert len(tries) == 3


def test_giving_up_says_that_nothing_was_changed(database: Database):
    def work(_):
        raise TryAgain("collided")

    with pytest.raises(Unavailable, match=r"collided Nothing was changed"):
        transactions.run_in_transaction(database, work)


def test_other_errors_are_not_repeated_and_roll_back(database: Database):
    def work(transaction):
        values = {"name": "CUSTOM_GONE", "created_at": transaction.now}
        transaction.execute(sa.insert(tables.traits).values(values))
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - any will do
        transactions.run_in_transaction(database, work)
    with database.read() as connection:
        assert not connection.execute(sa.select(tables.traits.c.id).filter_by(name="CUSTOM_GONE")).first()


@pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)
def test_a_deadlock_is_repeated_until_both_are_through(database: Database):
    """Two transactions take two rows in opposite order; PostgreSQL ends one, which then succeeds."""
    with database.write() as transaction:
        for name in ("CUSTOM_A", "CUSTOM_B"):
            values = {"name": name, "created_at": transaction.now}
            transaction.execute(sa.insert(tables.traits).values(values))
    meeting = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    done = []

    def work_on(first: str, second: str):
        met = []

        def work(transaction):
            for name in (first, second):
                table = tables.traits
                change = sa.update(table).where(table.c.name == name).values(updated_at=transaction.now)
                transaction.execute(change)
                if not met:
                    met.append(1)
                    meeting.wait()
            done.append(first)

        transactions.run_in_transaction(database, work)

    threads = [
        threading.Thread(target=work_on, args=names)
        for names in (("CUSTOM_A", "CUSTOM_B"), ("CUSTOM_B", "CUSTOM_A"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert sorted(done) == ["CUSTOM_A", "CUSTOM_B"]
