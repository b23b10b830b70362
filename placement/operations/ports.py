"""Who listens on a port of this machine, as far as the operating system tells; Linux only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_LISTENING = "0A"
_SHOWN_CHARACTERS = 60


def holder_of(port: int) -> str | None:
    """The process that listens there, `process 4711 (nginx: master)`; None if it cannot be found out."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    for process in _PROC.glob("[0-9]*") if sockets else ():
        # Processes end meanwhile, and those of others are not shown.
        with suppress(OSError):
            if any(os.readlink(file) in sockets for file in (process / "fd").iterdir()):
                return f"process {process.name} ({_command(process)})"
    return None


def _inodes(port: int) -> Iterator[str]:
    """The sockets that listen on the port, as columns of proc_net_tcp(5)."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _command(process: Path) -> str:
    words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    if not words:
        words = (process / "comm").read_text(errors="replace").strip()
    return words if len(words) <= _SHOWN_CHARACTERS else f"{words[:_SHOWN_CHARACTERS]} ..."
