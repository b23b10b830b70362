"""The commands of docs/backup.md save and restore a database, and services that run meanwhile notice."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from placement.server import checks
from placement.server.online_migrations import MigrationOwner
from tests.faults.cluster import Cluster, cluster, program_user, programs_directory
from tests.faults.ledger import claim_body, make_providers, shown_use, stored_use
from tests.faults.test_the_history_is_proved import await_answer, claim, overtake
from tests.patience import PATIENCE_SECONDS, eventually
from tests.server import database_url, running_service
from tests.service import Service

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "backup.md"
_FORGOTTEN = "nothing known before counts"
_OWNER = MigrationOwner("p", "u")


def shown_commands(heading: str) -> list[str]:
    """The blocks of commands below a heading of the page."""
    section = _PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def run(block: str, directory: Path, *, is_own: bool = False, **variables: str) -> None:
    """Run a block in a directory, as the user who runs servers unless it is our own."""
    path = f"{programs_directory()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", block],
        cwd=directory,
        user=None if is_own else program_user(),
        env={"PATH": path, "LC_ALL": "C", "TZ": "UTC", **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def postgresql(tmp_path: Path) -> Iterator[Cluster]:
    with cluster() as made:
        yield made


def test_a_dump_is_restored_into_an_empty_database(postgresql: Cluster):
    """Stamps of a server that has come far mean nothing to one that was just made."""
    overtake(postgresql, 1000)
    with running_service(postgresql.url(), workers=1) as server:
        service = Service(server.url)
        providers = make_providers(service, 2)
        claim(service, providers[0])
        run(shown_commands("Backup")[0], postgresql.directory, DATABASE=postgresql.url())
    with cluster(migrated=False) as other:
        shutil.copy(postgresql.directory / "placement.dump", other.directory)
        run(shown_commands("Restore")[0], other.directory, is_own=True, DATABASE=other.url())
        with running_service(other.url(), workers=1) as server:
            service = Service(server.url)
            claim(service, providers[1])
            expected = {providers[0]: 1, providers[1]: 1}
            assert shown_use(service) == stored_use(service, providers) == expected


def test_a_dump_is_restored_over_a_database_in_use(postgresql: Cluster):
    with running_service(postgresql.url(), workers=2) as server:
        service = Service(server.url)
        providers = make_providers(service, 2)
        claim(service, providers[0])
        run(shown_commands("Backup")[0], postgresql.directory, DATABASE=postgresql.url())
        for _ in range(5):
            claim(service, providers[0])
        assert [shown_use(service)[providers[0]] for _ in range(4)] == [6] * 4
        run(shown_commands("Restore")[1], postgresql.directory, is_own=True, DATABASE=postgresql.url())
        expected = {providers[0]: 1, providers[1]: 0}
        assert [shown_use(service) for _ in range(4)] == [expected] * 4
        assert _FORGOTTEN in server.log.read_text()
        claim(service, providers[1])
        assert shown_use(service) == stored_use(service, providers)


def test_a_server_is_recovered_to_a_moment(tmp_path: Path):
    """At the same address; what came later is gone, its stamps are used again, and nobody shows it."""
    with cluster(settings={"archive_mode": "on", "archive_command": "cp %p ../archive/%f"}) as postgresql:
        archive, base = postgresql.directory / "archive", postgresql.directory / "base"
        run("mkdir archive", postgresql.directory)
        with running_service(postgresql.url(), workers=2) as server:
            service = Service(server.url)
            providers = make_providers(service, 3)
            backup, recover = shown_commands("Point-in-time recovery")
            run(backup, postgresql.directory, SERVER=postgresql.url("postgres"), BASE=str(base))
            claim(service, providers[0])
            ((moment,),) = postgresql.execute("SELECT clock_timestamp()::text")
            time.sleep(0.1)
            for _ in range(15):
                claim(service, providers[0])
            assert shown_use(service)[providers[0]] == 16
            postgresql.execute("SELECT pg_switch_wal()")
            postgresql.stop()
            settings = {"BASE": str(base), "ARCHIVE": str(archive), "MOMENT": str(moment)}
            run(recover, postgresql.directory, **settings)
            shutil.rmtree(postgresql.data)
            base.rename(postgresql.data)
            postgresql.start()
            # Until it has come to the moment it takes no writes.
            eventually([(False,)], lambda: postgresql.execute("SELECT pg_is_in_recovery()"))
            overtake(postgresql)
            await_answer(service)
            claim(service, providers[1])
            expected = dict(zip(providers, (1, 1, 0), strict=True))
            assert [shown_use(service) for _ in range(4)] == [expected] * 4
            assert stored_use(service, providers) == expected
        assert checks.check(postgresql.url(), _OWNER) == ([], True)


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="NOT RUN: there is no sqlite3 command here")
def test_a_file_is_saved_while_it_is_used(tmp_path: Path):
    with database_url("sqlite") as url, running_service(url, workers=1) as server:
        service = Service(server.url)
        (provider,) = make_providers(service, 1)
        path = Path(url.removeprefix("sqlite:///"))
        block = shown_commands("Backup")[1]
        run(block.replace("var/placement.sqlite", str(path)), path.parent, is_own=True)
        assert service.call("PUT", f"/allocations/{uuid.uuid4()}", claim_body(provider)).status == 204
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        (path.parent / "placement.backup").rename(path)
        assert shown_use(service) == {provider: 0}
