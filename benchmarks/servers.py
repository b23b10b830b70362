"""This service and the incumbent, each behind gunicorn with two workers, on databases of the same kind.

Beside them a Flask route that only returns bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError
from urllib.request import urlopen

from benchmarks.ready_made import name_of
from tests.probes import is_ready
from tests.server import database_url, free_port, running_service

_INCUMBENT = "openstack-placement==16.0.0"
_HOME = Path(__file__).parent / ".incumbent"
_READY_IN_A_ROW, _BETWEEN_PROBES_SECONDS = 20, 0.1
_CONFIGURATION = """
[placement_database]
connection = {connection}
[api]
auth_strategy = noauth2
[oslo_policy]
enforce_new_defaults = False
"""


@dataclass(frozen=True)
class Measured:
    """A running server: its name in tables, its address, and the processes that serve."""

    name: str
    url: str
    master: int

    def resident_megabytes(self) -> float:
        """Return the resident memory of all its processes; shared pages count once per process."""
        pids = [self.master, *children_of(self.master)]
        return sum(_resident(pid) for pid in pids) / 1024

    def largest_worker_megabytes(self) -> float:
        """Return the resident memory of the largest worker."""
        return max(_resident(pid) for pid in children_of(self.master)) / 1024


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


@contextmanager
def ours(backend: str, workers: int = 2) -> Iterator[Measured]:
    """Run this service on a fresh database."""
    with database_url(backend) as connection, running_service(connection, workers=workers) as server:
        yield Measured("ours", server.url, server.process.pid)


@contextmanager
def incumbent(backend: str, workers: int = 2) -> Iterator[Measured]:
    """Run the incumbent from PyPI, in a virtual environment of its own, on a fresh database."""
    with database_url(backend, migrated=False) as connection:
        create_incumbent_tables(connection)
        with incumbent_at(connection, workers) as server:
            yield server


def create_incumbent_tables(connection: str) -> None:
    """Create the tables of the incumbent in an empty database."""
    python = _installed_incumbent()
    with _configured(connection) as place:
        program, configuration = str(python.parent / "placement-manage"), str(place / "placement.conf")
        manage = [program, "--config-file", configuration, "db", "sync"]
        subprocess.run(manage, env=_incumbent_environment(place), check=True, capture_output=True)


@contextmanager
def incumbent_at(connection: str, workers: int = 2) -> Iterator[Measured]:
    """Run the incumbent on a database that has its tables."""
    python = _installed_incumbent()
    with _configured(connection) as place:
        port = free_port()
        command = [str(python.parent / "gunicorn"), "-b", f"127.0.0.1:{port}", "-w", str(workers)]
        command += ["--timeout", "600", "placement.wsgi.api:application"]
        log = (place / "log").open("wb")
        environment = _incumbent_environment(place)
        process = subprocess.Popen(command, env=environment, cwd=place, stdout=log, stderr=log)
        try:
            _await(f"http://127.0.0.1:{port}", process)
            yield Measured("incumbent", f"http://127.0.0.1:{port}", process.pid)
        finally:
            process.terminate()
            process.wait()
            log.close()


@contextmanager
def _configured(connection: str) -> Iterator[Path]:
    with TemporaryDirectory(prefix="incumbent-") as place:
        (Path(place) / "placement.conf").write_text(_CONFIGURATION.format(connection=connection))
        yield Path(place)


def _incumbent_environment(place: Path) -> dict[str, str]:
    environment = {**os.environ, "OS_PLACEMENT_CONFIG_DIR": str(place)}
    # Both packages are called placement; it must not find ours.
    environment.pop("PYTHONPATH", None)
    return environment


@contextmanager
def ready_made(bodies: Mapping[str, bytes], workers: int = 2) -> Iterator[Measured]:
    """Run a Flask route with ready-made bodies by query string, served like ours."""
    with TemporaryDirectory(prefix="ready-made-") as place:
        for query, body in bodies.items():
            (Path(place) / name_of(query)).write_bytes(body)
        port = free_port()
        command = [sys.executable, "-m", "gunicorn", "-b", f"127.0.0.1:{port}", "-w", str(workers)]
        command += ["-k", "gthread", "--threads", "16", "--keep-alive", "75"]
        command += ["--log-level", "warning", "benchmarks.ready_made:create()"]
        process = subprocess.Popen(command, env={**os.environ, "READY_MADE": place})
        try:
            _await(f"http://127.0.0.1:{port}", process)
            yield Measured("ready-made", f"http://127.0.0.1:{port}", process.pid)
        finally:
            process.terminate()
            process.wait()


def _installed_incumbent() -> Path:
    python = _HOME / "venv" / "bin" / "python"
    if not (python.parent / "placement-manage").exists():
        print("installing the incumbent ...", file=sys.stderr)
        venv.create(_HOME / "venv", with_pip=True)
        packages = [_INCUMBENT, "gunicorn", "psycopg2-binary", "PyMySQL"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def await_ready(url: str) -> None:
    """Wait until all workers behind this URL know all providers: no proxy sends them requests before."""
    ready = 0
    while ready < _READY_IN_A_ROW:
        # Whichever worker is free answers.
        ready = ready + 1 if is_ready(url) else 0
        time.sleep(_BETWEEN_PROBES_SECONDS)


def _await(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(f"{url} does not start")
        try:
            with urlopen(url, timeout=5):
                return
        except HTTPError:
            return
        except OSError:
            time.sleep(0.1)
