"""Very many providers are read column by column, and say what their records say."""

from __future__ import annotations

import uuid
from functools import partial

import pytest
import sqlalchemy as sa

from placement.engine.forest import forest
from placement.engine.forest.forest import Forest
from placement.providers.statements import providers
from placement.storage import tables
from placement.storage.database import Database
from placement.storage.feed import Feed
from tests.unit.engine.forest.test_states import contents

RATIOS = (1.0, 16.0, 1.1, 0.1 + 0.2, 3.4e38)


@pytest.fixture
def feed(database: Database):
    feed = Feed(database)
    yield feed
    feed.close()


@pytest.fixture
def ids(database: Database) -> list[int]:
    """Providers that differ in all that there is, one with nothing, one below another."""
    with database.write() as transaction:
        made = [providers.insert(transaction, str(uuid.uuid4()), f"host {number}") for number in range(6)]
        classes = sorted(transaction.execute(sa.select(tables.resource_classes.c.id)).scalars())[:2]
        traits = sorted(transaction.execute(sa.select(tables.traits.c.id)).scalars())[:3]
        aggregate = transaction.execute(
            sa.insert(tables.aggregates).values(uuid=str(uuid.uuid4())).returning(tables.aggregates.c.id)
        ).scalar_one()
        for number, id_ in enumerate(made[1:]):
            for class_id in classes[: number % 2 + 1]:
                transaction.execute(
                    sa.insert(tables.inventories).values(
                        resource_provider_id=id_,
                        resource_class_id=class_id,
                        total=2**31 - 1 - number,
                        reserved=number,
                        min_unit=1 + number,
                        max_unit=2**31 - 1,
                        step_size=1,
                        allocation_ratio=RATIOS[number],
                        used=2**40 + number,
                    )
                )
            for trait in traits[number % 3 :]:
                transaction.execute(
                    sa.insert(tables.provider_traits).values(resource_provider_id=id_, trait_id=trait)
                )
            if number % 2:
                transaction.execute(
                    sa.insert(tables.provider_aggregates).values(
                        resource_provider_id=id_, aggregate_id=aggregate
                    )
                )
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
    told = feed.states([*ids, 10**6], 0, partial(forest.altered, Forest()))
    assert told.uuids == {}
    forest.apply(by_columns, told)
    assert contents(by_columns) == contents(by_records)
    assert {len(own) for own in contents(by_columns).values()} == {6, 7, 8}


def test_columns_tell_the_uuids_of_strangers(feed, ids):
    by_records, by_columns = Forest(), Forest()
    records = sorted(feed.records(ids), key=lambda record: record.row.id)
    by_records.apply(records)
    by_columns.apply(records[1:-1])
    strangers = forest.strangers(by_columns, [*ids, 10**6])
    assert strangers == [ids[0], ids[-1], 10**6]
    told = feed.states([*ids, 10**6], 0, partial(forest.altered, by_columns), strangers)
    forest.apply(by_columns, told)
    assert contents(by_columns) == contents(by_records)
    found = [by_columns.row_of_uuid(record.row.uuid) for record in records]
    assert by_columns.providers.id[found].tolist() == ids


def test_providers_without_anything_are_told(feed, database):
    with database.write() as transaction:
        id_ = providers.insert(transaction, str(uuid.uuid4()), "bare")
    told = feed.states([id_], 0, partial(forest.altered, Forest()))
    assert [next(iter(column)) for column in told.providers[:4]] == [id_, 0, 0, id_]
    assert {len(column) for column in told.inventories} == {0}
    assert (told.traits, told.aggregates, told.class_ids) == ([], [], frozenset())
