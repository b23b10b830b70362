"""After a crash, a promotion or a restore searches show what is stored, also if stamps are used again."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.cluster import Cluster, cluster, standby
from tests.faults.ledger import (
    await_recovery,
    claim_body,
    make_providers,
    shown_use,
    stored_use,
    storm,
    violations,
)
from tests.faults.relay import relay_to
from tests.server import RunningServer, database_url, running_service
from tests.service import Service

_PATIENCE_SECONDS = 60


@pytest.fixture
def postgresql() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


def claim(service: Service, provider: str, amount: int = 1) -> str:
    """Claim for a new consumer, and for another one where the database was away."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        consumer = str(uuid.uuid4())
        answer = service.call("PUT", f"/allocations/{consumer}", claim_body(provider, amount))
        if answer.status == 204:
            return consumer
        assert answer.status == 503, answer
        assert time.monotonic() < deadline
        time.sleep(0.1)


def await_answer(service: Service) -> None:
    """Wait until something that touches the database but not the forest works again."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while service.call("GET", "/resource_classes").status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def overtake(postgresql: Cluster, transactions: int = 300) -> None:
    """Use up transaction ids, as other writers do."""
    for _ in range(3):
        postgresql.execute(
            f"DO $$ BEGIN FOR i IN 1..{transactions} LOOP "
            "PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
        )


def test_a_crash_after_which_ids_are_used_again(postgresql: Cluster):
    """Ids of refused claims are not flushed: after the crash others get them, below what was seen."""
    with running_service(postgresql.url(), workers=1) as server:
        service = Service(server.url)
        providers = make_providers(service, 3, vcpus=100)
        for _ in range(2):
            for _ in range(30):
                refused = service.call(
                    "PUT", f"/allocations/{uuid.uuid4()}", claim_body(providers[0], 10_000)
                )
                assert refused.status == 409
            shown_use(service)
            postgresql.kill()
            postgresql.start()
            # Written elsewhere, with the ids of those that were refused; then others overtake.
            await_answer(service)
            claim(service, providers[1], 3)
            overtake(postgresql)
            claim(service, providers[2])
            assert shown_use(service) == stored_use(service, providers)


def test_a_backend_killed_under_a_postmaster_that_goes_on(postgresql: Cluster):
    """The server recovers as after a crash, though it was never restarted."""
    with running_service(postgresql.url(), workers=1) as server:
        service = Service(server.url)
        providers = make_providers(service, 2, vcpus=100)
        for _ in range(30):
            service.call("PUT", f"/allocations/{uuid.uuid4()}", claim_body(providers[0], 10_000))
        shown_use(service)
        (row,) = postgresql.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = 'placement' LIMIT 1", database="postgres"
        )
        os.kill(int(str(row[0])), signal.SIGKILL)
        await_answer(service)
        claim(service, providers[1], 3)
        overtake(postgresql)
        assert shown_use(service) == stored_use(service, providers)
        assert "nothing known before counts" in server.log.read_text()


def test_a_lost_connection_alone_makes_nobody_load_again(postgresql: Cluster):
    with running_service(postgresql.url(), workers=1) as server:
        service = Service(server.url)
        providers = make_providers(service, 2)
        shown_use(service)
        postgresql.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = 'placement' AND pid <> pg_backend_pid()"
        )
        claim(service, providers[0])
        assert shown_use(service) == stored_use(service, providers)
        assert "nothing known before counts" not in server.log.read_text()


def test_an_asynchronous_replica_promoted_and_overtaken(postgresql: Cluster):
    """Claims that never reached the replica are gone; others pass their stamps before anybody searches."""
    with standby(postgresql) as replica, relay_to(postgresql.port) as relay:  # noqa: SIM117
        with running_service(postgresql.url(port=relay.port), workers=1) as server:
            service = Service(server.url)
            providers = make_providers(service, 3)
            claim(service, providers[0])
            await_replay(postgresql, replica)
            stop_following(replica)
            for _ in range(15):
                claim(service, providers[0])
            assert shown_use(service)[providers[0]] == 16
            postgresql.stop("immediate")
            replica.promote()
            overtake(replica)
            relay.lead_to(replica.port)
            await_answer(service)
            claim(service, providers[1])
            assert stored_use(service, providers)[providers[0]] == 1
            assert shown_use(service) == stored_use(service, providers)


def test_a_replica_promoted_while_the_old_server_runs_on(postgresql: Cluster):
    """A name or an address moves to it. Whoever connects anew shows it, and nobody searches the old one."""
    with standby(postgresql) as replica, relay_to(postgresql.port) as relay:  # noqa: SIM117
        with running_service(postgresql.url(port=relay.port), workers=1) as server:
            service = Service(server.url)
            providers = make_providers(service, 3)
            claim(service, providers[0])
            assert shown_use(service)[providers[0]] == 1
            # So that its last statement is a look.
            shown_use(service)
            await_replay(postgresql, replica)
            replica.promote()
            relay.lead_new_to(replica.port)
            # Only what lies in the pool is lost; what searches look over is kept.
            postgresql.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = 'placement' AND query NOT LIKE 'EXECUTE placement_look%'"
            )
            await_answer(service)
            claim(service, providers[1], 3)
            assert stored_use(service, providers)[providers[1]] == 3
            assert shown_use(service) == stored_use(service, providers)


def await_replay(primary: Cluster, replica: Cluster) -> None:
    ((target,),) = primary.execute("SELECT pg_current_wal_lsn()::text")
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while replica.execute(f"SELECT pg_last_wal_replay_lsn() >= '{target}'") != [(True,)]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def stop_following(replica: Cluster) -> None:
    """From now on the replica hears nothing of its primary any more."""
    replica.execute("ALTER SYSTEM SET primary_conninfo = ''")
    replica.execute("SELECT pg_reload_conf()")
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while replica.execute("SELECT pid FROM pg_stat_wal_receiver"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_another_database_behind_the_same_url(postgresql: Cluster):
    with running_service(postgresql.url(), workers=1) as server:
        service = Service(server.url)
        providers = make_providers(service, 2)
        postgresql.execute("CREATE DATABASE other")
        shown_use(service)
        dump = postgresql.directory / "dump"
        postgresql.run("pg_dump", "-Fc", "-f", str(dump), postgresql.url())
        postgresql.run("pg_restore", "-d", postgresql.url("other"), str(dump))
        for _ in range(3):
            claim(service, providers[0])
        assert shown_use(service)[providers[0]] == 3
        postgresql.execute("ALTER DATABASE placement ALLOW_CONNECTIONS false")
        postgresql.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'placement'"
        )
        postgresql.execute("ALTER DATABASE placement RENAME TO gone")
        postgresql.execute("ALTER DATABASE other RENAME TO placement")
        await_answer(service)
        assert shown_use(service) == stored_use(service, providers) == dict.fromkeys(providers, 0)
        claim(service, providers[1])
        assert shown_use(service) == stored_use(service, providers)


def test_two_services_while_workers_and_the_server_are_killed(postgresql: Cluster):
    with (
        running_service(postgresql.url(), workers=2) as one,
        running_service(postgresql.url(), workers=2) as two,
    ):
        services = [Service(one.url), Service(two.url)]
        providers = make_providers(services[0], 4)
        with storm([one.url, two.url], providers) as ledger:
            for number in range(6):
                time.sleep(1.5)
                if number % 2:
                    postgresql.kill()
                    postgresql.start()
                else:
                    kill_a_worker((one, two)[number // 2 % 2])
        await_recovery(services, providers[0])
        assert ledger.faults() == 0, ledger.statuses
        assert violations(services[0], providers, ledger) == []
        expected = stored_use(services[0], providers)
        assert [shown_use(service) for service in services for _ in range(4)] == [expected] * 8


def kill_a_worker(server: RunningServer) -> None:
    workers = server.workers()
    if workers:
        os.kill(workers[0], signal.SIGKILL)


def test_a_sqlite_file_restored_in_place_and_overtaken(tmp_path: Path):
    with database_url("sqlite") as url, running_service(url, workers=1) as server:
        service = Service(server.url)
        providers = make_providers(service, 3)
        live = sqlite3.connect(url.removeprefix("sqlite:///"))
        backup = sqlite3.connect(tmp_path / "backup")
        live.backup(backup)
        for _ in range(5):
            claim(service, providers[0])
        assert shown_use(service)[providers[0]] == 5
        backup.backup(live)
        # More writes than were lost, before anybody searches.
        for _ in range(20):
            claim(service, providers[1])
        assert shown_use(service) == stored_use(service, providers)
        live.close()
        backup.close()


def test_a_sqlite_file_removed_under_the_service():
    with database_url("sqlite") as url, running_service(url, workers=1) as server:
        service = Service(server.url)
        providers = make_providers(service, 2)
        claim(service, providers[0])
        shown_use(service)
        path = Path(url.removeprefix("sqlite:///"))
        kept = path.with_suffix(".kept")
        path.rename(kept)
        body = claim_body(providers[0])
        statuses = {
            service.call("PUT", f"/allocations/{uuid.uuid4()}", body).status,
            service.call("GET", "/allocation_candidates?resources=VCPU:1").status,
            service.call("GET", "/resource_providers").status,
        }
        assert statuses == {503}
        assert not path.exists()
        kept.rename(path)
        await_recovery([service], providers[0])


def test_a_sqlite_file_replaced_under_the_service(tmp_path: Path):
    with database_url("sqlite") as url, running_service(url, workers=1) as server:
        service = Service(server.url)
        providers = make_providers(service, 2)
        path = Path(url.removeprefix("sqlite:///"))
        other = path.with_suffix(".other")
        live, copy = sqlite3.connect(path), sqlite3.connect(other)
        live.backup(copy)
        live.close()
        copy.close()
        for _ in range(5):
            claim(service, providers[0])
        assert shown_use(service)[providers[0]] == 5
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        other.rename(path)
        for _ in range(20):
            claim(service, providers[1])
        assert shown_use(service) == stored_use(service, providers) == {providers[0]: 0, providers[1]: 20}
