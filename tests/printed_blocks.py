"""Blocks of docs/deploying.md as a shell of a machine runs them.

Folders of the system are folders of the test. Programs that only root may use, and what is installed from
elsewhere, are stand-ins; configuration, roles, database, upgrade and service are real.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from tests.patience import PATIENCE_SECONDS
from tests.server import free_port, postgresql_server

ROOT = Path(__file__).resolve().parents[1]
_PAGE = ROOT / "docs" / "deploying.md"
_UNIT = ROOT / "etc" / "systemd" / "placement.service"
_FOLDERS = ("/opt/placement", "/etc/placement", "/etc/systemd/system", "/var/lib/placement")
_UNITS = "/etc/systemd/system"

_STAND_INS = {
    "useradd": "exit 0",
    "make": "exit 0",
    "chown": "exit 0",
    # The owner cannot be another user.
    "install": 'for folder; do :; done; mkdir -p "$folder"',
    "python3": 'mkdir -p "$3/bin"; cp "$STAND_INS/pip" "$STAND_INS/placement" "$3/bin/"',
    "pip": "exit 0",
    "placement": f'cd "{ROOT}" && exec {sys.executable} -m placement.client "$@"',
    "runuser": 'shift 3; exec "$@"',
    "systemctl": f'exec {sys.executable} "$STAND_INS/manager.py" "$@"',
}
_MANAGER = """
import os, re, shlex, socket, subprocess, sys
from pathlib import Path

if sys.argv[1] in ("enable", "restart"):
    unit = (Path(os.environ["UNITS"]) / "placement.service").read_text()
    before, start = (re.search(rf"^{name}=-?(.+)$", unit, re.M)[1] for name in ("ExecStartPre", "ExecStart"))
    assert "Type=notify" in unit
    subprocess.run(shlex.split(before), check=True, stdout=subprocess.DEVNULL)
    address = os.environ["STAND_INS"] + "/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(float(os.environ["PATIENCE"]))
        with open(os.environ["STAND_INS"] + "/log", "w") as log:
            service = subprocess.Popen(
                [*shlex.split(start), "--port", os.environ["PORT"], "--workers", "1"],
                env={**os.environ, "NOTIFY_SOCKET": address},
                stdout=log,
                stderr=log,
            )
        Path(os.environ["STAND_INS"], "pid").write_text(str(service.pid))
        assert manager.recv(100) == b"READY=1"
"""


def block(pattern: str) -> str:
    """The block of the page between lines of backquotes that this pattern ends before."""
    found = re.search(rf"{pattern}.*?```\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    assert found is not None, pattern
    return found[1]


class Machine:
    """A machine with PostgreSQL, on which a block makes a service that listens on `port`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.environment: dict[str, str] = {}

    def moved(self, text: str) -> str:
        """The text with folders, database and port of this machine."""
        for folder in _FOLDERS:
            text = text.replace(folder, f"{self.folder}{folder}")
        server = postgresql_server()
        where = f"host={server.query.get('host') or server.host}&port={server.port or 5432}"
        text = re.sub(r"@[a-z0-9.]+/placement$", f"@/placement?{where}", text, flags=re.M)
        return text.replace(":8778", f":{self.port}")

    def write_unit(self, folder: Path) -> None:
        """Write the unit of the service into the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _UNIT.name).write_text(self.moved(_UNIT.read_text()))

    def install(self) -> None:
        """Leave everything as it is after the block `On a machine`, but for configuration and database."""
        folder = self.folder / "opt" / "placement" / "bin"
        folder.mkdir(parents=True)
        for name in ("pip", "placement"):
            (folder / name).symlink_to(self.folder / "programs" / name)
        (self.folder / "etc" / "placement").mkdir(parents=True)
        self.write_unit(Path(f"{self.folder}{_UNITS}"))

    def run(self, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the text in a shell that ends with the first command that fails, in a checkout."""
        checkout = self.folder / "checkout"
        self.write_unit(checkout / "etc" / "systemd")
        return subprocess.run(
            ["sh", "-e", "-c", self.moved(text)],
            cwd=checkout,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    @property
    def log(self) -> str:
        """What the service has written."""
        return (self.folder / "programs" / "log").read_text()


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """A machine that is cleared after the block; its database and role are called `placement`."""
    made, programs = Machine(folder), folder / "programs"
    programs.mkdir()
    for name, body in _STAND_INS.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    (programs / "manager.py").write_text(_MANAGER)
    for path in _FOLDERS[2:]:
        Path(f"{folder}{path}").mkdir(parents=True)
    server = postgresql_server()
    made.environment = {
        **os.environ,
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "STAND_INS": str(programs),
        "UNITS": f"{folder}{_UNITS}",
        "PORT": str(made.port),
        "PATIENCE": str(PATIENCE_SECONDS),
        "PGHOST": str(server.query.get("host") or server.host),
        "PGPORT": str(server.port or 5432),
        "PGUSER": str(server.username),
        "PGDATABASE": "postgres",
    }
    try:
        yield made
    finally:
        pid = programs / "pid"
        if pid.is_file():
            os.kill(int(pid.read_text()), signal.SIGINT)
        engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            connection.execute(sa.text("DROP DATABASE IF EXISTS placement WITH (FORCE)"))
            connection.execute(sa.text("DROP ROLE IF EXISTS placement"))
