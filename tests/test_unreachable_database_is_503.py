"""A database that is away or overloaded gives 503 with the error shape, never a hang; it heals by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from werkzeug.test import TestResponse

from placement.sessions import Sessions
from placement.storage.backends.postgresql import PostgreSQL
from placement.storage.database import Attempts, Database
from placement.storage.failures import OutcomeUnknown
from tests.client import Client, detail
from tests.conftest import application_of
from tests.kubernetes import CLUSTER, cluster_of, pod_manifest
from tests.patience import eventually
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
            there = sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name")
            # They are gone a moment later.
            eventually([], lambda: connection.execute(there, {"name": name}).all())


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


def claim_for_one(api: Client, host: str) -> TestResponse:
    return api.claim({host: {"VCPU": 1}}, str(uuid4()))


def claim_for_several(api: Client, host: str) -> TestResponse:
    return api.post("/allocations", {str(uuid4()): Client.allocations({host: {"VCPU": 1}}) for _ in range(2)})


def place_pod(api: Client, _host: str) -> TestResponse:
    name = f"p{uuid4()}"
    return api.put(f"{CLUSTER}/pods/default/{name}", pod_manifest("1", name=name, uid=str(uuid4())))


@pytest.mark.parametrize("write", [claim_for_one, claim_for_several, place_pod])
def test_what_one_statement_writes_waits_for_a_database_that_restarts(
    postgresql: str, monkeypatch: pytest.MonkeyPatch, write: Callable[[Client, str], TestResponse]
):
    with serving(postgresql) as (_, api):
        host = api.provider("host", VCPU=8)
        cluster_of(api, "n1")
        # From now on the statement is the first thing that a write asks of the database.
        assert write(api, host).status_code in (201, 204)
        before = usage(postgresql)
        cut_off(postgresql, allow=False)
        monkeypatch.setattr(Attempts, "pause", lambda _: cut_off(postgresql, allow=True))
        answer = write(api, host)
        assert answer.status_code in (201, 204), answer.text
        assert usage(postgresql) == [2 * rows for rows in before]


def test_sessions_wait_for_a_database_that_restarts(postgresql: str, monkeypatch: pytest.MonkeyPatch):
    with serving(postgresql) as (database, _):
        monkeypatch.setattr(Attempts, "pause", lambda _: cut_off(postgresql, allow=True))
        sessions = Sessions(database)
        cut_off(postgresql, allow=False)
        cookie = sessions.begin("token", "user")
        assert sessions.token_of(cookie) == "token"
        cut_off(postgresql, allow=False)
        assert sessions.end(cookie) == "user"
        assert sessions.token_of(cookie) is None


def test_what_may_be_written_already_is_not_sent_again(postgresql: str, monkeypatch: pytest.MonkeyPatch):
    real, sent = PostgreSQL.claim_at_once, []

    def lost_afterwards(*given: Any) -> bool:
        sent.append(real(*given))
        raise OutcomeUnknown("lost while committing")

    with serving(postgresql) as (_, api):
        host = api.provider("host", VCPU=8)
        monkeypatch.setattr(PostgreSQL, "claim_at_once", lost_afterwards)
        answer = claim_for_one(api, host)
        assert (answer.status_code, sent) == (503, [True])
        assert "lost while committing" in answer.text
        assert usage(postgresql) == [1, 1]


def usage(url: str) -> list[int]:
    """How many allocations and records of them there are."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        return [
            connection.exec_driver_sql(f"SELECT count(*) FROM {counted}").scalar_one()
            for counted in ("allocations", "audit_records WHERE consumer_id IS NOT NULL")
        ]


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
