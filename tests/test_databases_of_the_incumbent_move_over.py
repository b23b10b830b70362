"""What a database of OpenStack Placement holds is imported and exported again, and nothing of it is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from placement.engine.domain.errors import BadRequest, Conflict, Unavailable
from placement.migrate import moving
from placement.migrate.incumbent import IncumbentDatabase
from placement.migrate.migration import MigrationReport
from placement.storage import tables
from placement.storage.database import Database
from tests.client import Client
from tests.incumbent import Incumbent, incumbent_database
from tests.kubernetes import node_manifests
from tests.server import BACKENDS

OWNER = ("nobody's project", "nobody")
HOST, CELL, POOL = (f"{number}0000000-0000-4000-8000-000000000000" for number in (1, 2, 3))
RACK = "a0000000-0000-4000-8000-000000000000"
SERVER, VOLUME = "c0000000-0000-4000-8000-000000000001", "c0000000-0000-4000-8000-000000000002"
SIZE = {"reserved": 1, "min_unit": 1, "max_unit": 8, "step_size": 1}

Bring = Callable[..., MigrationReport]


@pytest.fixture
def source(connection_url: str) -> Iterator[Incumbent]:
    """A host with a NUMA node, a pool that shares, a server on all three and a volume without a kind.

    It is of the other kind of database, so both are read and written.
    """
    with incumbent_database(BACKENDS[connection_url.startswith(BACKENDS[0])]) as made:
        filled(made)
        yield made


def filled(made: Incumbent) -> None:
    # Ids are unlike those of the target on purpose.
    made.add("resource_classes", id=70, name="VCPU")
    made.add("resource_classes", id=71, name="CUSTOM_FPGA")
    made.add("traits", id=50, name="COMPUTE_NODE")
    made.add("traits", id=51, name="CUSTOM_GOLD")
    made.add("placement_aggregates", id=9, uuid=RACK)
    made.add("resource_providers", id=31, uuid=CELL, name="cell", generation=2)
    made.add("resource_providers", id=32, uuid=HOST, name="Häuschen", generation=7, root_provider_id=32)
    made.add("resource_providers", id=33, uuid=POOL, name="pool", generation=1, root_provider_id=33)
    made.run("UPDATE resource_providers SET root_provider_id = 32, parent_provider_id = 32 WHERE id = 31")
    for provider, resource_class, ratio in ((31, 70, 1.5), (33, 71, 1.0)):
        belongs = {"resource_provider_id": provider, "resource_class_id": resource_class}
        made.add("inventories", **belongs, total=10, allocation_ratio=ratio, **SIZE)
    made.add("resource_provider_traits", trait_id=50, resource_provider_id=32)
    made.add("resource_provider_traits", trait_id=51, resource_provider_id=33)
    made.add("resource_provider_aggregates", resource_provider_id=33, aggregate_id=9)
    made.add("projects", id=5, external_id="red")
    made.add("users", id=6, external_id="rosa")
    made.add("consumer_types", id=4, name="INSTANCE")
    made.add("consumers", uuid=SERVER, project_id=5, user_id=6, generation=3, consumer_type_id=4)
    made.add("consumers", uuid=VOLUME, project_id=5, user_id=6, generation=1)
    hold(made, SERVER, 31, 70, 4)
    hold(made, SERVER, 33, 71, 1)
    hold(made, VOLUME, 31, 70, 2)


def hold(made: Incumbent, consumer: str, provider: int, resource_class: int, used: int) -> None:
    made.add(
        "allocations",
        consumer_id=consumer,
        resource_provider_id=provider,
        resource_class_id=resource_class,
        used=used,
    )


@pytest.fixture
def bring(source: Incumbent, connection_url: str) -> Bring:
    """Import, as the command does."""

    def run(may_remove: bool = False, rehearse: bool = False) -> MigrationReport:
        how = {"may_remove": may_remove, "rehearse": rehearse}
        return moving.bring_in(source.url, connection_url, OWNER, lambda *_: None, **how)

    return run


def changes(report: MigrationReport) -> dict[str, tuple[int, int, int]]:
    """What was not left as it was."""
    found = {what: (one.added, one.changed, one.removed) for what, one in report.changes.items()}
    return {what: numbers for what, numbers in found.items() if any(numbers)}


def inventory_of(api: Client, provider: str) -> dict[str, Any]:
    return api.get(f"/resource_providers/{provider}/inventories").json["inventories"]


def test_everything_is_there_afterwards(bring: Bring, api: Client):
    bring()
    listed = {row["uuid"]: row for row in api.get("/resource_providers").json["resource_providers"]}
    assert {uuid: (row["name"], row["generation"]) for uuid, row in listed.items()} == {
        HOST: ("Häuschen", 7),
        CELL: ("cell", 2),
        POOL: ("pool", 1),
    }
    assert listed[CELL]["parent_provider_uuid"] == listed[CELL]["root_provider_uuid"] == HOST
    assert listed[HOST]["parent_provider_uuid"] is None
    assert inventory_of(api, CELL) == {"VCPU": {"total": 10, "allocation_ratio": 1.5, **SIZE}}
    assert api.get(f"/resource_providers/{POOL}/traits").json["traits"] == ["CUSTOM_GOLD"]
    assert api.get(f"/resource_providers/{POOL}/aggregates").json["aggregates"] == [RACK]
    assert api.get(f"/resource_providers/{CELL}/usages").json["usages"] == {"VCPU": 6}
    held = api.get(f"/allocations/{SERVER}").json
    assert api.used_by(SERVER) == {CELL: {"VCPU": 4}, POOL: {"CUSTOM_FPGA": 1}}
    assert (held["project_id"], held["user_id"], held["consumer_generation"]) == ("red", "rosa", 3)
    assert held["consumer_type"] == "INSTANCE"
    assert api.get(f"/allocations/{VOLUME}").json["consumer_type"] == "unknown"


def test_rows_without_times_are_shown(bring: Bring, source: Incumbent, api: Client):
    """Traits and aggregates that somebody wrote by hand into the incumbent's tables."""
    source.add("placement_aggregates", id=10, uuid=HOST)
    source.add("resource_provider_aggregates", resource_provider_id=33, aggregate_id=10)
    source.add("resource_provider_traits", trait_id=50, resource_provider_id=33)
    bring()
    assert api.get(f"/resource_providers/{POOL}/aggregates").json["aggregates"] == [RACK, HOST]
    assert len(api.get(f"/resource_providers/{POOL}/traits").json["traits"]) == 2


def test_what_was_imported_is_claimed_from_by_running_services(bring: Bring, api: Client):
    """Amounts in use count: ten, one reserved, ratio 1.5 are 13, of which 6 are gone."""

    def found(amount: int) -> list[list[str]]:
        answer = api.get(f"/allocation_candidates?resources=VCPU:{amount}").json
        return [list(one["allocations"]) for one in answer["allocation_requests"]]

    assert found(1) == []
    bring()
    assert (found(7), found(8)) == ([[CELL]], [])


def test_a_dry_run_tells_the_same_and_changes_nothing_and_so_does_a_second_run(bring: Bring, api: Client):
    rehearsed = changes(bring(rehearse=True))
    assert api.get("/resource_providers").json["resource_providers"] == []
    assert changes(bring()) == rehearsed
    assert rehearsed["providers"] == (3, 0, 0)
    assert changes(bring()) == {}


def test_what_changed_since_is_written(bring: Bring, source: Incumbent, api: Client):
    bring()
    source.run("UPDATE resource_providers SET generation = 3 WHERE id = 31")
    source.run("UPDATE inventories SET total = 12 WHERE resource_provider_id = 31")
    source.run("UPDATE allocations SET used = 3 WHERE consumer_id = :volume", volume=VOLUME)
    source.run("UPDATE consumers SET generation = 9 WHERE uuid = :volume", volume=VOLUME)
    source.run("DELETE FROM resource_provider_traits WHERE resource_provider_id = 33")
    assert changes(bring()) == {
        "providers": (0, 1, 0),
        "inventories": (0, 1, 0),
        "allocations": (0, 1, 0),
        "consumers": (0, 1, 0),
        "traits of providers": (0, 0, 1),
    }
    assert inventory_of(api, CELL)["VCPU"]["total"] == 12
    assert api.get(f"/resource_providers/{CELL}/usages").json["usages"] == {"VCPU": 7}
    assert api.get("/allocation_candidates?resources=VCPU:9").json["allocation_requests"] == []


def test_what_is_gone_is_removed_only_when_allowed(bring: Bring, source: Incumbent, api: Client):
    bring()
    source.run(
        "DELETE FROM allocations WHERE consumer_id = :server OR resource_provider_id = 33", server=SERVER
    )
    source.run("DELETE FROM consumers WHERE uuid = :server", server=SERVER)
    for table in ("inventories", "resource_provider_traits", "resource_provider_aggregates"):
        source.run(f"DELETE FROM {table} WHERE resource_provider_id = 33")
    source.run("DELETE FROM resource_providers WHERE id = 33")
    gone = rf"1 providers \(.+\) and 1 consumers \({SERVER}\) are in the target and not in the source"
    with pytest.raises(Conflict, match=gone):
        bring()
    assert api.get(f"/resource_providers/{POOL}").status_code == 200
    bring(may_remove=True)
    assert api.get(f"/resource_providers/{POOL}").status_code == 404
    assert api.used_by(SERVER) == {}
    assert api.get(f"/resource_providers/{CELL}/usages").json["usages"] == {"VCPU": 2}


def test_names_may_change_owners(bring: Bring, source: Incumbent, api: Client):
    """A host that was made anew has the name of the former one."""
    bring()
    anew = "40000000-0000-4000-8000-000000000000"
    for name, id_ in (("aside", 31), ("cell", 33), ("pool", 31)):
        source.run("UPDATE resource_providers SET name = :name WHERE id = :id", name=name, id=id_)
    source.add("resource_providers", id=40, uuid=anew, name="next", generation=0, root_provider_id=40)
    source.run("UPDATE resource_providers SET name = 'last' WHERE id = 32")
    source.run("UPDATE resource_providers SET name = 'Häuschen' WHERE id = 40")
    bring()
    names = {row["uuid"]: row["name"] for row in api.get("/resource_providers").json["resource_providers"]}
    assert names == {CELL: "pool", POOL: "cell", HOST: "last", anew: "Häuschen"}


def test_clusters_stay(bring: Bring, api: Client):
    assert api.put("/ext/v1/clusters/edge").status_code in (200, 201)
    manifests = node_manifests("edge-01")
    assert api.put("/ext/v1/clusters/edge/nodes/edge-01", manifests).status_code < 300
    before = api.get("/ext/v1/clusters/edge/nodes/edge-01").json
    bring()
    bring(may_remove=True)
    assert api.get("/ext/v1/clusters/edge/nodes/edge-01").json == before


def test_what_belongs_to_a_cluster_is_not_taken_over(bring: Bring, database: Database):
    with database.write() as transaction:
        aggregate = transaction.execute(
            sa.insert(tables.aggregates).values(uuid="x").returning(tables.aggregates.c.id)
        )
        values = {"name": "edge", "uuid": "y", "aggregate_id": aggregate.scalar_one(), "settings": {}}
        cluster = transaction.execute(
            sa.insert(tables.clusters).values(values).returning(tables.clusters.c.id)
        )
        row = {
            "uuid": HOST,
            "name": "edge/one",
            "cluster_id": cluster.scalar_one(),
            "revision": transaction.stamp,
        }
        transaction.execute(sa.insert(tables.providers).values(row))
    with pytest.raises(Conflict, match=f"belong to clusters of this service: {HOST}"):
        bring()


def test_holders_without_a_record_get_one(bring: Bring, source: Incumbent, api: Client):
    """Source: placement-api.md, "Server commands"."""
    source.run("DELETE FROM consumers WHERE uuid = :volume", volume=VOLUME)
    assert bring().completed_consumers == 1
    held = api.get(f"/allocations/{VOLUME}").json
    assert (held["project_id"], held["user_id"]) == OWNER
    assert changes(bring()) == {}


def test_roots_that_old_releases_left_out_are_found(bring: Bring, source: Incumbent, api: Client):
    source.run("UPDATE resource_providers SET root_provider_id = NULL")
    bring()
    assert api.get(f"/resource_providers/{CELL}").json["root_provider_uuid"] == HOST


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "UPDATE allocations SET resource_provider_id = 99",
            "allocations have a resource_provider_id .*: 99",
        ),
        ("UPDATE allocations SET resource_class_id = 99", "allocations have a resource_class_id"),
        ("UPDATE inventories SET resource_class_id = 99", "inventories have a resource_class_id"),
        ("UPDATE consumers SET project_id = 99", "consumers have a project_id"),
        ("UPDATE resource_provider_aggregates SET aggregate_id = 99", "aggregates have a aggregate_id"),
        ("UPDATE resource_providers SET name = NULL", "resource_providers have no name"),
        (
            "INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used)"
            " SELECT resource_provider_id, consumer_id, resource_class_id, 1 FROM allocations",
            f"in several rows: .*{SERVER}",
        ),
    ],
)
def test_rows_that_refer_to_nothing_are_told(bring: Bring, source: Incumbent, statement: str, told: str):
    source.run(statement)
    with pytest.raises(Conflict, match=told):
        bring()


def test_a_copy_that_differs_is_not_kept(bring: Bring, database: Database, api: Client):
    """Somebody else's trigger, a wrong character set: whatever it is, it is found out before it is stored."""
    doubling = {
        "sqlite": [
            "CREATE TRIGGER odd AFTER INSERT ON allocations BEGIN"
            " UPDATE allocations SET used = used + 1 WHERE id = NEW.id; END"
        ],
        "postgresql": [
            "CREATE FUNCTION odd() RETURNS trigger AS"
            " 'BEGIN NEW.used := NEW.used + 1; RETURN NEW; END' LANGUAGE plpgsql",
            "CREATE TRIGGER odd BEFORE INSERT ON allocations FOR EACH ROW EXECUTE FUNCTION odd()",
        ],
    }
    with database.write() as transaction:
        for statement in doubling[database.url.get_backend_name()]:
            transaction.connection.exec_driver_sql(statement)
    with pytest.raises(
        Conflict, match=rf"differ afterwards:\s+provider {CELL}: \('VCPU', 6\) there, \('VCPU', 8\)"
    ):
        bring()
    assert api.get("/resource_providers").json["resource_providers"] == []


CONTENTS = (
    "SELECT p.uuid, p.name, p.generation, q.uuid, r.uuid FROM resource_providers p"
    " LEFT JOIN resource_providers q ON q.id = p.parent_provider_id"
    " JOIN resource_providers r ON r.id = p.root_provider_id",
    "SELECT p.uuid, c.name, i.total, i.reserved, i.min_unit, i.max_unit, i.step_size, i.allocation_ratio"
    " FROM inventories i JOIN resource_providers p ON p.id = i.resource_provider_id"
    " JOIN resource_classes c ON c.id = i.resource_class_id",
    "SELECT p.uuid, t.name FROM resource_provider_traits s JOIN traits t ON t.id = s.trait_id"
    " JOIN resource_providers p ON p.id = s.resource_provider_id",
    "SELECT p.uuid, a.uuid FROM resource_provider_aggregates s"
    " JOIN placement_aggregates a ON a.id = s.aggregate_id"
    " JOIN resource_providers p ON p.id = s.resource_provider_id",
    "SELECT c.uuid, c.generation, p.external_id, u.external_id, t.name FROM consumers c"
    " JOIN projects p ON p.id = c.project_id JOIN users u ON u.id = c.user_id"
    " LEFT JOIN consumer_types t ON t.id = c.consumer_type_id",
    "SELECT a.consumer_id, p.uuid, c.name, a.used FROM allocations a"
    " JOIN resource_providers p ON p.id = a.resource_provider_id"
    " JOIN resource_classes c ON c.id = a.resource_class_id",
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_way_back_leads_to_the_same_rows(
    bring: Bring, source: Incumbent, connection_url: str, backend: str
):
    bring()
    with incumbent_database(backend) as back:
        how = {"may_remove": False, "rehearse": False}
        moving.write_back(connection_url, back.url, OWNER, lambda *_: None, **how)
        for query in CONTENTS:
            assert str(back.rows(query)) == str(source.rows(query))
        assert changes(moving.write_back(connection_url, back.url, OWNER, lambda *_: None, **how)) == {}


def test_other_databases_are_refused(bring: Bring, source: Incumbent, connection_url: str, tmp_path):
    def refused(url: str, error: type[Exception], match: str) -> None:
        with pytest.raises(error, match=match):
            moving.bring_in(url, connection_url, OWNER, lambda *_: None, may_remove=False, rehearse=False)

    refused(connection_url, BadRequest, "is a database of this service")
    refused(f"sqlite:///{tmp_path}/none.sqlite", Unavailable, "no database: file .*none.sqlite")
    refused("oracle://host/placement", BadRequest, "of kind oracle, not one of")
    refused("nonsense", BadRequest, "cannot be understood")
    assert not (tmp_path / "none.sqlite").exists()
    source.run("ALTER TABLE consumers RENAME COLUMN consumer_type_id TO kind")
    with pytest.raises(BadRequest, match=r"consumers\.consumer_type_id is missing; bring it up to date"):
        bring()


def test_a_copy_of_a_file_is_not_changed_by_reading_it(connection_url: str):
    with incumbent_database("sqlite") as made:
        filled(made)
        made.dispose()
        file = Path(made.url.removeprefix("sqlite:///"))
        before = file.read_bytes()
        moving.bring_in(made.url, connection_url, OWNER, lambda *_: None, may_remove=False, rehearse=False)
        assert file.read_bytes() == before


def test_without_pymysql_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(
        BadRequest, match="needs the Python package pymysql; the extra `mysql` brings PyMySQL"
    ):
        IncumbentDatabase("mysql://user@127.0.0.1/placement")
