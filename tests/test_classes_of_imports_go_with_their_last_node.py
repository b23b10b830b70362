"""What nodes offer becomes resource classes, which all share: they are bounded, and go with the last node."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from placement.app import build, configured
from placement.http.registry import registry_of
from placement.providers import trees
from placement.providers.statements import names as catalog
from placement.providers.statements import names as class_names
from placement.server import settings
from placement.storage import tables
from placement.storage.database import Database
from tests.client import Client, detail
from tests.conftest import compatible
from tests.kubernetes import CLUSTER, cluster_of, node_manifests
from tests.patience import PATIENCE_SECONDS, eventually

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
    cluster_of(api, "n1", "n2")
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
        catalog.remove_unused(transaction)
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


def devices(name: str, first: int, count: int) -> dict:
    numbers = range(first, first + count)
    return node_manifests(name, **{f"example.com__dev{number}": "1" for number in numbers})


def classes(api: Client) -> int:
    return len(api.get("/resource_classes").json["resource_classes"])


@pytest.mark.one_database
def test_a_node_makes_no_more_than_a_few(api: Client):
    assert api.put(CLUSTER).status_code == 201
    before = classes(api)
    answer = api.put(f"{CLUSTER}/nodes/big", devices("big", 0, 3000))
    assert answer.status_code == 400
    assert "Node.status.allocatable: " in detail(answer)
    assert classes(api) == before
    assert api.put(f"{CLUSTER}/nodes/usual", devices("usual", 0, 40)).status_code == 201


@pytest.mark.one_database
def test_a_cluster_makes_no_more_than_it_may_have(api: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trees, "_MOST_CLASSES", 60)
    assert api.put(CLUSTER).status_code == 201
    assert api.put(f"{CLUSTER}/nodes/n1", devices("n1", 0, 40)).status_code == 201
    before = classes(api)
    answer = api.put(f"{CLUSTER}/nodes/n2", devices("n2", 40, 40))
    assert answer.status_code == 409
    assert "Node.status.allocatable: resource class CUSTOM_EXAMPLE_COM_DEV" in detail(answer)
    assert classes(api) == before
    # Of many nodes those are imported that bring no new class.
    items = [part for body in (devices("n2", 40, 40), devices("n3", 0, 40)) for part in body.values()]
    outcomes = api.post(f"{CLUSTER}/nodes", {"kind": "List", "items": items}).json["nodes"]
    assert [each["status"] for each in outcomes] == [409, 201]


@contextmanager
def admitting(database: Database, *prefixes: str) -> Iterator[Client]:
    """The service with these [clusters] resource_prefixes."""
    application = build(database, compatible(), resource_prefixes=prefixes)
    yield Client(application.test_client())
    registry_of(application).close()


MIXED = {"nvidia.com__gpu": "2", "evil.example__dev": "1", "hugepages-1Gi": "2Gi", "evil": "1"}


@pytest.mark.one_database
def test_resources_without_an_admitted_prefix_are_left_out(database: Database):
    zones = {0: {"cpu": "8", "nvidia.com/gpu": "2", "evil.example/zoned": "1"}}
    with admitting(database, "nvidia.com/", "amd.com/") as api:
        assert api.put(CLUSTER).status_code == 201
        answer = api.put(f"{CLUSTER}/nodes/n1", node_manifests("n1", zones=zones, **MIXED))
        assert answer.status_code == 201
        (remark,) = [text for text in answer.json["warnings"] if "resource_prefixes" in text]
        assert remark == (
            "Node.status.allocatable: resources without a prefix in [clusters] resource_prefixes "
            "are left out, also of zones: 'evil', 'evil.example/dev', 'evil.example/zoned'"
        )
        assert {"CUSTOM_NVIDIA_COM_GPU", "CUSTOM_HUGEPAGES_1GI", "CUSTOM_PODS"} <= names(api)
        assert not [name for name in names(api) if "EVIL" in name]


@pytest.mark.one_database
def test_a_remark_on_very_many_resources_is_short(database: Database):
    with admitting(database, "nvidia.com/") as api:
        assert api.put(CLUSTER).status_code == 201
        answer = api.put(f"{CLUSTER}/nodes/n1", devices("n1", 0, 3000))
        assert answer.status_code == 201
        (remark,) = [text for text in answer.json["warnings"] if "resource_prefixes" in text]
        assert remark.endswith("and 2990 more")


@pytest.mark.one_database
def test_the_prefixes_count_from_the_next_import_on(database: Database):
    with admitting(database) as api:
        assert api.put(CLUSTER).status_code == 201
        assert api.put(f"{CLUSTER}/nodes/n1", node_manifests("n1", **MIXED)).status_code == 201
        assert "CUSTOM_EVIL" in names(api)
    items = list(node_manifests("n1", **MIXED).values())
    with admitting(database, "nvidia.com/") as api:
        (outcome,) = api.post(f"{CLUSTER}/nodes", {"kind": "List", "items": items}).json["nodes"]
        assert "resource_prefixes" in " ".join(outcome["warnings"])
        assert "CUSTOM_EVIL" not in names(api)
    with admitting(database) as api:
        api.post(f"{CLUSTER}/nodes", {"kind": "List", "items": items})
        assert "CUSTOM_EVIL" in names(api)


@pytest.mark.one_database
def test_the_prefixes_are_a_setting(connection_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OS_PLACEMENT_DATABASE__CONNECTION", connection_url)
    monkeypatch.setenv("OS_API__AUTH_STRATEGY", "noauth2")
    monkeypatch.setenv("OS_CLUSTERS__RESOURCE_PREFIXES", "nvidia.com/, amd.com/")
    application = configured(settings.load())
    api = Client(application.test_client())
    assert api.put(CLUSTER).status_code == 201
    assert api.put(f"{CLUSTER}/nodes/n1", node_manifests("n1", **MIXED)).status_code == 201
    assert "CUSTOM_NVIDIA_COM_GPU" in names(api)
    assert "CUSTOM_EVIL" not in names(api)
    registry_of(application).close()
