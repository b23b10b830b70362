"""The block of docs/deploying.md makes a service that is ready, with what it writes and the unit it installs.

Folders of the system are folders of the test. Programs that only root may use, and what is installed from
elsewhere, are stand-ins; configuration, tokens, roles, database, upgrade and service are real.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.patience import PATIENCE_SECONDS
from tests.probes import probed
from tests.server import free_port, postgresql_server

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"## On a machine\n.*?```\n(.*?)```", re.DOTALL)
_FOLDERS = ("/opt/placement", "/etc/placement", "/etc/systemd/system", "/var/lib/placement")

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

if sys.argv[1] == "enable":
    unit = (Path(os.environ["UNITS"]) / "placement.service").read_text()
    before, start = (re.search(rf"^{name}=-?(.+)$", unit, re.M)[1] for name in ("ExecStartPre", "ExecStart"))
    assert "Type=notify" in unit
    subprocess.run(shlex.split(before), check=True, stdout=subprocess.DEVNULL)
    address = os.environ["STAND_INS"] + "/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(float(os.environ["PATIENCE"]))
        service = subprocess.Popen(
            [*shlex.split(start), "--port", os.environ["PORT"], "--workers", "1"],
            env={**os.environ, "NOTIFY_SOCKET": address},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        Path(os.environ["STAND_INS"], "pid").write_text(str(service.pid))
        assert manager.recv(100) == b"READY=1"
"""


@pytest.fixture
def system(tmp_path: Path):
    """The environment of a shell on a machine with PostgreSQL, which is cleared afterwards."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, body in _STAND_INS.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    (programs / "manager.py").write_text(_MANAGER)
    for folder in _FOLDERS[2:]:
        Path(f"{tmp_path}{folder}").mkdir(parents=True)
    server = postgresql_server()
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    yield {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "STAND_INS": str(programs),
        "UNITS": f"{tmp_path}/etc/systemd/system",
        "PORT": str(free_port()),
        "PATIENCE": str(PATIENCE_SECONDS),
        "PGHOST": str(server.query.get("host") or server.host),
        "PGPORT": str(server.port or 5432),
        "PGUSER": str(server.username),
        "PGDATABASE": "postgres",
    }
    pid = programs / "pid"
    if pid.is_file():
        os.kill(int(pid.read_text()), signal.SIGINT)
    with engine.connect() as connection:
        connection.execute(sa.text("DROP DATABASE IF EXISTS placement WITH (FORCE)"))
        connection.execute(sa.text("DROP ROLE IF EXISTS placement"))


def test_the_block_ends_with_a_service_that_is_ready(system: dict[str, str], tmp_path: Path):
    found = _BLOCK.search((ROOT / "docs" / "deploying.md").read_text())
    assert found is not None
    block = found[1]
    for folder in _FOLDERS:
        block = block.replace(folder, f"{tmp_path}{folder}")
    where = f"host={system['PGHOST']}&port={system['PGPORT']}"
    block = block.replace("@127.0.0.1/placement", f"@/placement?{where}").replace(
        ":8778", f":{system['PORT']}"
    )
    unit = (ROOT / "etc" / "systemd" / "placement.service").read_text()
    for folder in _FOLDERS:
        unit = unit.replace(folder, f"{tmp_path}{folder}")
    checkout = tmp_path / "checkout" / "etc" / "systemd"
    checkout.mkdir(parents=True)
    (checkout / "placement.service").write_text(unit)
    done = subprocess.run(
        ["sh", "-e", "-c", f'{block}\nprintf "\\n%s" "$TOKEN"'],
        cwd=tmp_path / "checkout",
        env=system,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done
    ready, token = done.stdout.split()
    assert ready == "ok"
    at = f"http://127.0.0.1:{system['PORT']}"
    assert probed(at, "/resource_providers", **{"X-Auth-Token": token})[0] == 200
    assert probed(at, "/resource_providers", **{"X-Auth-Token": "admin"})[0] == 401
    secrets = [tmp_path / "etc" / "placement" / name for name in ("tokens.yaml", "database-password")]
    assert {file.stat().st_mode & 0o777 for file in secrets} == {0o600}
