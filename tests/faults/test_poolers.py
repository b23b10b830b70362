"""A pooler in front of PostgreSQL works with session pooling, and is refused at start without it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg2
import pytest

from tests.faults.cluster import Cluster, cluster, directory_for_servers
from tests.faults.ledger import await_recovery, make_providers, storm, violations
from tests.server import free_port, running_service
from tests.service import Service

_BINARY = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_PATIENCE_SECONDS = 60

pytestmark = pytest.mark.skipif(_BINARY is None, reason="pgbouncer is not installed")


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@contextmanager
def pooler(postgresql: Cluster, mode: str) -> Iterator[str]:
    """The URL of the database through a pooler in this mode."""
    port = free_port()
    with directory_for_servers() as directory:
        configuration = directory / "pgbouncer.ini"
        configuration.write_text(
            f"[databases]\nplacement = host=127.0.0.1 port={postgresql.port} dbname=placement "
            "user=placement\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
            f"unix_socket_dir =\npool_mode = {mode}\ndefault_pool_size = 60\n"
        )
        owner = pwd.getpwuid(directory.stat().st_uid).pw_name if os.geteuid() == 0 else None
        process = subprocess.Popen(
            [str(_BINARY), str(configuration)],
            user=owner,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _await(port)
            yield postgresql.url(port=port)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _await(port: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            psycopg2.connect(host="127.0.0.1", port=port, user="placement", dbname="placement").close()
        except psycopg2.OperationalError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


def test_session_pooling_works_without_any_setting_of_its_own(postgresql: Cluster):
    with pooler(postgresql, "session") as url, running_service(url, workers=2) as server:
        service = Service(server.url)
        providers = make_providers(service, 3)
        with storm([server.url], providers, clients=8) as ledger:
            time.sleep(3)
        await_recovery([service], providers[0])
        assert violations(service, providers, ledger) == []
        assert set(ledger.statuses) <= {"200", "204"}


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_other_pooling_is_refused_at_start_with_one_sentence(postgresql: Cluster, mode: str, tmp_path: Path):
    with pooler(postgresql, mode) as url:
        command = [sys.executable, "-m", "placement.client", "serve", "--port", str(free_port())]
        done = subprocess.run(
            [*command, "--auth", "noauth2", "--workers", "1", "--database", url],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            cwd=Path(__file__).resolve().parents[2],
            check=False,
        )
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "session pooling" in last, done.stderr
    assert "Traceback" not in done.stderr
