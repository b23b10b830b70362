"""A resource class that an import made goes when no inventory has it any more; one of an operator stays."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sqlalchemy as sa

from placement.providers.statements import names as catalog
from placement.providers.statements import names as class_names
from placement.storage import tables
from placement.storage.database import Database
from tests.client import Client, detail
from tests.kubernetes import node_manifests
from tests.patience import PATIENCE_SECONDS, eventually

CLUSTER = "/ext/v1/clusters/edge"
CLASSES = "/resource_classes"
DEVICE = "CUSTOM_EXAMPLE_COM_DEV"


def names(api: Client) -> set[str]:
    return {entry["name"] for entry in api.get(CLASSES).json["resource_classes"]}


def has_device(api: Client) -> bool:
    return DEVICE in names(api)


def with_device(name: str) -> dict[str, Any]:
    return node_manifests(name, **{"example.com__dev": "1"})


def put(api: Client, *nodes: str) -> None:
    assert api.put(CLUSTER).status_code in (200, 201)
    for node in nodes:
        assert api.put(f"{CLUSTER}/nodes/{node}", with_device(node)).status_code == 201


def delete(api: Client, node: str) -> None:
    assert api.delete(f"{CLUSTER}/nodes/{node}").status_code == 204


def test_a_class_goes_with_the_last_node_that_has_it(api: Client):
    before = names(api)
    put(api, "n1", "n2")
    assert has_device(api)
    delete(api, "n1")
    assert has_device(api)
    delete(api, "n2")
    assert names(api) == before


def test_a_class_goes_when_the_last_node_loses_the_resource(api: Client):
    put(api, "n1")
    assert api.put(f"{CLUSTER}/nodes/n1", node_manifests("n1")).status_code == 200
    assert not has_device(api)


def test_a_class_goes_with_the_machine_that_another_replaces(api: Client):
    put(api, "n1")
    manifests = node_manifests("n1")
    manifests["node"]["metadata"]["uid"] = "another"
    assert api.put(f"{CLUSTER}/nodes/n1", manifests).status_code in (200, 201)
    assert not has_device(api)


def test_a_machine_with_the_resources_of_the_former_one_keeps_the_class(api: Client, database: Database):
    put(api, "n1")
    first = class_id(database)
    manifests = with_device("n1")
    manifests["node"]["metadata"]["uid"] = "another"
    assert api.put(f"{CLUSTER}/nodes/n1", manifests).status_code in (200, 201)
    assert class_id(database) == first


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_class_that_an_operator_puts_stays(api: Client, moment: str):
    if moment == "before":
        assert api.put(f"{CLASSES}/{DEVICE}").status_code == 201
    put(api, "n1")
    if moment == "after":
        assert api.put(f"{CLASSES}/{DEVICE}").status_code == 204
    delete(api, "n1")
    assert has_device(api)
    assert api.delete(f"{CLASSES}/{DEVICE}").status_code == 204


def test_a_class_that_an_operator_renames_stays(api: Client):
    put(api, "n1")
    assert api.at("1.6").put(f"{CLASSES}/{DEVICE}", {"name": "CUSTOM_OURS"}).status_code == 200
    delete(api, "n1")
    assert "CUSTOM_OURS" in names(api)


def test_a_class_stays_while_another_provider_has_it(api: Client):
    put(api, "n1")
    shelf = api.post("/resource_providers", {"name": "shelf"}).json["uuid"]
    path = f"/resource_providers/{shelf}/inventories"
    body = {"resource_provider_generation": 0, "inventories": {DEVICE: {"total": 1}}}
    assert api.put(path, body).status_code == 200
    delete(api, "n1")
    assert has_device(api)
    assert api.delete(path).status_code == 204
    put(api, "n2")
    delete(api, "n2")
    assert not has_device(api)


def test_a_removal_is_bounded_and_the_next_goes_on(api: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(catalog, "_CATALOG_AT_ONCE", 3)
    assert api.put(CLUSTER).status_code == 201
    for node in ("n1", "n2"):
        assert api.put(f"{CLUSTER}/nodes/{node}", node_manifests(node)).status_code == 201
    usual = names(api)
    devices = {f"example.com__dev{number}": "1" for number in range(5)}
    assert api.put(f"{CLUSTER}/nodes/n3", node_manifests("n3", **devices)).status_code == 201
    assert len(names(api) - usual) == 5
    delete(api, "n3")
    assert len(names(api) - usual) == 2
    delete(api, "n1")
    assert names(api) == usual


def test_other_processes_learn_of_it_and_it_is_recorded(api: Client, other: Client):
    query = f"/allocation_candidates?resources={DEVICE}:1"
    put(api, "n1")
    assert other.get(query).status_code == 200
    delete(api, "n1")
    assert other.get(query).status_code == 400
    put(api, "n1")
    assert len(other.get(query).json["allocation_requests"]) == 1
    delete(api, "n1")
    records = api.get(f"/ext/v1/audit?target={DEVICE}").json["events"]
    assert [record["action"] for record in records].count("delete") == 2


# -- a second writer at the same moment; SQLite lets one writer in at a time ----------------------------

together = pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)


def class_id(database: Database) -> int:
    table = tables.resource_classes
    with database.read() as connection:
        found: int = connection.execute(sa.select(table.c.id).where(table.c.name == DEVICE)).scalar_one()
    return found


def unused_class(api: Client, database: Database) -> int:
    """A class that an import made and no inventory has, as if a removal had left it; its id."""
    put(api, "n1")
    id_ = class_id(database)
    table = tables.inventories
    with database.write() as transaction:
        transaction.execute(sa.delete(table).where(table.c.resource_class_id == id_))
    return id_


def await_waiting(database: Database) -> None:
    """Wait until a transaction waits for another one."""
    waits = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")

    def is_so() -> bool:
        with database.read() as connection:
            return bool(connection.execute(waits).scalar_one())

    eventually(True, is_so)


def beside_a_removal(database: Database, call: Any) -> Any:
    """The answer to a call that comes when a removal has taken place and not committed."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    with database.write() as transaction:
        catalog.remove_unused_classes(transaction)
        thread.start()
        await_waiting(database)
    thread.join(PATIENCE_SECONDS)
    return answers[0]


@together
def test_an_import_at_the_moment_of_a_removal_makes_the_class_again(api: Client, other: Client, database):
    former = unused_class(api, database)
    answer = beside_a_removal(database, lambda: other.put(f"{CLUSTER}/nodes/n2", with_device("n2")))
    assert answer.status_code == 201
    assert class_id(database) != former
    shown = api.get(f"{CLUSTER}/nodes/n2").json
    assert DEVICE in str(shown)


@together
def test_a_put_at_the_moment_of_a_removal_makes_the_class_again(api: Client, other: Client, database):
    former = unused_class(api, database)
    answer = beside_a_removal(database, lambda: other.put(f"{CLASSES}/{DEVICE}"))
    assert answer.status_code == 201
    assert class_id(database) != former
    put(api, "n2")
    delete(api, "n2")
    assert has_device(api)


@together
def test_a_class_that_an_import_uses_at_the_moment_is_left_and_not_waited_for(api: Client, database):
    id_ = unused_class(api, database)
    put(api, "n2")
    with database.write() as importing:
        # What an import does first with the classes of its nodes.
        class_names.ids_of(importing, tables.resource_classes, [DEVICE], keep=True)
        delete(api, "n2")
        assert class_id(database) == id_
    put(api, "n3")
    delete(api, "n3")
    assert not has_device(api)


@together
def test_an_inventory_at_the_moment_of_a_removal_finds_the_class_gone(api: Client, other: Client, database):
    unused_class(api, database)
    shelf = api.post("/resource_providers", {"name": "shelf"}).json["uuid"]
    path = f"/resource_providers/{shelf}/inventories"
    body = {"resource_provider_generation": 0, "inventories": {DEVICE: {"total": 1}}}
    answer = beside_a_removal(database, lambda: other.put(path, body))
    assert answer.status_code == 400
    assert f"Unknown resource class in inventory for resource provider {shelf}" in detail(answer)
    assert not has_device(api)


@together
def test_an_import_makes_a_class_that_comes_and_goes_meanwhile(
    api: Client, other: Client, database, monkeypatch
):
    foreign = "/ext/v1/clusters/batch"
    for cluster in (CLUSTER, foreign):
        assert api.put(cluster).status_code == 201
    create, calls = class_names.create, []

    def beside_others(transaction: Any, table: sa.Table, name: str, **others: Any) -> bool:
        if name != DEVICE or calls:
            return create(transaction, table, name, **others)
        calls.append(name)
        # Another import commits the class first, and it goes before this one reads its id.
        assert other.put(f"{foreign}/nodes/n1", with_device("n1")).status_code == 201
        created = create(transaction, table, name, **others)
        assert not created
        assert other.delete(f"{foreign}/nodes/n1").status_code == 204
        return created

    # The usual classes are there, so that neither import waits for those of the other.
    assert other.put(f"{foreign}/nodes/n0", node_manifests("n0")).status_code == 201
    monkeypatch.setattr(class_names, "create", beside_others)
    assert api.put(f"{CLUSTER}/nodes/n2", with_device("n2")).status_code == 201
    assert calls == [DEVICE]
    assert has_device(api)
