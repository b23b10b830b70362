"""What was told long ago is removed bit by bit, and whoever was not there is told that he missed it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
import sqlalchemy as sa

from placement.storage import feed as change_log
from placement.storage import tables
from placement.storage.database import Database
from placement.storage.feed import CLUSTER_CHANGED, Feed, FeedBatch, record_change
from tests.client import Client
from tests.kubernetes import node_manifests, pod_manifest
from tests.patience import eventually

CLUSTER = "/ext/v1/clusters/edge"


@contextmanager
def feeding(database: Database) -> Iterator[Feed]:
    feed = Feed(database)
    yield feed
    feed.close()


def horizon_now(database: Database) -> int:
    with feeding(database) as feed, feed.snapshot() as (horizon, snapshot):
        list(snapshot.providers)
        return horizon


def look(database: Database, horizon: int) -> FeedBatch:
    """What somebody sees who has not looked since."""
    with feeding(database) as feed:
        found = feed.look(horizon)
        assert found is not None
        return found


def tell(database: Database, *references: int) -> None:
    with database.write() as transaction:
        record_change(transaction, CLUSTER_CHANGED, references)


def age(database: Database) -> None:
    """Two days go by."""
    table = tables.changes
    with database.write() as transaction:
        ages = [(row.id, row.created_at) for row in transaction.execute(sa.select(table))]
        for id_, created_at in ages:
            earlier = created_at - datetime.timedelta(days=2)
            transaction.execute(sa.update(table).where(table.c.id == id_).values(created_at=earlier))


def told(database: Database) -> list[int]:
    table = tables.changes
    with database.read() as connection:
        statement = sa.select(table.c.reference).where(table.c.kind == CLUSTER_CHANGED).order_by(table.c.id)
        return list(connection.execute(statement).scalars())


def forget(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two days go by, and everything told before is removed."""
    age(database)
    monkeypatch.setattr(change_log, "EVERY", 1)
    with database.read() as connection:
        last = connection.execute(sa.select(sa.func.max(tables.changes.c.id))).scalar_one()
    left = sa.select(sa.func.count()).where(tables.changes.c.id <= last)

    def still_there() -> int:
        tell(database, 0)
        with database.read() as connection:
            return connection.execute(left).scalar_one()

    # Transactions in other databases of the server may keep some of it for a moment.
    eventually(0, still_there)


def test_only_what_is_old_is_removed_when_others_tell_something(database, monkeypatch):
    tell(database, *range(1, 11))
    age(database)
    tell(database, 11, 12)
    monkeypatch.setattr(change_log, "EVERY", 1)

    def oldest() -> list[int]:
        tell(database, 13)
        return told(database)[:3]

    eventually([11, 12, 13], oldest)


def test_a_bounded_number_is_removed_at_once_and_the_rest_later(database, monkeypatch):
    tell(database, *range(1, 11))
    age(database)
    monkeypatch.setattr(change_log, "EVERY", 1)
    monkeypatch.setattr(change_log, "AT_ONCE", 4)
    counts = [len(told(database))]

    def left() -> int:
        tell(database, 99)
        counts.append(sum(1 for reference in told(database) if reference != 99))
        return counts[-1]

    eventually(0, left)
    assert all(before - after <= 4 for before, after in pairwise(counts))
    assert len(counts) > 3


def test_most_writers_remove_nothing(database):
    tell(database, 1)
    age(database)
    tell(database, 2)
    assert told(database) == [1, 2]


def test_the_table_does_not_grow(database, monkeypatch):
    """Marks do not pile up either."""
    count = sa.select(sa.func.count()).select_from(tables.changes)
    for _ in range(3):
        tell(database, *range(20))
        forget(database, monkeypatch)
        monkeypatch.undo()
    with database.read() as connection:
        kinds = sa.select(tables.changes.c.kind)
        assert change_log.REMOVED in connection.execute(kinds).scalars().all()
    age(database)
    forget(database, monkeypatch)
    with database.read() as connection:
        rows = connection.execute(count).scalar_one()
        recent = connection.execute(count.where(tables.changes.c.reference == 0)).scalar_one()
    assert rows == recent


def test_only_who_comes_back_late_is_told_so(database, monkeypatch):
    early = horizon_now(database)
    tell(database, 7)
    in_time = horizon_now(database)
    assert look(database, early).clusters == {7}
    forget(database, monkeypatch)
    assert look(database, early).horizon == 0
    assert look(database, in_time).horizon > 0
    assert 7 not in look(database, in_time).clusters
    # Marks are replaced by marks.
    forget(database, monkeypatch)
    assert look(database, early).horizon == 0
    assert look(database, in_time).horizon == 0
    assert look(database, horizon_now(database)).horizon > 0


def test_a_search_after_a_long_time_knows_of_deletions(api: Client, connection_url, monkeypatch):
    gone, stays = api.provider("gone", VCPU=4), api.provider("stays", VCPU=4)
    assert len(api.get("/allocation_candidates?resources=VCPU:1").json["allocation_requests"]) == 2
    other = Database(connection_url)
    assert api.delete(f"/resource_providers/{gone}").status_code == 204
    forget(other, monkeypatch)
    (left,) = api.get("/allocation_candidates?resources=VCPU:1").json["allocation_requests"]
    assert list(left["allocations"]) == [stays]
    other.dispose()


def test_a_cluster_after_a_long_time_knows_of_deletions(api: Client, connection_url, monkeypatch):
    assert api.put(CLUSTER).status_code == 201
    for name in ("gone", "stays"):
        assert api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name)).status_code == 201
    assert len(api.post(f"{CLUSTER}/pods/preview", pod_manifest(cpu="1")).json["nodes"]) == 2
    other = Database(connection_url)
    assert api.delete(f"{CLUSTER}/nodes/gone").status_code == 204
    forget(other, monkeypatch)
    (left,) = api.post(f"{CLUSTER}/pods/preview", pod_manifest(cpu="1")).json["nodes"]
    assert left["name"] == "stays"
    other.dispose()
