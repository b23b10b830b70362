"""The port of the service: a socket that listens there, or the process that does so already."""

from __future__ import annotations

import errno
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from placement.engine.domain.errors import PlacementError

BACKLOG = 2048
# Workers of a master that was killed leave within this time.
_PORT_IS_FREE_WITHIN_SECONDS = 8
_PROC = Path("/proc")
_LISTENING = "0A"
_SHOWN_CHARACTERS = 60


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; waits some seconds if another is leaving. Raises PlacementError."""
    limit = time.monotonic() + _PORT_IS_FREE_WITHIN_SECONDS
    while True:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise PlacementError(f"--host {host} --port {port}: {error.strerror or error}") from None
            if time.monotonic() >= limit:
                program = holder_of(port) or "another program"
                raise PlacementError(
                    f"--port: {program} listens on {host}, port {port}; end it, or choose another port with "
                    "--port 9000, or `make run PORT=9000`"
                ) from None
            time.sleep(0.2)
        else:
            return listener


def holder_of(port: int) -> str | None:
    """Return the process that listens there, `process 4711 (nginx: master)`; None if it is not found.

    Linux only; `proc` has the columns of proc_net_tcp(5).
    """
    sockets = _listening_sockets(port)
    for process in _PROC.glob("[0-9]*") if sockets else ():
        # Processes end meanwhile, and processes of other users are not shown.
        with suppress(OSError):
            if any(os.readlink(file) in sockets for file in (process / "fd").iterdir()):
                return f"process {process.name} ({_command_of(process)})"
    return None


def _listening_sockets(port: int) -> set[str]:
    """Return the sockets that listen on a port, as links to open files name them."""
    lines = []
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            lines += (_PROC / "net" / table).read_text().splitlines()[1:]
    columns = [line.split() for line in lines]
    return {
        f"socket:[{each[9]}]"
        for each in columns
        if each[3] == _LISTENING and int(each[1].rpartition(":")[2], 16) == port
    }


def _command_of(process: Path) -> str:
    words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    command = words.strip() or (process / "comm").read_text(errors="replace").strip()
    return f"{command[:_SHOWN_CHARACTERS]} ..." if len(command) > _SHOWN_CHARACTERS else command
