"""The what-changed feed reports every commit, whatever the order of writers, and tells who missed it."""

import datetime
import uuid
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import sqlalchemy as sa

from placement.common import memory
from placement.engine.forest import bulk
from placement.engine.forest.forest import Forest
from placement.providers import view
from placement.providers.statements import providers
from placement.storage import changes as change_log
from placement.storage import records, tables
from placement.storage.changes import CLUSTER_CHANGED, record_change
from placement.storage.database import Database
from placement.storage.feed import Feed, FeedBatch
from placement.storage.history import BEFORE_ALL
from placement.storage.records import read_document
from tests.client import Client
from tests.kubernetes import node_manifests, pod_manifest
from tests.patience import eventually
from tests.unit.engine.forest.test_states import contents


@pytest.fixture
def feed(database: Database):
    feed = Feed(database)
    yield feed
    feed.close()


def created(database: Database, name: str) -> int:
    with database.write() as transaction:
        return providers.insert(transaction, str(uuid.uuid4()), name)


def horizon_now(database: Database) -> int:
    with closing(Feed(database)) as feed, feed.snapshot() as (horizon, _):
        return horizon


def test_a_snapshot_holds_all_and_what_is_new_after_it_is_reported_once(database, feed):
    first, gone = created(database, "first"), created(database, "gone")
    with feed.snapshot() as (horizon, snapshot):
        assert sorted(snapshot.providers[0]) == [first, gone]
    look = feed.look(horizon)
    assert look is None or (not look.changed and not look.deleted)
    added = created(database, "added")
    look = feed.look(horizon)
    assert [row.id for row in look.changed] == [added]
    horizon = look.horizon
    look = feed.look(horizon)
    assert look is None or not look.changed
    with database.write() as transaction:
        providers.delete(transaction, [gone])
    assert feed.look(horizon).deleted == [gone]


def test_stamps_of_one_transaction_are_one(database):
    with database.write() as transaction:
        for name in ("a", "b"):
            providers.insert(transaction, str(uuid.uuid4()), name)
    with database.read() as connection:
        revisions = connection.execute(sa.select(sa.cast(tables.providers.c.revision, sa.Text))).scalars()
        assert len(set(revisions)) == 1


def test_a_rolled_back_write_is_not_reported(database, feed):
    horizon = horizon_now(database)
    with pytest.raises(RuntimeError), database.write() as transaction:  # noqa: PT012
        providers.insert(transaction, str(uuid.uuid4()), "never")
        raise RuntimeError
    look = feed.look(horizon)
    assert look is None or not look.changed


@pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)
def test_a_writer_that_began_first_and_commits_last_is_not_lost(database, feed):
    """Plain sequence numbers lose this row: a later number is visible before an earlier one.

    SQLite has one writer at a time.
    """
    horizon = horizon_now(database)
    with database.write() as slow:
        early = providers.insert(slow, str(uuid.uuid4()), "began first")
        late = created(database, "committed first")
        look = feed.look(horizon)
        assert [row.id for row in look.changed] == [late]
    after = feed.look(look.horizon)
    assert early in [row.id for row in after.changed]


CLUSTER = "/ext/v1/clusters/edge"


def look(database: Database, horizon: int) -> FeedBatch:
    """What is seen without having looked since."""
    with closing(Feed(database)) as feed:
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
        for id_, created_at in list(transaction.execute(sa.select(table.c.id, table.c.created_at))):
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
    with monkeypatch.context() as patch:
        patch.setattr(change_log, "EVERY", 1)
        with database.read() as connection:
            last = connection.execute(sa.select(sa.func.max(tables.changes.c.id))).scalar_one()
        left = sa.select(sa.func.count()).where(tables.changes.c.id <= last)

        def still_there() -> int:
            tell(database, 0)
            with database.read() as connection:
                return connection.execute(left).scalar_one()

        # Transactions in other databases of the server may keep some of it for a moment.
        eventually(0, still_there)


def test_only_what_is_old_is_removed_and_by_few_writers(database, monkeypatch):
    tell(database, *range(1, 11))
    age(database)
    tell(database, 11, 12)
    assert told(database) == list(range(1, 13))
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


def test_the_table_does_not_grow(database, monkeypatch):
    """Marks do not pile up either."""
    count = sa.select(sa.func.count()).select_from(tables.changes)
    for _ in range(3):
        tell(database, *range(20))
        forget(database, monkeypatch)
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


def test_searches_and_clusters_after_a_long_time_know_of_deletions(api: Client, database, monkeypatch):
    hosts = {name: api.provider(name, VCPU=4) for name in ("gone", "stays")}
    assert api.put(CLUSTER).status_code == 201
    for name in hosts:
        assert api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name)).status_code == 201

    def found() -> tuple[list[list[str]], list[str]]:
        requests = api.get("/allocation_candidates?resources=VCPU:1").json["allocation_requests"]
        nodes = api.post(f"{CLUSTER}/pods/preview", pod_manifest(cpu="1")).json["nodes"]
        places = [list(each["allocations"]) for each in requests]
        return [own for own in places if {*own} <= {*hosts.values()}], sorted(node["name"] for node in nodes)

    assert tuple(map(len, found())) == (2, 2)
    assert api.delete(f"/resource_providers/{hosts['gone']}").status_code == 204
    assert api.delete(f"{CLUSTER}/nodes/gone").status_code == 204
    forget(database, monkeypatch)
    assert found() == ([[hosts["stays"]]], ["stays"])


RATIOS = (1.0, 16.0, 1.1, 0.1 + 0.2, 3.4e38)


@pytest.fixture
def ids(database: Database) -> list[int]:
    """Providers that differ in all that there is, one with nothing, one below another."""
    with database.write() as transaction:

        def insert(table: sa.Table, **values: Any) -> None:
            transaction.execute(sa.insert(table).values(**values))

        def first(column: sa.Column, count: int) -> list[int]:
            return sorted(transaction.execute(sa.select(column)).scalars())[:count]

        made = [providers.insert(transaction, str(uuid.uuid4()), f"host {number}") for number in range(6)]
        classes, traits = first(tables.resource_classes.c.id, 2), first(tables.traits.c.id, 3)
        insert(tables.aggregates, uuid=str(uuid.uuid4()))
        (aggregate,) = first(tables.aggregates.c.id, 1)
        for number, id_ in enumerate(made[1:]):
            own = {"resource_provider_id": id_}
            units = {"min_unit": 1 + number, "max_unit": 2**31 - 1, "step_size": 1}
            amounts = {"total": 2**31 - 1 - number, "reserved": number, "used": 2**40 + number}
            values = {**own, **units, **amounts, "allocation_ratio": RATIOS[number]}
            for class_id in classes[: number % 2 + 1]:
                insert(tables.inventories, resource_class_id=class_id, **values)
            for trait in traits[number % 3 :]:
                insert(tables.provider_traits, trait_id=trait, **own)
            if number % 2:
                insert(tables.provider_aggregates, aggregate_id=aggregate, **own)
        below = sa.update(tables.providers).where(tables.providers.c.id == made[2])
        transaction.execute(below.values(parent_provider_id=made[1], root_provider_id=made[1]))
    return made


def test_columns_say_what_records_say(feed, ids):
    by_records, by_columns = Forest(), Forest()
    records = feed.records(ids)
    by_records.apply(records)
    # Known, but as if everything about them had changed.
    known = [record.__class__(record.row, (), frozenset(), frozenset()) for record in records]
    by_columns.apply(known)
    told = feed.states([*ids, 10**6], BEFORE_ALL, partial(bulk.altered, Forest()))
    assert told.uuids == {}
    bulk.apply(by_columns, told)
    assert contents(by_columns) == contents(by_records)
    assert {len(own) for own in contents(by_columns).values()} == {6, 7, 8}


def test_a_look_brings_what_changed_unless_that_is_much(database, feed, ids):
    created(database, "with nothing")
    with feed.snapshot() as (horizon, _):
        pass
    with database.write() as transaction:
        transaction.execute(sa.update(tables.providers).values(revision=transaction.stamp))
    look = feed.look(horizon, most_documents=7)
    records = {record.row.id: record for record in feed.records([row.id for row in look.changed])}
    assert len(records) == 7
    brought = {row.id: read_document(row.document) for row in look.changed}
    for id_, record in brought.items():
        by_class = sorted(record.inventories), sorted(records[id_].inventories)
        assert by_class[0] == by_class[1]
        assert replace(record, inventories=()) == replace(records[id_], inventories=())
    with closing(Feed(database)) as other:
        few = other.look(horizon, most_documents=6)
    assert [row.document for row in few.changed] == [None] * 7


def test_columns_tell_the_uuids_of_strangers(feed, ids):
    by_records, by_columns = Forest(), Forest()
    records = sorted(feed.records(ids), key=lambda record: record.row.id)
    by_records.apply(records)
    by_columns.apply(records[1:-1])
    strangers = bulk.strangers(by_columns, [*ids, 10**6])
    assert strangers == [ids[0], ids[-1], 10**6]
    told = feed.states([*ids, 10**6], BEFORE_ALL, partial(bulk.altered, by_columns), strangers)
    bulk.apply(by_columns, told)
    assert contents(by_columns) == contents(by_records)
    found = [by_columns.row_of_uuid(record.row.uuid) for record in records]
    assert by_columns.providers.id[found].tolist() == ids


@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_a_snapshot_says_what_records_say(feed, ids, database, monkeypatch, at_once):
    """Portions of providers come one after the other, with a statement for each kind of rows."""
    monkeypatch.setattr(records, "_STREAM", at_once)
    asked: list[str] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda _c, _k, text, *_: asked.append(text))
    by_records, loaded = Forest(), Forest()
    by_records.apply(feed.records(ids))
    del asked[:]
    with feed.snapshot() as (_, snapshot):
        before = len(asked)
        loaded.load(snapshot)
        count = len(asked) - before
    assert contents(loaded) == contents(by_records)
    assert loaded.providers.id[: len(ids)].tolist() == ids
    uuids = {record.row.id: record.row.uuid for record in feed.records(ids)}
    assert [loaded.row_of_uuid(uuids[id_]) for id_ in ids] == list(range(len(ids)))
    assert count == 4 * -(-len(ids) // at_once)


def test_a_snapshot_of_nothing_is_an_empty_forest(feed):
    forest = Forest()
    with feed.snapshot() as (_, snapshot):
        forest.load(snapshot)
    assert len(forest) == 0


def test_a_load_gives_back_what_it_no_longer_needs(database, ids, monkeypatch):
    given_back: list[int] = []
    keeper = view.ForestKeeper(database)
    monkeypatch.setattr(memory, "give_back", lambda: given_back.append(keeper.state.providers))
    keeper.begin()
    keeper.close()
    assert given_back == [len(ids)]
