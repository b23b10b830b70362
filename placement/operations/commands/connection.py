"""The options that say which database a command works on."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from placement.domain.errors import PlacementError
from placement.operations.commands.arguments import argument

if TYPE_CHECKING:
    from oslo_config import cfg

DEMONSTRATION = "sqlite:///var/placement.sqlite"
"""The database of who only tries things out."""
OPTIONS = (
    argument(
        "--database",
        metavar="URL",
        help="SQLite or PostgreSQL, before any configuration; without a password, which others could see",
    ),
    argument("--config-file", metavar="FILE", help="ini file with the options"),
)
LOG = logging.getLogger("placement.command")


def configure(parsed: argparse.Namespace, default: str | None = None) -> cfg.ConfigOpts:
    """The configuration, left in the environment for the worker processes.

    `default`: the database if there is no configuration file at all. Raises PlacementError.
    """
    from placement.operations import secrets, settings

    if parsed.config_file:
        if not Path(parsed.config_file).is_file():
            raise PlacementError(f"--config-file: {parsed.config_file} is no file")
        os.environ[settings.FILE_VARIABLE] = parsed.config_file
    if parsed.database:
        if secrets.has_password(parsed.database):
            LOG.warning(
                "--database: everybody on this machine can see its password in the list of processes; put it "
                "into [placement_database] password_file, ~/.pgpass or %s",
                settings.CONNECTION_VARIABLE,
            )
        os.environ[settings.CONNECTION_VARIABLE] = parsed.database
    elif default and not settings.configuration_files() and settings.CONNECTION_VARIABLE not in os.environ:
        os.environ[settings.CONNECTION_VARIABLE] = default
    return settings.load()


def database_url(parsed: argparse.Namespace) -> str:
    """The URL of the configured database. Raises PlacementError."""
    from placement.operations import settings

    return settings.connection_of(configure(parsed))
