"""A database that is away or overloaded gives 503 with the error shape, never a hang; it heals by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from placement.storage.database import Database
from tests.client import Client, detail
from tests.conftest import application_of
from tests.server import database_url, postgresql_server


@contextmanager
def serving(url: str, **pool: int) -> Iterator[tuple[Database, Client]]:
    """A database with these options, and a service on it."""
    database = Database(url, **pool)
    with application_of(database) as application:
        yield database, Client(application.test_client())
    database.dispose()


@pytest.fixture
def postgresql() -> Iterator[str]:
    with database_url("postgresql") as url:
        yield url


def cut_off(url: str, allow: bool) -> None:
    """Let nobody connect any more, ending those that are; or let them again."""
    name = sa.make_url(url).database
    engine = sa.create_engine(postgresql_server(), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.execute(sa.text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {allow}"))
        if not allow:
            connection.execute(
                sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"),
                {"name": name},
            )


def test_reads_searches_and_writes_answer_503_and_recover(postgresql):
    with serving(postgresql) as (_, api):
        host = api.provider("host", VCPU=4)
        search = "/allocation_candidates?resources=VCPU:1"
        assert api.get(search).status_code == 200
        cut_off(postgresql, allow=False)
        for answer in (
            api.get(f"/resource_providers/{host}"),
            api.get(search),
            api.put("/traits/CUSTOM_X"),
            api.claim({host: {"VCPU": 1}}),
        ):
            assert answer.status_code == 503
            assert "database" in detail(answer)
        cut_off(postgresql, allow=True)
        assert api.get(search).status_code == 200
        assert api.claim({host: {"VCPU": 1}}).status_code == 204


def test_a_server_that_does_not_exist_is_503():
    with serving("postgresql://nobody@127.0.0.1:1/none") as (_, api):
        assert api.get("/allocation_candidates?resources=VCPU:1").status_code == 503
        assert api.get("/").status_code == 200


def test_an_exhausted_pool_is_503(postgresql):
    with serving(postgresql, pool_size=1, max_overflow=0, pool_timeout=1) as (database, api):
        with database.read():
            answer = api.get("/resource_providers")
        assert answer.status_code == 503
        assert "overloaded" in detail(answer)


def test_a_connection_that_the_driver_closed_is_replaced(postgresql):
    with serving(postgresql, pool_size=1, max_overflow=0) as (database, api):
        assert api.get("/resource_providers").status_code == 200
        with database.read() as connection:
            driver_connection = connection.connection.dbapi_connection
        driver_connection.close()
        assert api.get("/resource_providers").status_code == 200
        assert api.put("/traits/CUSTOM_X").status_code == 201
