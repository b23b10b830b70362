"""The options that say which database a command works on."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from placement.domain.errors import PlacementError

if TYPE_CHECKING:
    from oslo_config import cfg

_DEFAULT_DATABASE = "sqlite:///var/placement.sqlite"


def add_options(parser: argparse.ArgumentParser) -> None:
    """--database and --config-file."""
    parser.add_argument("--database", metavar="URL", help="SQLite or PostgreSQL, before any configuration")
    parser.add_argument("--config-file", metavar="FILE", help="ini file with the options")


def configure(parsed: argparse.Namespace) -> cfg.ConfigOpts:
    """The configuration, left in the environment for the worker processes."""
    from placement.operations import settings

    if parsed.config_file:
        if not Path(parsed.config_file).is_file():
            raise PlacementError(f"--config-file: {parsed.config_file} is no file")
        os.environ[settings.FILE_VARIABLE] = parsed.config_file
    if parsed.database:
        os.environ[settings.CONNECTION_VARIABLE] = parsed.database
    elif not settings.load().placement_database.connection:
        os.environ[settings.CONNECTION_VARIABLE] = _DEFAULT_DATABASE
    return settings.load()


def database_url(parsed: argparse.Namespace) -> str:
    """The URL of the configured database."""
    from placement.operations import settings

    return settings.connection_of(configure(parsed))
