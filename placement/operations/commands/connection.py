"""The options that say which database a command works on."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from placement.domain.errors import PlacementError

_DEFAULT_DATABASE = "sqlite:///var/placement.sqlite"


def add_options(parser: argparse.ArgumentParser) -> None:
    """--database and --config-file."""
    parser.add_argument("--database", metavar="URL", help="SQLite or PostgreSQL, before any configuration")
    parser.add_argument("--config-file", metavar="FILE", help="ini file with the options")


def database_url(parsed: argparse.Namespace) -> str:
    """The database URL, left in the environment for the worker processes."""
    from placement.operations import settings

    if parsed.config_file:
        if not Path(parsed.config_file).is_file():
            raise PlacementError(f"--config-file: {parsed.config_file} is no file")
        os.environ[settings.FILE_VARIABLE] = parsed.config_file
    if parsed.database:
        os.environ[settings.CONNECTION_VARIABLE] = parsed.database
    connection = settings.load().placement_database.connection
    if not connection:
        connection = _DEFAULT_DATABASE
        os.environ[settings.CONNECTION_VARIABLE] = connection
    return str(connection)
