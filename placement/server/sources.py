"""The configuration file and the database that the arguments of a command name."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from placement.client.arguments import argument
from placement.engine.domain.errors import PlacementError

if TYPE_CHECKING:
    from oslo_config import cfg

OPTIONS = (
    argument(
        "--database",
        metavar="URL",
        help="SQLite or PostgreSQL, before any configuration; without a password, which others could see",
    ),
    argument("--config-file", metavar="FILE", help="ini file with the options"),
)
LOG = logging.getLogger("placement.command")


def name_sources(parsed: argparse.Namespace, default: str | None = None) -> None:
    """Leave in the environment which file and database the arguments name, also for worker processes.

    `default` is the database if there is no configuration file at all. Raises PlacementError.
    """
    from placement.common import secrets
    from placement.server.configuration_files import FILE_VARIABLE, default_files
    from placement.server.settings import CONNECTION_VARIABLE

    if parsed.config_file:
        if not Path(parsed.config_file).is_file():
            raise PlacementError(f"--config-file: {parsed.config_file} is not a file")
        os.environ[FILE_VARIABLE] = parsed.config_file
    if parsed.database:
        if secrets.has_password(parsed.database):
            LOG.warning(
                "--database: any user of this machine sees its password in the list of processes; put it "
                "into [placement_database] password_file, ~/.pgpass or %s",
                CONNECTION_VARIABLE,
            )
        os.environ[CONNECTION_VARIABLE] = parsed.database
    elif default and not default_files() and CONNECTION_VARIABLE not in os.environ:
        os.environ[CONNECTION_VARIABLE] = default


def configure(parsed: argparse.Namespace) -> cfg.ConfigOpts:
    """Return the configuration that the arguments name. Raises PlacementError."""
    from placement.server import settings

    name_sources(parsed)
    return settings.load()


def database_url(parsed: argparse.Namespace) -> str:
    """Return the URL of the configured database. Raises PlacementError."""
    from placement.server import settings

    return settings.connection_of(configure(parsed))
