"""A MariaDB of this process's own, where the machine has the server installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import sqlalchemy as sa

from tests.server import free_port

_SERVER = "mariadbd"
_INSTALL = "mariadb-install-db"
# Servers are not on the path of everybody.
_PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


def is_installed() -> bool:
    """Whether there is a server to start, and a driver to talk to it."""
    with suppress(ModuleNotFoundError):
        import pymysql  # noqa: F401

        return all(shutil.which(name, path=_PLACES) for name in (_SERVER, _INSTALL))
    return False


@contextmanager
def running() -> Iterator[str]:
    """The URL of an empty database on a server that ends with the block."""
    with TemporaryDirectory(prefix="mariadb-") as place:
        data, port = Path(place) / "data", free_port()
        _run(_INSTALL, f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db")
        command = [_found(_SERVER), "--no-defaults", f"--datadir={data}", "--bind-address=127.0.0.1"]
        command += [f"--port={port}", f"--socket={place}/socket", f"--user={os.environ.get('USER', 'root')}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            url = f"mysql+pymysql://root@127.0.0.1:{port}"
            _create(url)
            yield f"{url}/placement?charset=utf8"
        finally:
            process.terminate()
            process.wait()


def _run(name: str, *arguments: str) -> None:
    subprocess.run([_found(name), "--no-defaults", *arguments], check=True, capture_output=True)


def _found(name: str) -> str:
    found = shutil.which(name, path=_PLACES)
    assert found is not None
    return found


def _create(url: str) -> None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    for _ in range(300):
        with suppress(sa.exc.OperationalError), engine.begin() as connection:
            connection.exec_driver_sql("CREATE DATABASE IF NOT EXISTS placement CHARACTER SET utf8")
            return
        time.sleep(0.1)
    raise RuntimeError("MariaDB does not start")
