"""/livez, /readyz and /healthcheck: each check by its name, no token, in the formats that probes know."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
import webob
from oslo_config import cfg
from oslo_middleware.healthcheck import Healthcheck

from placement.common import probes
from placement.common.probes import Check
from placement.health import FOREST, SCHEMA, WRITABLE, Health
from placement.http.middleware import REQUEST_ID
from placement.http.registry import registry_of
from tests.hostile import Wire
from tests.patience import eventually
from tests.probes import is_ready, probed
from tests.server import RunningServer, database_url, running_service
from tests.service import Service

_ACCEPTED = ["", "*/*", "text/plain", "application/json", "text/*;q=0.3, application/json", "image/png"]


@pytest.fixture(scope="module")
def on_postgresql() -> Iterator[tuple[RunningServer, str]]:
    """A service and its database, which the tests of this module share: each leaves them ready."""
    with database_url("postgresql") as url, running_service(url, workers=1) as server:
        yield server, url


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[tuple[RunningServer, Path]]:
    """A service and the file of its database."""
    file = tmp_path / "placement.sqlite"
    with running_service(f"sqlite:///{file}", workers=1) as server:
        yield server, file


def says_that_it_works(server: RunningServer) -> None:
    # Tokens are asked for, but not here.
    url = server.url
    eventually(True, lambda: is_ready(url))
    assert probed(url, "/livez") == (200, "ok")
    assert probed(url, "/livez?verbose") == (200, "[+]ping ok\nlivez check passed\n")
    assert probed(url, "/readyz") == (200, "ok")
    status, said = probed(url, "/readyz?verbose")
    assert status == 200
    schema, writable, forest, end = said.splitlines()
    assert schema.startswith(f"[+]{SCHEMA} ok: 0")
    assert writable == f"[+]{WRITABLE} ok: it takes writes"
    assert forest.startswith(f"[+]{FOREST} ok: 0 providers, ")
    assert forest.endswith("s ago")
    assert end == "readyz check passed"
    assert probed(url, "/healthcheck") == (200, "OK")
    assert probed(url, "/healthcheck", Accept="text/plain;q=1.2.3") == (200, "OK")
    assert probed(url, "/healthcheck", "HEAD") == (204, "")
    assert probed(url, "/readyz", "HEAD") == (200, "")


def test_a_service_that_works_says_so_by_every_name(on_postgresql: tuple[RunningServer, str]):
    says_that_it_works(on_postgresql[0])


def test_probes_need_no_thread_that_others_may_occupy(on_postgresql: tuple[RunningServer, str]):
    """The event loop answers them by itself: what passes a thread has the id of a request."""

    def named(path: str) -> bool:
        with Wire(on_postgresql[0].url) as wire:
            return REQUEST_ID in wire.get(path).answer().headers

    assert named("/")
    assert not any(named(path) for path in ("/livez", "/readyz", "/healthcheck"))


def test_a_database_that_takes_no_writes_makes_unready_by_its_name(on_postgresql: tuple[RunningServer, str]):
    server, url = on_postgresql
    eventually(True, lambda: is_ready(server.url))
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    name = sa.make_url(url).database
    others = "FROM pg_stat_activity WHERE datname = :name AND pid <> pg_backend_pid()"
    end = f"SELECT pg_terminate_backend(pid) {others}"
    with engine.connect() as connection:
        connection.execute(sa.text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
        connection.execute(sa.text(end), {"name": name})
    eventually(False, lambda: is_ready(server.url))
    status, said = probed(server.url, "/readyz")
    assert status == 503
    assert f"[-]{WRITABLE} failed" in said
    assert "readyz check failed" in said
    assert probed(server.url, "/livez") == (200, "ok")
    assert probed(server.url, "/healthcheck")[0] == 503
    with engine.connect() as connection:
        connection.execute(sa.text("SET default_transaction_read_only = off"))
        connection.execute(sa.text(f"ALTER DATABASE {name} RESET default_transaction_read_only"))
    engine.dispose()
    eventually(True, lambda: is_ready(server.url))


_REFUSING = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not extend file' USING ERRCODE = '{state}';
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON resource_providers FOR EACH STATEMENT EXECUTE FUNCTION refuse();
"""
_TAKING = "DROP TRIGGER refuse ON resource_providers; DROP FUNCTION refuse()"


@pytest.mark.parametrize(("state", "said"), [("53100", "is full"), ("25006", "is read-only")])
def test_a_write_that_the_database_has_no_room_for_makes_unready(
    on_postgresql: tuple[RunningServer, str], state: str, said: str
):
    """PostgreSQL says that it takes writes, until one needs more of the disk."""
    server, database = on_postgresql
    engine = sa.create_engine(database, isolation_level="AUTOCOMMIT")
    service = Service(server.url)

    def create() -> int:
        return service.call("POST", "/resource_providers", {"name": str(uuid.uuid4())}).status

    with engine.connect() as connection:
        eventually(True, lambda: is_ready(server.url))
        connection.exec_driver_sql(_REFUSING.format(state=state))
        try:
            assert create() == 503
            status, checks = probed(server.url, "/readyz")
            assert status == 503
            assert f"[-]{WRITABLE} failed: The database {said}" in checks
            # Without another write it is tried again.
            eventually(True, lambda: is_ready(server.url))
            assert create() == 503
            assert not is_ready(server.url)
        finally:
            connection.exec_driver_sql(_TAKING)
        assert create() == 200
        assert is_ready(server.url)
    engine.dispose()


def test_a_schema_that_is_too_old_or_a_file_that_is_gone_makes_unready(on_sqlite: tuple[RunningServer, Path]):
    server, file = on_sqlite
    says_that_it_works(server)
    with sqlite3.connect(file) as connection:
        ((newest,),) = connection.execute("SELECT version_num FROM alembic_version")
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    eventually(False, lambda: is_ready(server.url))
    assert f"[-]{SCHEMA} failed: 0001, this release needs {newest}" in probed(server.url, "/readyz")[1]
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'of_the_next_release'")
    eventually(True, lambda: is_ready(server.url))
    file.unlink()
    eventually(False, lambda: is_ready(server.url))
    assert probed(server.url, "/livez") == (200, "ok")


def test_a_database_that_falls_silent_is_noticed_though_nobody_is_waited_for(
    on_postgresql: tuple[RunningServer, str],
):
    server, url = on_postgresql
    eventually(True, lambda: is_ready(server.url))
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        # A lock on what every look reads: the server is there, and does not answer.
        connection.execute(sa.text("LOCK TABLE alembic_version, resource_providers IN ACCESS EXCLUSIVE MODE"))
        eventually(False, lambda: is_ready(server.url))
        assert probed(server.url, "/livez") == (200, "ok")
    engine.dispose()
    eventually(True, lambda: is_ready(server.url))


@pytest.mark.parametrize("accept", _ACCEPTED)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("healthy", [True, False])
def test_healthcheck_is_answered_as_oslo_middleware_does(
    tmp_path: Path, accept: str, method: str, healthy: bool
):
    file = tmp_path / "disabled"
    if not healthy:
        file.touch()
    configuration = cfg.ConfigOpts()
    configuration([])
    options = {
        "backends": ["disable_by_file"],
        "disable_by_file_path": str(file),
        "oslo_config_config": configuration,
    }
    request = webob.Request.blank("/healthcheck", method=method)
    if accept:
        request.headers["Accept"] = accept
    theirs = request.get_response(Healthcheck(None, options))
    reason = "DISABLED BY FILE"
    ours = probes.answer(method, "/healthcheck", "", accept, lambda: [Check("file", healthy, reason)])
    said = theirs.text.replace(reason, f"file: {reason}")
    assert ours.status == theirs.status_code
    # What has no content has no type of it.
    assert ours.content_type == theirs.content_type or ours.status == 204
    assert ours.body == said
    assert ours.headers.get("Content-Length") == (str(len(said)) if said else None)


@pytest.mark.one_database
def test_other_servers_answer_probes_with_the_same_application(http):
    assert http.get("/livez").text == "ok"
    assert http.get("/livez").status_code == 200
    assert http.get("/livez").headers["Cache-Control"] == "no-store"
    answer = http.get("/readyz")
    assert answer.status_code == 503
    assert f"[-]{SCHEMA} failed: not looked at yet" in answer.text
    assert http.head("/healthcheck").status_code == 503
    assert http.post("/healthcheck").status_code in (401, 405)
    registry_of(http.application)[Health].look()
    assert http.get("/readyz").text == "ok"
