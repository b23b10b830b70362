"""Any number of records is written at once, however few values a statement of SQLite may have."""

from __future__ import annotations

import sqlite3
import uuid
from typing import Any

import pytest
import sqlalchemy as sa

from placement.engine.domain.inventories import Inventory
from placement.providers.statements import contents, names, trees
from placement.providers.statements.trees import NewProvider
from placement.storage import tables
from placement.storage.database import Database

# What SQLite is built with unless somebody raises it.
_LIMIT = 32_766
_PROVIDERS, _CLASSES = 60, 80


@pytest.fixture
def narrow(database: Database) -> Database:
    """The database, whose statements may have as many values as SQLite allows by default."""

    def lower(connection: Any, _record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, _LIMIT)

    database.engine.dispose()
    sa.event.listen(database.engine, "connect", lower)
    return database


def test_records_of_many_providers(narrow):
    with narrow.write() as transaction:
        rows = [NewProvider(str(uuid.uuid4()), f"p{number}", None, None) for number in range(_PROVIDERS)]
        providers = sorted(trees.insert_providers(transaction, rows, None).values())
        wanted_names = [f"CUSTOM_{number}" for number in range(_CLASSES)]
        names.insert_ignoring_known(transaction, tables.resource_classes, "name", wanted_names)
        classes = sorted(names.class_ids(transaction, wanted_names).values())
        places = [(provider, class_id) for provider in providers for class_id in classes]
        contents.insert(transaction, [(*place, Inventory(1, 0)) for place in places])
        contents.update(
            transaction, [(*place, Inventory(number + 2, 1)) for number, place in enumerate(places)]
        )
        found = contents.stored(transaction, providers)
        totals = [found[provider][class_id].inventory.total for provider, class_id in places]
        assert totals == list(range(2, len(places) + 2))
        contents.delete(transaction, places[:-1])
        assert [list(records) for records in contents.stored(transaction, providers).values()] == [
            [classes[-1]]
        ]


def test_many_names_and_memberships(narrow):
    wanted = [f"CUSTOM_{number}" for number in range(20_000)]
    with narrow.write() as transaction:
        inserted = names.insert_ignoring_known(transaction, tables.traits, "name", wanted)
        assert sorted(inserted) == sorted(wanted)
        assert names.insert_ignoring_known(transaction, tables.traits, "name", [*wanted[:3], "CUSTOM_X"]) == [
            "CUSTOM_X"
        ]
        (id_,) = trees.insert_providers(
            transaction, [NewProvider(str(uuid.uuid4()), "p", None, None)], None
        ).values()
        ids = set(names.trait_ids(transaction, wanted).values())
        assert contents.replace_traits(transaction, id_, ids)
        assert trees.traits_of(transaction, [id_]) == {id_: ids}


def test_a_tree_of_many_providers(narrow):
    rows = [NewProvider(str(uuid.uuid4()), f"p{number}", None, None) for number in range(6000)]
    with narrow.write() as transaction:
        ids = trees.insert_providers(transaction, rows, None)
        assert ids.keys() == {row.uuid for row in rows}
        assert trees.insert_providers(transaction, rows[:3], None) == {}
        names.insert_ignoring_known(transaction, tables.traits, "name", ["CUSTOM_A", "CUSTOM_B"])
        traits = sorted(names.trait_ids(transaction, ["CUSTOM_A", "CUSTOM_B"]).values())
        trees.change_traits(transaction, [(id_, trait) for id_ in ids.values() for trait in traits], ())
        held = trees.traits_of(transaction, list(ids.values()))
        assert held == {id_: set(traits) for id_ in ids.values()}
