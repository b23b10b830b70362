"""/livez, /readyz and /healthcheck: each check by its name, no token, in the formats that probes know."""

from __future__ import annotations

import os
import sqlite3
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import sqlalchemy as sa
import webob
from oslo_config import cfg
from oslo_middleware.healthcheck import Healthcheck

from placement.services.health import probes
from placement.services.health.checks import FOREST, SCHEMA, WRITABLE
from placement.services.health.probes import Check
from tests.patience import PATIENCE_SECONDS, eventually
from tests.server import BACKENDS, RunningServer, database_url, running_service

_ACCEPTED = ["", "*/*", "text/plain", "application/json", "text/*;q=0.3, application/json", "image/png"]


def probed(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """Status and text of an answer, asked without any token."""
    request = urllib.request.Request(url + path, method=method, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def is_ready(server: RunningServer) -> bool:
    return probed(server.url, "/readyz")[0] == 200


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_service_that_works_says_so_by_every_name(backend: str):
    # Tokens are asked for, but not here.
    with database_url(backend) as url, running_service(url, workers=1) as server:
        eventually(True, lambda: is_ready(server))
        assert probed(server.url, "/livez") == (200, "ok")
        assert probed(server.url, "/livez?verbose") == (200, "[+]ping ok\nlivez check passed\n")
        assert probed(server.url, "/readyz") == (200, "ok")
        status, said = probed(server.url, "/readyz?verbose")
        assert status == 200
        schema, writable, forest, end = said.splitlines()
        assert schema.startswith(f"[+]{SCHEMA} ok: 0")
        assert writable == f"[+]{WRITABLE} ok: it takes writes"
        assert forest.startswith(f"[+]{FOREST} ok: 0 providers, ")
        assert forest.endswith("s behind")
        assert end == "readyz check passed"
        assert probed(server.url, "/healthcheck") == (200, "OK")
        assert probed(server.url, "/healthcheck", Accept="text/plain;q=1.2.3") == (200, "OK")
        assert probed(server.url, "/healthcheck", "HEAD") == (204, "")
        assert probed(server.url, "/readyz", "HEAD") == (200, "")


def test_a_database_that_takes_no_writes_makes_unready_by_its_name():
    with database_url("postgresql") as url, running_service(url, workers=1) as server:
        eventually(True, lambda: is_ready(server))
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        name = sa.make_url(url).database
        others = "FROM pg_stat_activity WHERE datname = :name AND pid <> pg_backend_pid()"
        end = f"SELECT pg_terminate_backend(pid) {others}"
        with engine.connect() as connection:
            connection.execute(sa.text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
            connection.execute(sa.text(end), {"name": name})
        eventually(False, lambda: is_ready(server))
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
        eventually(True, lambda: is_ready(server))


def test_a_schema_that_is_too_old_or_a_file_that_is_gone_makes_unready(tmp_path: Path):
    file = tmp_path / "placement.sqlite"
    with running_service(f"sqlite:///{file}", workers=1) as server:
        eventually(True, lambda: is_ready(server))
        with sqlite3.connect(file) as connection:
            ((newest,),) = connection.execute("SELECT version_num FROM alembic_version")
            connection.execute("UPDATE alembic_version SET version_num = '0001'")
        eventually(False, lambda: is_ready(server))
        assert f"[-]{SCHEMA} failed: 0001, this release needs {newest}" in probed(server.url, "/readyz")[1]
        with sqlite3.connect(file) as connection:
            connection.execute("UPDATE alembic_version SET version_num = 'of_the_next_release'")
        eventually(True, lambda: is_ready(server))
        file.unlink()
        eventually(False, lambda: is_ready(server))
        assert probed(server.url, "/livez") == (200, "ok")


def test_a_database_that_falls_silent_is_noticed_though_nobody_is_waited_for():
    with database_url("postgresql") as url, running_service(url, workers=1) as server:
        eventually(True, lambda: is_ready(server))
        engine = sa.create_engine(url)
        with engine.connect() as connection:
            # A lock on what every look reads: the server is there, and does not answer.
            connection.execute(
                sa.text("LOCK TABLE alembic_version, resource_providers IN ACCESS EXCLUSIVE MODE")
            )
            eventually(False, lambda: is_ready(server))
            assert probed(server.url, "/livez") == (200, "ok")
        engine.dispose()
        eventually(True, lambda: is_ready(server))


def test_probes_are_answered_while_no_thread_is_free(tmp_path: Path):
    with running_service(f"sqlite:///{tmp_path}/placement.sqlite", workers=1) as server:
        eventually(True, lambda: is_ready(server))
        (worker,) = server.workers()
        threads = {
            Path(f"/proc/{worker}/task/{task}/comm").read_text()
            for task in os.listdir(f"/proc/{worker}/task")
        }
        assert probed(server.url, "/readyz") == (200, "ok")
        # Threads of lanes start with the first request that needs one.
        again = {
            Path(f"/proc/{worker}/task/{task}/comm").read_text()
            for task in os.listdir(f"/proc/{worker}/task")
        }
        assert threads == again


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


def test_other_servers_answer_probes_with_the_same_application(http):
    assert http.get("/livez").text == "ok"
    assert http.get("/livez").status_code == 200
    assert http.get("/livez").headers["Cache-Control"] == "no-store"
    answer = http.get("/readyz")
    assert answer.status_code == 503
    assert f"[-]{SCHEMA} failed: not looked at yet" in answer.text
    assert http.head("/healthcheck").status_code == 503
    assert http.post("/healthcheck").status_code in (401, 405)
    http.application.extensions["placement_use_cases"].health.look()
    assert http.get("/readyz").text == "ok"
