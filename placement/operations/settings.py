"""The configuration of a process: ini files, environment variables OS_<GROUP>__<OPTION>, the command line."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

from oslo_config import cfg
from oslo_log import log

from placement.domain.errors import PlacementError, Unavailable
from placement.operations.options import GROUPS
from placement.operations.web.limits import Limits
from placement.services import schema
from placement.storage.database import Database

DIRECTORY_VARIABLE = "OS_PLACEMENT_CONFIG_DIR"
FILE_VARIABLE = "OS_PLACEMENT_CONFIG_FILE"
CONNECTION_VARIABLE = "OS_PLACEMENT_DATABASE__CONNECTION"
STRATEGY_VARIABLE = "OS_API__AUTH_STRATEGY"
NEW_DEFAULTS_VARIABLE = "OS_OSLO_POLICY__ENFORCE_NEW_DEFAULTS"
# Set in the environment of worker processes whose database somebody has made ready.
MADE_READY_VARIABLE = "PLACEMENT_DATABASE_MADE_READY"
LOG = logging.getLogger(__name__)
_DEFAULT_DIRECTORY = "/etc/placement"
_FILE = "placement.conf"
_SHOW_STATEMENTS, _SHOW_RESULTS = 50, 100
# Libraries that tell at level debug what nobody looks for here.
_QUIET = ["oslo_policy=INFO", "keystonemiddleware=INFO", "stevedore=INFO", "urllib3=INFO", "alembic=WARNING"]


def load(files: Sequence[str] = (), directories: Sequence[str] = ()) -> cfg.ConfigOpts:
    """The configuration of this process. Raises SystemExit with a clear message for a bad file or value."""
    settings = cfg.ConfigOpts()
    log.register_options(settings)
    for group, options in GROUPS.items():
        settings.register_opts(options, group=None if group == "DEFAULT" else group)
    settings(
        args=[],
        project="placement",
        default_config_files=list(files) or configuration_files(),
        default_config_dirs=list(directories),
    )
    return settings


def configuration_files() -> list[str]:
    """The files that are read unless others are given: one named in the environment, or the standard one."""
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return [named]
    standard = Path(os.environ.get(DIRECTORY_VARIABLE, _DEFAULT_DIRECTORY)) / _FILE
    return [str(standard)] if standard.is_file() else []


def is_set(settings: cfg.ConfigOpts, group: str, option: str) -> bool:
    """Whether somebody has set the option, in a file or in the environment."""
    location = settings.get_location(option, group)
    return location is not None and location.location not in (
        cfg.Locations.opt_default,
        cfg.Locations.set_default,
    )


def connection_of(settings: cfg.ConfigOpts) -> str:
    """The database URL. Raises PlacementError if there is none."""
    connection = settings.placement_database.connection
    if not connection:
        raise PlacementError("no database is configured: [placement_database] connection is empty")
    return str(connection)


def open_database(settings: cfg.ConfigOpts) -> Database:
    """The configured database."""
    options = settings.placement_database
    return Database(
        connection_of(settings),
        parameters=options.connection_parameters,
        pool_size=options.max_pool_size,
        max_overflow=options.max_overflow,
        pool_timeout=options.pool_timeout,
        recycle_seconds=options.connection_recycle_time,
        durable=options.sqlite_synchronous,
        attempts=settings.placement.allocation_conflict_retry_count,
    )


def limits_of(settings: cfg.ConfigOpts) -> Limits:
    """What clients of the HTTP server may do."""
    return Limits(
        largest_body_bytes=settings.api.max_request_body_bytes,
        request_seconds=settings.api.request_timeout,
        requests_per_caller=settings.api.max_requests_per_caller,
    )


def make_ready(settings: cfg.ConfigOpts) -> None:
    """See to it that the service can start, waiting for a database that cannot be reached yet.

    Raises SchemaOutdated, Unavailable, PlacementError.
    """
    options = settings.placement_database
    attempt = 0
    while True:
        try:
            return schema.make_ready(connection_of(settings), upgrade_first=options.sync_on_startup)
        except Unavailable as error:
            attempt += 1
            if 0 <= options.max_retries < attempt:
                raise
            LOG.warning("%s Trying again in %d seconds.", error, options.retry_interval)
            time.sleep(options.retry_interval)


def start_logging(settings: cfg.ConfigOpts) -> None:
    """Log as configured, and what is configured."""
    log.set_defaults(default_log_levels=[*log.get_default_log_levels(), *_QUIET])
    log.setup(settings, "placement")
    verbosity = settings.placement_database.connection_debug
    if verbosity >= _SHOW_STATEMENTS:
        logging.getLogger("sqlalchemy.engine").setLevel(
            logging.DEBUG if verbosity >= _SHOW_RESULTS else logging.INFO
        )
    if settings.log_options:
        settings.log_opt_values(log.getLogger("placement.settings"), log.DEBUG)
