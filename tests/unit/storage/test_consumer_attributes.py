"""Consumers get the project, user and type asked for, whatever is remembered, and in whatever database."""

import uuid

import pytest
import sqlalchemy as sa

from placement.allocations.statements import consumers
from placement.allocations.statements.consumers import AttributeRegistry, ConsumerAttributes
from placement.storage import tables
from placement.storage.database import Database
from placement.storage.failures import TryAgain

NAMES = {"project": tables.projects, "user": tables.users}


def consumer_of(database: Database, project: str, user: str, kind: str | None = None) -> consumers.Consumer:
    """A new consumer with these attributes, as it is stored."""
    id_ = str(uuid.uuid4())
    with database.write() as transaction:
        assert consumers.create(transaction, [ConsumerAttributes(id_, project, user, kind)]) == {id_}
    with database.read() as connection:
        found = consumers.find(connection, id_)
    assert found is not None
    return found


def test_attributes_are_registered_when_memory_is_full(database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(consumers, "_MOST_KNOWN", 3)
    registry = AttributeRegistry(database)
    for number in range(8):
        users = [("user", f"u{number}"), ("user", f"u{number // 2}")]
        registry.register([("project", "p"), ("type", "T"), *users])
        found = consumer_of(database, "p", f"u{number}", "T")
        assert (found.project_id, found.user_id, found.consumer_type) == ("p", f"u{number}", "T")


def test_ids_that_stand_for_other_attributes_now_mislead_nobody(database: Database):
    registry = AttributeRegistry(database)
    registry.register([(kind, name) for kind in NAMES for name in ("mine", "yours")])
    # The attributes get each other's ids, as they may have them in a database that was restored.
    with database.write() as transaction:
        for table in NAMES.values():
            ids, names = zip(*transaction.execute(sa.select(table.c.id, table.c.external_id)), strict=True)
            transaction.execute(sa.delete(table))
            for id_, name in zip([*ids[1:], ids[0]], names, strict=True):
                values = {"id": id_, "external_id": name, "created_at": transaction.now}
                transaction.execute(sa.insert(table).values(values))
    registry.register([("project", "mine"), ("user", "mine")])
    found = consumer_of(database, "mine", "mine")
    assert (found.project_id, found.user_id) == ("mine", "mine")
    with database.write() as transaction:
        consumers.advance(transaction, [ConsumerAttributes(found.uuid, "yours", "mine", None)])
    with database.read() as connection:
        changed = consumers.find(connection, found.uuid)
    assert changed is not None
    assert (changed.project_id, changed.user_id, changed.generation) == ("yours", "mine", 2)


@pytest.mark.parametrize("missing", ["project", "user", "type"])
def test_an_attribute_that_is_gone_is_registered_again(database: Database, missing: str):
    registry = AttributeRegistry(database)
    wanted = [("project", "p"), ("user", "u"), ("type", "T")]
    registry.register(wanted)
    table = {**NAMES, "type": tables.consumer_types}[missing]
    with database.write() as transaction:
        transaction.execute(sa.delete(table))
    registry.register(wanted)
    with pytest.raises(TryAgain, match="another one"):
        consumer_of(database, "p", "u", "T")
    registry.register(wanted)
    assert consumer_of(database, "p", "u", "T").consumer_type == "T"
