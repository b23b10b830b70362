"""Three nodes of PostgreSQL under Patroni with one etcd, all on loopback; any node may die and come back.

Patroni comes from PyPI in a virtual environment of its own, PostgreSQL with the packages of the tests.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg2
import yaml

from tests.faults.cluster import directory_for_servers, program_user, programs_directory
from tests.server import free_port

NODES = ("one", "two", "three")
_RELEASE = "patroni[etcd3]==4.1.*"
_DRIVER = "psycopg2-binary"
_SYSTEM_PYTHON = "/usr/bin/python3"
_HOME = Path(__file__).parent / ".patroni"
_PATIENCE_SECONDS = 120
# The shortest that Patroni takes.
TTL_SECONDS, LOOP_SECONDS, RETRY_SECONDS = 20, 2, 8
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Node:
    """One Patroni with its PostgreSQL."""

    def __init__(self, name: str, directory: Path, etcd: str) -> None:
        self.name, self.port, self.api_port = name, free_port(), free_port()
        self._directory = directory
        self._file = directory / f"{name}.yaml"
        self._file.write_text(yaml.safe_dump(self._configuration(etcd)))
        self._process: subprocess.Popen[bytes] | None = None

    def _configuration(self, etcd: str) -> dict[str, Any]:
        everybody = [f"host {what} all 127.0.0.1/32 trust" for what in ("all", "replication")]
        users = {"username": "placement", "password": "unused"}
        bootstrap = {
            "ttl": TTL_SECONDS,
            "loop_wait": LOOP_SECONDS,
            "retry_timeout": RETRY_SECONDS,
            "synchronous_mode": True,
            "synchronous_mode_strict": True,
            "postgresql": {
                "use_pg_rewind": True,
                "parameters": {"max_connections": 200, "wal_log_hints": "on"},
            },
        }
        return {
            "scope": "placement",
            "name": self.name,
            "restapi": {
                "listen": f"127.0.0.1:{self.api_port}",
                "connect_address": f"127.0.0.1:{self.api_port}",
            },
            "etcd3": {"host": etcd},
            "bootstrap": {"dcs": bootstrap, "initdb": [{"encoding": "UTF8"}, {"locale": "C"}]},
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self._directory / self.name),
                "bin_dir": str(programs_directory()),
                "authentication": {"superuser": users, "replication": users, "rewind": users},
                "parameters": {"unix_socket_directories": str(self._directory), "shared_buffers": "32MB"},
                "pg_hba": [*everybody, "local all all trust", "local replication all trust"],
            },
        }

    def start(self) -> None:
        """Start Patroni, which starts or makes its PostgreSQL."""
        with (self._directory / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(_HOME / "bin" / "patroni"), str(self._file)],
                user=program_user(),
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
                cwd=self._directory,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """Everything of this node ends at once, as when its machine loses power."""
        if self._process is None:
            return
        pids = [self._process.pid, *self._postgresql()]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        (self._directory / self.name / "postmaster.pid").unlink(missing_ok=True)

    def _postgresql(self) -> list[int]:
        with suppress(OSError, ValueError, IndexError):
            file = self._directory / self.name / "postmaster.pid"
            postmaster = int(file.read_text().split()[0])
            children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
            return [postmaster, *map(int, children)]
        return []

    def takes_writes(self) -> bool:
        """Whether its PostgreSQL is the leader's and answers."""
        return self.execute("SELECT NOT pg_is_in_recovery()") == [(True,)]

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """What a statement returns; nothing if the server does not answer."""
        try:
            connection = psycopg2.connect(
                host="127.0.0.1", port=self.port, user="placement", dbname=database, connect_timeout=2
            )
        except psycopg2.Error:
            return []
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []
        except psycopg2.Error:
            return []
        finally:
            connection.close()

    def members(self) -> list[dict[str, Any]]:
        """What its Patroni knows of all nodes: name, role, state; nothing if it does not answer."""
        with (
            suppress(OSError, ValueError),
            _OPENER.open(f"http://127.0.0.1:{self.api_port}/cluster", timeout=2) as answer,
        ):
            return list(json.loads(answer.read())["members"])
        return []


class Nodes:
    """The three nodes."""

    def __init__(self, nodes: list[Node]) -> None:
        self.all = nodes

    def url(self) -> str:
        """The URL of the database by all of its hosts, as a service is given it."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.all)
        return f"postgresql://placement@{hosts}/placement"

    def leader(self) -> Node | None:
        """The node that takes writes."""
        return next((node for node in self.all if node.takes_writes()), None)

    def await_whole(self) -> Node:
        """Wait until there are a leader, a synchronous standby and another one; the leader."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            leader = self.leader()
            members = leader.members() if leader else []
            roles = sorted(
                member["role"] for member in members if member["state"] in ("running", "streaming")
            )
            if leader and roles == ["leader", "replica", "sync_standby"]:
                return leader
            time.sleep(0.2)
        raise TimeoutError("the nodes did not find together")


@contextmanager
def three_nodes(etcd: Path) -> Iterator[Nodes]:
    """Three nodes that run, with an empty database `placement`; `etcd` is its program, or that packed."""
    _prepare_environment()
    with directory_for_servers() as directory, ExitStack() as stack:
        address = stack.enter_context(_running_etcd(etcd, directory))
        nodes = Nodes([Node(name, directory, address) for name in NODES])
        try:
            for node in nodes.all:
                node.start()
            leader = nodes.await_whole()
            leader.execute("CREATE DATABASE placement")
            yield nodes
        except TimeoutError:
            for file in directory.glob("*.log"):
                print(file.read_text(errors="replace")[-2000:], file=sys.stderr)
            raise
        finally:
            for node in nodes.all:
                node.kill()


def _prepare_environment() -> None:
    if not (_HOME / "bin" / "patroni").exists():
        # Root has others run the servers, who may be kept out of where root's own Python is.
        python = sys.executable if program_user() is None else _SYSTEM_PYTHON
        subprocess.run([python, "-m", "venv", "--without-pip", "--clear", str(_HOME)], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(_HOME / "bin" / "python"), "install", "--quiet"]
        subprocess.run([*pip, _RELEASE, _DRIVER], check=True)


@contextmanager
def _running_etcd(source: Path, directory: Path) -> Iterator[str]:
    """One etcd; its address."""
    program = directory / "etcd"
    with (
        lzma.open(source) if source.suffix == ".xz" else source.open("rb") as given,
        program.open("wb") as out,
    ):
        shutil.copyfileobj(given, out, 1 << 20)
    program.chmod(0o755)
    address, peers = f"127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    options = {
        "data-dir": str(directory / "etcd-data"),
        "listen-client-urls": f"http://{address}",
        "advertise-client-urls": f"http://{address}",
        "listen-peer-urls": peers,
        "initial-advertise-peer-urls": peers,
        "initial-cluster": f"default={peers}",
    }
    with (directory / "etcd.log").open("wb") as log:
        command = [str(program), *(f"--{name}={value}" for name, value in options.items())]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield address
    finally:
        process.kill()
        process.wait()
