"""`placement demo`: a demonstration from an installed package, with all that it needs in one folder."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from placement.client.arguments import argument
from placement.server.commands import LISTENING, REMOTE, Serve

_STARTED = "Starting with the example clusters; the service answers in about ten seconds."


class Demonstrate(Serve):
    """Run the service with example clusters in a folder of its own, without any configuration.

    Every caller on this machine is believed. The folder is a temporary one, and is removed at the end,
    unless it is named.
    """

    arguments = (
        *LISTENING,
        argument(
            "--folder",
            metavar="DIRECTORY",
            help="keep the data in this directory, also for the next start (default a temporary one)",
        ),
        REMOTE,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Serve the examples until stopped. Raises PlacementError."""
        for name in ("config_file", "tls_cert", "tls_key", "tls_client_ca"):
            setattr(parsed_args, name, None)
        parsed_args.demo, parsed_args.auth = True, "noauth2"
        self.is_temporary = not parsed_args.folder
        with _folder(parsed_args.folder) as folder:
            parsed_args.database = f"sqlite:///{folder / 'placement.sqlite'}"
            _read_no_other_configuration(folder)
            print(_STARTED, flush=True)
            super().take_action(parsed_args)


@contextmanager
def _folder(named: str | None) -> Iterator[Path]:
    """Yield the folder of the data; a temporary one is removed after the block, by this process only."""
    if named:
        folder = Path(named).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    folder, owner = Path(tempfile.mkdtemp(prefix="placement-demo-")), os.getpid()
    # The master has handlers of its own; until it runs, the folder would stay.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield folder
    finally:
        # Workers are forks, and leave this block, too.
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)


def _read_no_other_configuration(folder: Path) -> None:
    """Have no file of the machine read: the demonstration is the same everywhere."""
    from placement.server.configuration_files import DIRECTORY_VARIABLE, FILE_VARIABLE

    os.environ.pop(FILE_VARIABLE, None)
    os.environ[DIRECTORY_VARIABLE] = str(folder)
