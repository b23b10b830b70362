"""Whatever ails the database is told as what it is, never as a fault of ours, and over when it is over."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg2
import pytest

from tests.faults.cluster import Cluster, cluster, directory_for_servers, standby
from tests.faults.ledger import await_recovery, claim_body, make_providers, stored_use, storm, violations
from tests.server import database_url, running_service
from tests.service import Answer, Service

_SEARCH = "/allocation_candidates?resources=VCPU:1&limit=5"
_PATIENCE_SECONDS = 60


@pytest.fixture
def postgresql() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


def claim(service: Service, provider: str) -> Answer:
    return service.call("PUT", f"/allocations/{uuid.uuid4()}", claim_body(provider))


def test_a_server_that_is_read_only(postgresql: Cluster):
    with running_service(postgresql.url(), workers=1) as server:
        service = Service(server.url)
        (provider,) = make_providers(service, 1)
        assert claim(service, provider).status == 204
        postgresql.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        postgresql.execute("SELECT pg_reload_conf()")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (answer := claim(service, provider)).status == 204:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert answer.status == 503
        assert "read-only" in str(answer.body)
        assert service.call("GET", _SEARCH).status == 200
        lines = [line for line in server.log.read_text().splitlines() if "read-only" in line]
        assert any(f"port {postgresql.port}, database placement, user placement" in line for line in lines)
        connection = postgresql.connected("postgres")
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = off")
            cursor.execute("ALTER SYSTEM RESET default_transaction_read_only")
            cursor.execute("SELECT pg_reload_conf()")
        connection.close()
        await_recovery([service], provider)


def test_several_hosts_in_one_url_survive_a_failover(postgresql: Cluster):
    with standby(postgresql) as replica:
        hosts = f"127.0.0.1:{replica.port},127.0.0.1:{postgresql.port}"
        url = f"postgresql://placement@{hosts}/placement?target_session_attrs=read-write"
        with running_service(url, workers=2) as server:
            service = Service(server.url)
            providers = make_providers(service, 3)
            with storm([server.url], providers, clients=8) as ledger:
                time.sleep(2)
                # Nothing is lost if the replica has heard all; what is in flight is uncertain anyway.
                postgresql.stop("fast")
                time.sleep(1)
                replica.promote()
                time.sleep(2)
            await_recovery([service], providers[0])
            assert ledger.faults() == 0, ledger.statuses
            assert violations(service, providers, ledger) == []


def test_connections_exhausted(postgresql: Cluster):
    with running_service(postgresql.url(), workers=2) as server:
        service = Service(server.url)
        providers = make_providers(service, 3)
        taken: list[psycopg2.extensions.connection] = []
        with storm([server.url], providers, clients=24) as ledger:
            end = time.monotonic() + 5
            while time.monotonic() < end:
                try:
                    taken.append(psycopg2.connect(postgresql.url("postgres")))
                except psycopg2.OperationalError:
                    # What the service gives back from now on somebody else takes.
                    time.sleep(0.05)
        for connection in taken:
            connection.close()
        await_recovery([service], providers[0])
        assert ledger.faults() == 0, ledger.statuses
        assert violations(service, providers, ledger) == []


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A file system of its own with so much room; only root can mount one."""
    with directory_for_servers() as place:
        options = f"size={megabytes}m,mode=0777"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("no mount here")
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        try:
            yield place
        finally:
            subprocess.run(["umount", "-l", str(place)], check=False)


def fill(path: Path, step: int) -> None:
    """Write a file until there is no room left."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(b"x" * step):
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_disk_that_is_full_under_postgresql():
    with small_disk(400) as disk, cluster(directory=disk, settings={"max_wal_size": "64MB"}) as postgresql:  # noqa: SIM117
        with running_service(postgresql.url(), workers=1) as server:
            service = Service(server.url)
            (provider,) = make_providers(service, 1)
            held = str(uuid.uuid4())
            service.must("PUT", f"/allocations/{held}", claim_body(provider))
            postgresql.execute("CREATE DATABASE filler")
            filler = disk / "filler"
            fill(filler, 2**20)
            statuses = set()
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while 503 not in statuses and time.monotonic() < deadline:
                body = {"name": str(uuid.uuid4()) * 5, "uuid": str(uuid.uuid4())}
                answer = service.call("POST", "/resource_providers", body)
                statuses.add(answer.status)
            assert statuses <= {200, 503}, statuses
            assert 503 in statuses
            filler.unlink()
            # The server itself ends if it has no room for its log; somebody starts it again.
            if postgresql.run("pg_ctl", "-D", str(postgresql.data), "status", check=False).returncode:
                postgresql.start()
            await_recovery([service], provider)
            assert stored_use(service, [provider]) == {provider: 1}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_disk_that_is_full_under_sqlite():
    with small_disk(8) as disk:
        url = f"sqlite:///{disk}/placement.sqlite"
        with running_service(url, workers=1) as server:
            service = Service(server.url)
            (provider,) = make_providers(service, 1)
            filler = disk / "filler"
            fill(filler, 2**14)
            answers = [claim(service, provider) for _ in range(60)]
            refused = [answer for answer in answers if answer.status != 204]
            assert {answer.status for answer in refused} == {503}
            assert "full" in str(refused[-1].body)
            assert "full" in server.log.read_text()
            filler.unlink()
            await_recovery([service], provider)


def test_a_sqlite_file_locked_by_another_program_stalls_no_reads_for_good():
    environment = {"OS_API__REQUEST_TIMEOUT": "4"}
    with database_url("sqlite") as url, running_service(url, workers=1, environment=environment) as server:
        service = Service(server.url)
        (provider,) = make_providers(service, 1)
        other = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        statuses: list[int] = []
        writers = [
            threading.Thread(target=lambda: statuses.append(claim(service, provider).status))
            for _ in range(48)
        ]
        for thread in writers:
            thread.start()
        # While they wait, and though the lock is never let go.
        assert service.call("GET", "/resource_providers").status == 200
        for thread in writers:
            thread.join(120)
        assert statuses == [503] * 48
        other.execute("ROLLBACK")
        other.close()
        await_recovery([service], provider)
        assert stored_use(service, [provider]) == {provider: 0}
