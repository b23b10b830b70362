"""An upgrade takes effect while the release before serves: from every schema that there was.

The writers lock the tables in the order in which releases did: pods hold clusters and providers and then
read pods; claims hold consumers and providers; imports hold clusters, nodes and providers.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import alembic.script
import psycopg2
import psycopg2.errors
import pytest

from placement.engine.domain.errors import Unavailable
from placement.storage import schema
from placement.storage.database import Database
from tests.patience import PATIENCE_SECONDS, eventually
from tests.server import database_url

_CLIENTS = 12
# Only what the first schema had is named: all releases had it.
_THERE = """
INSERT INTO placement_aggregates (uuid) VALUES ('a');
INSERT INTO clusters (name, uuid, aggregate_id, settings)
    SELECT 'edge', 'c', id, '{}' FROM placement_aggregates;
INSERT INTO projects (external_id) VALUES ('p');
INSERT INTO users (external_id) VALUES ('u');
INSERT INTO resource_providers (uuid, name, revision)
    SELECT number, number, pg_current_xact_id() FROM generate_series(1, 4) AS number;
INSERT INTO nodes (cluster_id, name, resource_provider_id, manifest)
    SELECT clusters.id, provider.name, provider.id, '{}' FROM clusters, resource_providers AS provider;
"""
_LOCK_CLUSTER = "SELECT id FROM clusters WHERE name = 'edge' FOR KEY SHARE"
_LOCK_PROVIDER = "SELECT id FROM resource_providers WHERE uuid = %(provider)s FOR UPDATE"
_STAMP = """
UPDATE resource_providers SET generation = generation + 1, revision = pg_current_xact_id()
 WHERE uuid = %(provider)s
"""
_READ_PODS = "SELECT count(*) FROM pods JOIN nodes ON nodes.id = pods.node_id"
_CREATE = """
INSERT INTO consumers (uuid, project_id, user_id)
SELECT %(consumer)s, projects.id, users.id FROM projects, users
"""
_RELEASE = "DELETE FROM consumers WHERE uuid = %(consumer)s"
_POD = (
    _LOCK_CLUSTER,
    _LOCK_PROVIDER,
    _READ_PODS,
    _CREATE,
    "INSERT INTO pods (cluster_id, node_id, namespace, name, uid, manifest) "
    "SELECT cluster_id, id, 'n', %(consumer)s, %(consumer)s, '{}' FROM nodes WHERE name = %(provider)s",
    _STAMP,
    "DELETE FROM pods WHERE uid = %(consumer)s",
    _RELEASE,
)
_CLAIM = (_CREATE, _LOCK_PROVIDER, _STAMP, _RELEASE)
_IMPORT = (
    "SELECT id FROM clusters WHERE name = 'edge' FOR UPDATE",
    "SELECT id FROM nodes WHERE name = %(provider)s FOR UPDATE",
    _LOCK_PROVIDER,
    _READ_PODS,
    _STAMP,
)
_KINDS = (_POD, _POD, _CLAIM, _IMPORT)


def _versions() -> list[str]:
    script = alembic.script.ScriptDirectory.from_config(schema.configuration(Database("sqlite://")))
    return [known.revision for known in reversed(list(script.walk_revisions()))]


class Writers:
    """Clients of the release before, each of which repeats what the database could not finish."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_over = threading.Event()
        self.done = 0
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(_CLIENTS)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        self.go_on()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)

    def go_on(self) -> None:
        """Wait until each had time for some transactions from now on."""
        wanted = self.done + 5 * _CLIENTS
        eventually(True, lambda: bool(self.errors) or self.done >= wanted)

    def _run(self, seed: int) -> None:
        dice = random.Random(seed)
        try:
            # Whichever waits too long for another is refused: with this it is the upgrade.
            connection = psycopg2.connect(self._url, options="-c deadlock_timeout=60s")
            while not self._is_over.is_set():
                try:
                    self._write(connection, dice)
                except psycopg2.errors.DeadlockDetected:
                    connection.rollback()
            connection.close()
        except Exception as error:
            self.errors.append(error)

    def _write(self, connection: psycopg2.extensions.connection, dice: random.Random) -> None:
        given = {"provider": str(dice.randint(1, 4)), "consumer": str(uuid.uuid4())}
        with connection.cursor() as cursor:
            for statement in dice.choice(_KINDS):
                cursor.execute(statement, given)
        connection.commit()
        self.done += 1


@contextmanager
def at_version(version: str) -> Iterator[tuple[Database, str]]:
    """A database of an earlier schema, with something in it; beside it its URL."""
    with database_url("postgresql", migrated=False) as url:
        database = Database(url)
        schema.upgrade(database, version)
        with database.write() as transaction:
            for statement in _THERE.strip().split(";\n"):
                transaction.connection.exec_driver_sql(statement)
        yield database, url.replace("postgresql+psycopg2:", "postgresql:")
        database.dispose()


@pytest.mark.parametrize("version", _versions()[:-1])
def test_an_upgrade_takes_effect_beside_writers(version: str):
    told: list[str] = []
    with at_version(version) as (database, url), Writers(url) as writers:
        schema.upgrade(database, tell=told.append)
        writers.go_on()
        assert writers.errors == []
        assert schema.version(database) == schema.newest(database)
    took_effect = [line.split()[1] for line in told if line.endswith("took effect")]
    assert took_effect == [later for later in _versions() if later > version]


class Writer:
    """A transaction of the release before that goes on when it is told to."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg2.connect(url)
        self.cursor = self.connection.cursor()

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.cursor.execute(statement, {"provider": "1"})


def _waits_for_table(url: str, table: str) -> bool:
    """Whether an upgrade waits for all who use a table."""
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' "
            "AND relation = to_regclass(%s)",
            (table,),
        )
        row = cursor.fetchone()
    connection.close()
    return bool(row and row[0])


def test_a_writer_that_an_upgrade_waits_for_is_not_kept_from_what_was_changed_before():
    """Such a writer and an upgrade that keeps all its locks wait for each other."""
    with at_version("0001") as (database, url):
        writer = Writer(url)
        writer.run(_LOCK_CLUSTER)
        upgrading = threading.Thread(target=schema.upgrade, args=(database,))
        upgrading.start()
        try:
            eventually(True, lambda: _waits_for_table(url, "clusters"))
            writer.run("SET LOCAL lock_timeout = '20s'", _READ_PODS)
        finally:
            writer.connection.close()
            upgrading.join(PATIENCE_SECONDS)
        assert schema.version(database) == schema.newest(database)


def test_an_upgrade_that_gives_up_says_what_waits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schema, "_PATIENCE_SECONDS", 0.0)
    told: list[str] = []
    with at_version("0001") as (database, url):
        writer = Writer(url)
        writer.run(_LOCK_CLUSTER)
        with pytest.raises(Unavailable) as raised:
            schema.upgrade(database, tell=told.append)
        assert "migration 0006" in str(raised.value)
        assert f"Not done: migrations {_listed(_versions()[5:])}." in str(raised.value)
        assert told == [f"migration {done} took effect" for done in ("0002", "0003", "0004", "0005")]
        assert schema.version(database) == "0005"
        writer.connection.close()
        schema.upgrade(database)
        assert schema.version(database) == schema.newest(database)


def _listed(versions: Sequence[str]) -> str:
    return ", ".join(versions)
