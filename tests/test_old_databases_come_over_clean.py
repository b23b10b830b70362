"""An import brings in what the incumbent counts, and leaves no trace of what went wrong there."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from placement.engine.domain.errors import BadRequest, Conflict
from placement.migrate import moving
from placement.migrate.migration import MigrationReport
from placement.server import checks
from placement.server.online_migrations import MigrationOwner
from tests.client import Client
from tests.commands import run
from tests.conftest import application_at
from tests.incumbent import Incumbent, incumbent_database
from tests.server import BACKENDS, database_url
from tests.test_databases_of_the_incumbent_move_over import (
    CELL,
    HOST,
    OWNER,
    POOL,
    RACK,
    SERVER,
    VOLUME,
    changes,
    filled,
    hold,
)

OTHER = "d0000000-0000-4000-8000-00000000000d"
UPPER, BARE = "97146A72-B41E-4EA7-B9EF-9AEB69A6C1BA", "ad393f0b7d5746aa8ec58d309fc75c82"
# The same, as this service spells them.
LOWER, DASHED = UPPER.lower(), "ad393f0b-7d57-46aa-8ec5-8d309fc75c82"
# Statements that leave rows behind that refer to nothing; how many, and where.
DANGLING = {
    "INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used)"
    f" VALUES (99, '{OTHER}', 70, 1), (98, '{OTHER}', 70, 1)": (2, "allocations"),
    f"UPDATE allocations SET resource_class_id = 99 WHERE consumer_id = '{VOLUME}'": (1, "allocations"),
    "INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used)"
    f" VALUES (31, '{VOLUME}', 70, 1)": (1, "allocations"),
    "UPDATE inventories SET resource_provider_id = 99 WHERE resource_provider_id = 33": (2, "inventories"),
    "UPDATE resource_provider_traits SET trait_id = 99 WHERE trait_id = 51": (1, "resource_provider_traits"),
    "UPDATE resource_provider_aggregates SET aggregate_id = 99": (1, "resource_provider_aggregates"),
    "UPDATE placement_aggregates SET uuid = NULL": (2, "placement_aggregates"),
    f"UPDATE consumers SET project_id = 99 WHERE uuid = '{SERVER}'": (1, "consumers"),
    f"UPDATE consumers SET consumer_type_id = 99 WHERE uuid = '{SERVER}'": (1, "consumers"),
    "UPDATE resource_providers SET parent_provider_id = 99 WHERE id = 31": (1, "resource_providers"),
    "UPDATE resource_providers SET root_provider_id = 99 WHERE id = 31": (1, "resource_providers"),
    "UPDATE resource_providers SET name = NULL WHERE id = 33": (1, "resource_providers"),
    f"UPDATE allocations SET consumer_id = '{SERVER.upper()}' WHERE resource_provider_id = 33": (0, ""),
}


@pytest.fixture
def source() -> Iterator[Incumbent]:
    with incumbent_database("sqlite") as made:
        filled(made)
        yield made


@pytest.fixture(params=BACKENDS)
def here(request: pytest.FixtureRequest) -> Iterator[str]:
    with database_url(request.param) as url:
        yield url


@pytest.fixture
def copy() -> Iterator[str]:
    with database_url("sqlite") as url:
        yield url


def bring(
    source: Incumbent, url: str, *, may_remove: bool = False, skipped: Path | None = None
) -> MigrationReport:
    how = {"may_remove": may_remove, "rehearse": False, "skipped": skipped}
    return moving.bring_in(source.url, url, OWNER, lambda *_: None, **how)


def export(url: str, target: Incumbent, *, may_remove: bool = False) -> MigrationReport:
    how = {"may_remove": may_remove, "rehearse": False}
    return moving.write_back(url, target.url, OWNER, lambda *_: None, **how)


def faults(url: str) -> list[str]:
    return [one.sentence for one in checks.check(url, MigrationOwner(*OWNER)).violations]


def belongs(source: Incumbent, provider: int, *aggregates: str) -> None:
    """Add the aggregates, and the provider to them."""
    for number, uuid in enumerate(aggregates, 100 * provider):
        source.add("placement_aggregates", id=number, uuid=uuid)
        source.add("resource_provider_aggregates", resource_provider_id=provider, aggregate_id=number)


def leave_idle(source: Incumbent, *uuids: str) -> None:
    for uuid in uuids:
        source.add("consumers", uuid=uuid, project_id=5, user_id=6, generation=0)


def test_consumers_that_hold_nothing_stay_behind(source: Incumbent, here: str):
    """The incumbent leaves one behind with each refused claim, and an empty one."""
    leave_idle(source, OTHER, UPPER)
    report = bring(source, here)
    assert (report.idle_consumers, report.compared["consumers"]) == (2, 2)
    assert faults(here) == []
    assert changes(bring(source, here)) == {}
    assert faults(here) == []


def test_consumers_that_hold_nothing_any_more_go_without_being_asked_for(source: Incumbent, here: str):
    """A server was deleted since, and its record is still there."""
    bring(source, here)
    source.run("DELETE FROM allocations WHERE consumer_id = :volume", volume=VOLUME)
    assert changes(bring(source, here)) == {
        "allocations": (0, 0, 1),
        "inventories": (0, 1, 0),
        "consumers": (0, 0, 1),
    }
    assert faults(here) == []


def test_what_a_former_import_left_behind_is_healed(source: Incumbent, copy: str):
    """Its consumers that hold nothing go, and its uuids are spelled anew."""
    bring(source, copy)
    belongs(source, 33, UPPER)
    source.run("UPDATE consumers SET uuid = :other WHERE uuid = :server", other=BARE, server=SERVER)
    source.run(
        "UPDATE allocations SET consumer_id = :other WHERE consumer_id = :server", other=BARE, server=SERVER
    )
    source.run("UPDATE resource_providers SET uuid = replace(uuid, '-', '') WHERE id = 33")
    with sqlite3.connect(copy.removeprefix("sqlite:///")) as connection:
        connection.executescript(f"""
            PRAGMA foreign_keys = OFF;
            INSERT INTO consumers (uuid, project_id, user_id) SELECT '{OTHER}', project_id, user_id
                FROM consumers WHERE uuid = '{VOLUME}';
            UPDATE consumers SET uuid = '{BARE}' WHERE uuid = '{SERVER}';
            UPDATE allocations SET consumer_id = '{BARE}' WHERE consumer_id = '{SERVER}';
            UPDATE resource_providers SET uuid = replace(uuid, '-', '') WHERE uuid = '{POOL}';
            INSERT INTO placement_aggregates (uuid) VALUES ('{UPPER}');
            INSERT INTO resource_provider_aggregates (resource_provider_id, aggregate_id)
                SELECT resource_providers.id, placement_aggregates.id
                FROM resource_providers, placement_aggregates
                WHERE resource_providers.name = 'pool' AND placement_aggregates.uuid = '{UPPER}';
        """)
    bring(source, copy)
    assert faults(copy) == []
    assert changes(bring(source, copy)) == {}
    with application_at(copy) as application:
        api = Client(application.test_client())
        assert found(api, f"member_of={UPPER}") == [POOL]
        assert set(api.used_by(DASHED)) == {CELL, POOL}


def found(api: Client, query: str) -> list[str]:
    listed = api.get(f"/resource_providers?{query}").json["resource_providers"]
    return sorted(row["uuid"] for row in listed)


def test_aggregates_are_found_in_any_spelling(source: Incumbent, here: str):
    """Source: placement-api.md, "Identifiers, names, numbers"."""
    belongs(source, 33, UPPER, BARE)
    # Two spellings of one, on one provider and on two.
    belongs(source, 32, LOWER, RACK.upper())
    source.add("resource_provider_aggregates", resource_provider_id=33, aggregate_id=3200)
    report = bring(source, here)
    assert (report.respelled["aggregates"], report.merged_aggregates) == (3, 2)
    with application_at(here) as application:
        api = Client(application.test_client())
        for spelling in (UPPER, LOWER):
            assert found(api, f"member_of={spelling}") == [HOST, POOL]
        assert found(api, f"member_of={DASHED}") == found(api, f"member_of={BARE}") == [POOL]
        assert found(api, f"member_of={RACK}") == [HOST, POOL]
        listed = api.get(f"/resource_providers/{POOL}/aggregates").json["aggregates"]
        assert sorted(listed) == sorted([RACK, LOWER, DASHED])
    assert changes(bring(source, here)) == {}


def test_consumers_and_providers_are_found_in_any_spelling(source: Incumbent, here: str):
    for uuid in (SERVER, VOLUME):
        new = uuid.replace("-", "") if uuid == SERVER else uuid.upper()
        for table, column in (("consumers", "uuid"), ("allocations", "consumer_id")):
            source.run(f"UPDATE {table} SET {column} = :new WHERE {column} = :old", new=new, old=uuid)
    source.run("UPDATE resource_providers SET uuid = replace(uuid, '-', '') WHERE id IN (32, 33)")
    report = bring(source, here)
    assert report.respelled == {"aggregates": 0, "consumers": 2, "providers": 2}
    with application_at(here) as application:
        api = Client(application.test_client())
        assert set(api.used_by(SERVER)) == {CELL, POOL}
        assert found(api, f"in_tree={CELL}") == [HOST, CELL]
    assert changes(bring(source, here)) == {}
    assert faults(here) == []


def test_the_way_back_finds_rows_in_other_spellings(source: Incumbent, copy: str):
    """MySQL would take a second spelling for a duplicate."""
    belongs(source, 33, UPPER)
    leave_idle(source, OTHER)
    source.run("UPDATE consumers SET uuid = upper(uuid)")
    source.run("UPDATE allocations SET consumer_id = upper(consumer_id)")
    source.run("UPDATE resource_providers SET uuid = replace(uuid, '-', '')")
    bring(source, copy)
    counts = {
        table: len(source.rows(f"SELECT * FROM {table}"))
        for table in ("placement_aggregates", "consumers", "allocations", "resource_providers")
    }
    assert "aggregates" not in changes(export(copy, source))
    assert {table: len(source.rows(f"SELECT * FROM {table}")) for table in counts} == counts
    assert changes(export(copy, source)) == {}
    assert changes(bring(source, copy)) == {}


@pytest.mark.parametrize("statement", DANGLING)
def test_the_printed_sql_corrects_what_is_listed(source: Incumbent, copy: str, statement: str):
    source.run(statement)
    count, _ = DANGLING[statement]
    if count:
        with pytest.raises(Conflict, match=r"--skip-inconsistent FILE") as refused:
            bring(source, copy)
        _, _, sql = str(refused.value).partition("SQL for the source:")
        for line in sql.strip().splitlines():
            source.run(line.strip().removesuffix(";"))
    bring(source, copy)
    assert faults(copy) == []


@pytest.mark.parametrize("statement", DANGLING)
def test_rows_are_skipped_into_a_file(source: Incumbent, copy: str, tmp_path: Path, statement: str):
    source.run(statement)
    file = tmp_path / "skipped.jsonl"
    count, table = DANGLING[statement]
    assert bring(source, copy, skipped=file).skipped_rows == count
    text = file.read_text("utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    assert len(rows) == count
    if count:
        assert table in {row["table"] for row in rows}
        assert all(row["reason"] and row["row"] for row in rows)
    assert faults(copy) == []
    assert changes(bring(source, copy, skipped=tmp_path / "again")) == {}
    # The source is as it was.
    assert (tmp_path / "again").read_text("utf-8") == text


def test_what_is_left_is_what_the_incumbent_shows(source: Incumbent, copy: str, tmp_path: Path):
    """A consumer without its project keeps what it holds; of two rows the newer one counts."""
    source.run(f"UPDATE consumers SET project_id = 99 WHERE uuid = '{SERVER}'")
    hold(source, VOLUME, 31, 70, 3)
    report = bring(source, copy, skipped=tmp_path / "skipped")
    assert (report.skipped_rows, report.completed_consumers) == (2, 1)
    with application_at(copy) as application:
        api = Client(application.test_client())
        assert api.used_by(SERVER) == {CELL: {"VCPU": 4}, POOL: {"CUSTOM_FPGA": 1}}
        assert api.get(f"/allocations/{SERVER}").json["project_id"] == OWNER[0]
        assert api.used_by(VOLUME) == {CELL: {"VCPU": 3}}


def test_two_records_of_one_consumer_are_listed(source: Incumbent, copy: str, tmp_path: Path):
    bare = SERVER.replace("-", "")
    leave_idle(source, bare)
    hold(source, bare, 33, 71, 2)
    with pytest.raises(Conflict, match=f"one consumer in two spellings of its uuid; .*: {bare}") as refused:
        bring(source, copy)
    assert "stand beside a newer one of the same consumer" in str(refused.value)
    report = bring(source, copy, skipped=tmp_path / "skipped")
    assert report.skipped_rows == 2
    assert faults(copy) == []


@pytest.mark.parametrize("skips", [True, False])
def test_the_record_that_holds_something_says_the_owner(
    source: Incumbent, copy: str, tmp_path: Path, *, skips: bool
):
    """A refused claim left an empty record in another spelling, of another project."""
    bare = OTHER.replace("-", "")
    source.add("projects", id=55, external_id="blue")
    for id_, uuid, project in ((60, OTHER, 5), (61, bare, 55), (62, bare.upper(), 5)):
        source.add("consumers", id=id_, uuid=uuid, project_id=project, user_id=6, generation=1)
    hold(source, bare, 33, 71, 2)
    if not skips:
        with pytest.raises(Conflict, match="one consumer in two spellings") as refused:
            bring(source, copy)
        _, _, sql = str(refused.value).partition("SQL for the source:")
        for line in sql.strip().splitlines():
            source.run(line.strip().removesuffix(";"))
    report = bring(source, copy, skipped=tmp_path / "skipped")
    assert (report.skipped_rows, report.completed_consumers) == (2 if skips else 0, 0)
    assert_is_of(copy, OTHER, "blue", {POOL: {"CUSTOM_FPGA": 2}})
    assert changes(bring(source, copy, skipped=tmp_path / "again")) == {}


@pytest.mark.parametrize("is_bare", [True, False])
def test_a_record_says_the_owner_of_what_is_held_in_another_spelling(
    source: Incumbent, copy: str, *, is_bare: bool
):
    table, column = ("consumers", "uuid") if is_bare else ("allocations", "consumer_id")
    source.run(f"UPDATE {table} SET {column} = replace({column}, '-', '') WHERE {column} = '{VOLUME}'")
    leave_idle(source, OTHER.upper())
    report = bring(source, copy)
    assert (report.idle_consumers, report.completed_consumers) == (1, 0)
    assert_is_of(copy, VOLUME, "red", {CELL: {"VCPU": 2}})
    assert changes(bring(source, copy)) == {}


def assert_is_of(url: str, consumer: str, project: str, held: dict[str, dict[str, int]]) -> None:
    with application_at(url) as application:
        api = Client(application.test_client())
        assert api.used_by(consumer) == held
        assert api.get(f"/allocations/{consumer}").json["project_id"] == project
    assert faults(url) == []


def test_two_records_of_one_provider_have_to_be_corrected(source: Incumbent, copy: str, tmp_path: Path):
    source.add("resource_providers", id=40, uuid=HOST.replace("-", ""), name="again", root_provider_id=40)
    for skipped in (None, tmp_path / "skipped"):
        with pytest.raises(Conflict, match="one provider in two spellings of its uuid"):
            bring(source, copy, skipped=skipped)
    assert not (tmp_path / "skipped").exists()


def test_a_file_that_cannot_be_written_is_named(source: Incumbent, copy: str, tmp_path: Path):
    absent = tmp_path / "none" / "skipped"
    with pytest.raises(BadRequest, match=rf"^--skip-inconsistent: {absent}: No such file or directory"):
        bring(source, copy, skipped=absent)


def test_a_file_that_is_there_is_never_written(source: Incumbent, copy: str):
    """It may be anything, as the source itself."""
    database = Path(source.url.removeprefix("sqlite:///"))
    before = database.read_bytes()
    for there in (database, database.parent):
        with pytest.raises(
            BadRequest, match=rf"^--skip-inconsistent: {there}: exists already; name a new file"
        ):
            bring(source, copy, skipped=there)
    assert database.read_bytes() == before
    assert bring(source, copy).compared == {"providers": 3, "consumers": 2}


def test_the_command_says_what_is_not_as_in_the_source(source: Incumbent, copy: str, tmp_path: Path):
    belongs(source, 33, UPPER, LOWER)
    leave_idle(source, OTHER)
    hold(source, OTHER.replace("d", "e"), 99, 70, 1)
    refused = run("import", source.url, "--database", copy)
    assert refused.returncode == 1
    lines = refused.stderr.splitlines()
    assert "  rows of allocations have a resource_provider_id that does not exist: 99 (1 row)" in lines
    sql = "DELETE FROM allocations WHERE resource_provider_id NOT IN (SELECT id FROM resource_providers);"
    assert lines[lines.index("  SQL for the source:") + 1].strip() == sql
    file = tmp_path / "skipped.jsonl"
    stored = run("import", source.url, "--database", copy, "--skip-inconsistent", str(file))
    assert stored.returncode == 0, stored.stderr
    told = stored.stdout.splitlines()
    assert told[-6:] == [
        f"Rows that refer to nothing, left out or corrected: 1; {file} has them.",
        "Consumers that hold nothing, left out: 1.",
        "Uuids brought into canonical spelling: 1 aggregates.",
        "Aggregates merged with another spelling of their uuid: 1.",
        "Compared with the source and equal: 3 providers, 2 consumers.",
        "Stored.",
    ]
    assert json.loads(file.read_text())["row"]["resource_provider_id"] == 99
    assert run("db", "check", "--database", copy).stdout == "Everything holds.\n"


def test_a_name_with_nul_is_refused_where_postgresql_has_to_hold_it(source: Incumbent):
    source.run("UPDATE resource_providers SET name = 'po' || char(0) || 'ol' WHERE id = 33")
    with database_url("postgresql") as url:
        with pytest.raises(Conflict, match=rf"provider {POOL} \(po\\x00ol\): PostgreSQL holds no NUL"):
            bring(source, url)
        source.run("UPDATE resource_providers SET name = 'pool' WHERE id = 33")
        source.run("UPDATE projects SET external_id = 'r' || char(0)")
        with pytest.raises(Conflict, match=r"project r\\x00: PostgreSQL holds no NUL"):
            bring(source, url)


# Names that differ by case, where the incumbent's database compares as MySQL does.


@pytest.fixture
def mysql_like() -> Iterator[Incumbent]:
    """Empty tables of the incumbent that compare names without case."""
    with incumbent_database("sqlite") as made:
        for table, column in (("resource_providers", "name"), ("projects", "external_id")):
            (sql,) = made.rows(f"SELECT sql FROM sqlite_master WHERE name = '{table}'")[0]
            made.run(f"DROP TABLE {table}")
            first, rest = sql.split(f"{column} VARCHAR", 1)
            length, rest = rest.split(")", 1)
            made.run(f"{first}{column} VARCHAR{length}) COLLATE NOCASE{rest}")
        yield made


def named_alike(url: str) -> None:
    with application_at(url) as application:
        api = Client(application.test_client())
        api.provider("Compute-77")
        host = api.provider("compute-77", VCPU=4)
        api.provider("nodé-1")
        api.provider("node-1")
        for number, project in enumerate(("Red", "red")):
            consumer = OTHER[:-1] + str(number)
            assert api.claim({host: {"VCPU": 1}}, consumer, project_id=project).status_code == 204


@pytest.fixture(params=BACKENDS)
def ours(request: pytest.FixtureRequest) -> Iterator[str]:
    with database_url(request.param) as url:
        named_alike(url)
        yield url


def test_check_warns_of_names_that_mysql_calls_one(ours: str):
    told = run("db", "check", "--database", ours)
    assert told.returncode == 0
    assert "warning: providers 'Compute-77' (" in told.stdout
    assert "one name in MySQL and MariaDB; `placement export` to them is refused [" in told.stdout
    assert "warning: providers 'node-1' (" in told.stdout
    assert "warning: projects 'Red', 'red': " in told.stdout
    assert told.stdout.splitlines()[-1] == "0 errors, 3 warnings; 0 can be repaired with --repair."


def test_export_lists_them_before_it_writes(ours: str, mysql_like: Incumbent):
    refused = run("export", mysql_like.url, "--database", ours)
    assert (refused.returncode, refused.stdout) == (1, "")
    lines = refused.stderr.splitlines()
    assert [line for line in lines if "providers 'Compute-77' (" in line and "'compute-77' (" in line]
    assert [line for line in lines if "providers 'node-1' (" in line and "'nodé-1' (" in line]
    assert [line for line in lines if "projects 'Red', 'red': one name there" in line]
    assert "failed" not in refused.stderr
    assert mysql_like.rows("SELECT * FROM traits") == []


def test_names_that_were_changed_go_back(ours: str, mysql_like: Incumbent):
    """The project that nothing uses any more is in nobody's way."""
    with application_at(ours) as application:
        api = Client(application.test_client())
        for row in api.get("/resource_providers").json["resource_providers"]:
            if row["name"] in ("Compute-77", "nodé-1"):
                answer = api.put(f"/resource_providers/{row['uuid']}", {"name": f"{row['name']}-b"})
                assert answer.status_code == 200
        assert api.delete(f"/allocations/{OTHER[:-1]}0").status_code == 204
    assert run("db", "check", "--database", ours).stdout == "Everything holds.\n"
    assert run("export", mysql_like.url, "--database", ours).returncode == 0
    assert len(mysql_like.rows("SELECT * FROM resource_providers")) == 4
    assert mysql_like.rows("SELECT external_id FROM projects") == [("red",)]


def test_databases_that_tell_them_apart_take_them(ours: str):
    with incumbent_database("sqlite") as back:
        assert run("export", back.url, "--database", ours).returncode == 0
        assert len(back.rows("SELECT * FROM resource_providers")) == 4


def test_a_failure_of_the_other_database_names_that_one_alone(source: Incumbent, copy: str):
    bring(source, copy)
    with incumbent_database("sqlite") as back:
        back.run("CREATE TRIGGER odd BEFORE INSERT ON users BEGIN SELECT RAISE(ABORT, 'no users here'); END")
        refused = run("export", back.url, "--database", copy)
        assert refused.returncode == 1
        (line,) = [line for line in refused.stderr.splitlines() if "no users here" in line]
        file = back.url.removeprefix("sqlite:///")
        assert line == f"placement: The other database failed, file {file}: no users here"
