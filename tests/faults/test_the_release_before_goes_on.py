"""While a release replaces the one before, both serve one database, and neither loses what the other wrote.

The release before is the last commit whose migrations lack the newest one; it runs from an archive of that
commit, with the packages of this environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest

from placement.server import checks
from placement.server.online_migrations import MigrationOwner
from placement.storage import schema
from placement.storage.database import Database
from tests.faults.ledger import (
    Ledger,
    await_recovery,
    make_providers,
    shown_use,
    stored_use,
    storm,
    violations,
)
from tests.kubernetes import node_manifests, pod_manifest
from tests.patience import PATIENCE_SECONDS
from tests.server import BACKENDS, await_answer, database_url, free_port, running_service
from tests.service import Service

_ROOT = Path(__file__).resolve().parents[2]
_CLUSTER = "/ext/v1/clusters/edge"


def git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(_ROOT), *arguments], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT RUN: no history of the sources here: {done.stderr.decode().strip()}")
    return done.stdout


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the release before."""
    newest = max((_ROOT / "migrations" / "versions").glob("[0-9]*.py")).relative_to(_ROOT)
    added = git("log", "--diff-filter=A", "--format=%H", "-1", "--", str(newest)).decode().strip()
    if not added:
        pytest.skip(f"NOT RUN: the history does not say when {newest} came")
    place = tmp_path_factory.mktemp("former")
    with tarfile.open(fileobj=BytesIO(git("archive", f"{added}^"))) as archive:
        archive.extractall(place, filter="data")
    assert not (place / newest).exists()
    return place


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "placement.client", *arguments]


@contextmanager
def running_former(sources: Path, connection: str) -> Iterator[str]:
    """The release before, with two workers, on a schema of its own; its URL."""
    upgrade = command("db", "upgrade", "--database", connection)
    subprocess.run(upgrade, cwd=sources, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
    port = free_port()
    serve = command(
        "serve", "--port", str(port), "--workers", "2", "--auth", "noauth2", "--database", connection
    )
    with (sources / "log").open("wb") as log:
        process = subprocess.Popen(serve, cwd=sources, stdout=log, stderr=log, env=dict(os.environ))
        try:
            await_answer(f"http://127.0.0.1:{port}", lambda: process.poll() is not None)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize("backend", BACKENDS)
def test_both_releases_serve_one_database(former: Path, backend: str):
    with database_url(backend, migrated=False) as url, running_former(former, url) as old_url:
        old = Service(old_url)
        providers = make_providers(old, 4)
        old.must("PUT", _CLUSTER, {})
        old.must("PUT", f"{_CLUSTER}/nodes/n1", node_manifests("n1"))
        database = Database(url)
        assert schema.version(database) != schema.newest(database)
        with storm([old_url], providers, clients=4) as first:
            place(old, "p0")
            schema.upgrade(database)
            place(old, "p1")
        assert well(old, providers, first)
        with running_service(url, workers=2) as server:
            new = Service(server.url)
            with storm([old_url, server.url], providers, clients=8) as second:
                for number, service in enumerate((new, old) * 3):
                    place(service, f"p{2 + number}")
                    assert len(pods(old)) == len(pods(new)) == 3 + number
            await_recovery([old, new], providers[0])
            assert second.faults() == 0, second.statuses
            assert shown_use(old) == shown_use(new) == stored_use(new, providers)
            merged = Ledger({**first.held, **second.held}, set(), first.uncertain | second.uncertain)
            assert violations(new, providers, merged) == []
        assert checks.check_database(database, MigrationOwner("p", "u")) == ([], True)
        database.dispose()


def place(service: Service, name: str) -> None:
    service.must("PUT", f"{_CLUSTER}/pods/default/{name}", pod_manifest("1"))


def pods(service: Service) -> list[str]:
    return [pod["name"] for pod in service.must("GET", f"{_CLUSTER}/pods")["pods"]]


def well(service: Service, providers: list[str], ledger: Ledger) -> bool:
    return ledger.faults() == 0 and violations(service, providers, ledger) == []
