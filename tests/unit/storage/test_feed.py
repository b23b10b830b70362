"""The what-changed feed reports every commit, whatever the order in which writers commit."""

from __future__ import annotations

import uuid

import pytest
import sqlalchemy as sa

from placement.providers.statements import providers
from placement.storage import tables
from placement.storage.database import Database
from placement.storage.feed import Feed


@pytest.fixture
def feed(database: Database):
    feed = Feed(database)
    yield feed
    feed.close()


def created(database: Database, name: str) -> int:
    with database.write() as transaction:
        return providers.insert(transaction, str(uuid.uuid4()), name)


def horizon_now(feed: Feed) -> int:
    with feed.snapshot() as (horizon, snapshot):
        list(snapshot.providers)
        return horizon


def test_a_snapshot_holds_all_and_nothing_is_new_after_it(database, feed):
    first = created(database, "first")
    with feed.snapshot() as (horizon, snapshot):
        assert [row.id for row in snapshot.providers] == [first]
    look = feed.look(horizon)
    assert look is None or (not look.changed and not look.deleted)


def test_a_write_is_reported_once_seen_then_not_again(database, feed):
    horizon = horizon_now(feed)
    feed.look(horizon)
    added = created(database, "added")
    look = feed.look(horizon)
    assert [row.id for row in look.changed] == [added]
    again = feed.look(look.horizon)
    assert again is None or not again.changed


def test_a_deletion_is_reported(database, feed):
    gone = created(database, "gone")
    horizon = horizon_now(feed)
    with database.write() as transaction:
        providers.delete(transaction, [gone])
    assert feed.look(horizon).deleted == [gone]


def test_a_rolled_back_write_is_not_reported(database, feed):
    horizon = horizon_now(feed)

    def fail():
        with database.write() as transaction:
            providers.insert(transaction, str(uuid.uuid4()), "never")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    look = feed.look(horizon)
    assert look is None or not look.changed


@pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)
def test_a_writer_that_began_first_and_commits_last_is_not_lost(database, feed):
    """Plain sequence numbers lose this row: a later number is visible before an earlier one.

    SQLite has one writer at a time.
    """
    horizon = horizon_now(feed)
    with database.write() as slow:
        early = providers.insert(slow, str(uuid.uuid4()), "began first")
        late = created(database, "committed first")
        look = feed.look(horizon)
        assert [row.id for row in look.changed] == [late]
    after = feed.look(look.horizon)
    assert early in [row.id for row in after.changed]


def test_stamps_of_one_transaction_are_one(database):
    with database.write() as transaction:
        for name in ("a", "b"):
            providers.insert(transaction, str(uuid.uuid4()), name)
    with database.read() as connection:
        revisions = connection.execute(sa.select(sa.cast(tables.providers.c.revision, sa.Text))).scalars()
        assert len(set(revisions)) == 1
