"""The configuration of a process: ini files, environment variables OS_<GROUP>__<OPTION>, the command line."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from oslo_config import cfg
from oslo_log import log
from oslo_policy import opts

from placement.domain.errors import PlacementError
from placement.operations.config_files import (
    DIRECTORY_VARIABLE,
    FILE_VARIABLE,
    configuration_files,
    refuse_unknown,
)
from placement.operations.foreign_options import options_of
from placement.operations.http.limits import Limits
from placement.operations.http.tls import Tls, TlsFiles
from placement.operations.options import GROUPS
from placement.operations.secrets import warn_if_readable, with_password_of
from placement.services import schema
from placement.storage.database import Database
from placement.storage.failures import Unreachable

__all__ = ["DIRECTORY_VARIABLE", "FILE_VARIABLE", "configuration_files"]
CONNECTION_VARIABLE = "OS_PLACEMENT_DATABASE__CONNECTION"
STRATEGY_VARIABLE = "OS_API__AUTH_STRATEGY"
REMOTE_VARIABLE = "OS_API__ALLOW_REMOTE_NOAUTH"
TLS_VARIABLES = ("OS_SSL__CERT_FILE", "OS_SSL__KEY_FILE", "OS_SSL__CA_FILE")
NEW_DEFAULTS_VARIABLE = "OS_OSLO_POLICY__ENFORCE_NEW_DEFAULTS"
# Set in the environment of worker processes: their database has been made ready.
MADE_READY_VARIABLE = "PLACEMENT_DATABASE_MADE_READY"
LOG = logging.getLogger(__name__)
_SHOW_STATEMENTS, _SHOW_RESULTS = 50, 100
# Libraries whose messages at level debug are of no use here.
_QUIET = ["oslo_policy=INFO", "keystonemiddleware=INFO", "stevedore=INFO", "urllib3=INFO", "alembic=WARNING"]


def load(files: Sequence[str] = (), directories: Sequence[str] = ()) -> cfg.ConfigOpts:
    """The configuration of this process. Raises PlacementError naming a bad file, option or value."""
    settings = cfg.ConfigOpts()
    log.register_options(settings)
    for group, options in GROUPS.items():
        settings.register_opts(options, group=None if group == "DEFAULT" else group)
    read = list(files) or configuration_files()
    refuse_unknown(read, directories, GROUPS, options_of)
    try:
        settings(
            args=[], project="placement", default_config_files=read, default_config_dirs=list(directories)
        )
        for group, options in GROUPS.items():
            for option in options:
                (settings if group == "DEFAULT" else settings[group])[option.dest]
    except (cfg.Error, ValueError) as error:
        raise PlacementError(" ".join(str(error).split())) from None
    return settings


def require_strategy(settings: cfg.ConfigOpts) -> None:
    """Raises PlacementError unless the configuration says how callers are identified.

    The default serves configurations with Keystone; without any configuration nothing is chosen.
    """
    if not configuration_files() and not is_set(settings, "api", "auth_strategy"):
        raise PlacementError(
            "There is no configuration, so nobody has said who may call: try the service out with "
            "`placement serve --demo`, or choose --auth or [api] auth_strategy, keystone or token for real "
            "use, noauth2 to believe every caller on this machine."
        )


def is_set(settings: cfg.ConfigOpts, group: str, option: str) -> bool:
    """Whether the option is set, in a file or in the environment."""
    location = settings.get_location(option, group)
    return location is not None and location.location not in (
        cfg.Locations.opt_default,
        cfg.Locations.set_default,
    )


def sets_new_defaults() -> bool:
    """Whether [oslo_policy] enforce_new_defaults is set."""
    settings = load()
    opts.set_defaults(settings)
    return is_set(settings, "oslo_policy", "enforce_new_defaults")


def warn_of_open_secrets(settings: cfg.ConfigOpts) -> None:
    """Say in the log which of the configured files with secrets others may read."""
    for file, what in (
        (settings.placement_database.password_file, "the password"),
        (settings.kubernetes.kubeconfig, "the credentials"),
    ):
        if file:
            warn_if_readable(file, what)


def connection_of(settings: cfg.ConfigOpts) -> str:
    """The database URL. Raises PlacementError if there is none."""
    connection = settings.placement_database.connection
    if not connection:
        files = "".join(f"{file}: " for file in configuration_files())
        raise PlacementError(
            f"{files}no database is configured: give --database, or set [placement_database] connection or "
            f"{CONNECTION_VARIABLE}"
        )
    password_file = settings.placement_database.password_file
    return with_password_of(password_file, connection) if password_file else str(connection)


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
        statement_seconds=settings.api.request_timeout,
        audits=settings.audit.enabled,
        keep_audit_days=settings.audit.keep_days,
    )


def limits_of(settings: cfg.ConfigOpts) -> Limits:
    """What clients of the HTTP server may do."""
    return Limits(
        largest_body_bytes=settings.api.max_request_body_bytes,
        request_seconds=settings.api.request_timeout,
        requests_per_caller=settings.api.max_requests_per_caller,
    )


def tls_of(settings: cfg.ConfigOpts) -> Tls | None:
    """How connections are encrypted, None if they are not. Raises PlacementError naming option or file."""
    options = settings.ssl
    if not (options.cert_file or options.key_file or options.ca_file):
        return None
    for name in ("cert_file", "key_file"):
        if not options[name]:
            raise PlacementError(
                f"[ssl] {name} is not set: TLS takes cert_file and key_file, or --tls-cert and --tls-key"
            )
    return Tls(TlsFiles(options.cert_file, options.key_file, options.ca_file))


def make_ready(settings: cfg.ConfigOpts) -> None:
    """Make the database ready for the service, waiting while it cannot be reached.

    Raises SchemaOutdated, Unavailable, PlacementError; at once for what waiting does not mend.
    """
    options = settings.placement_database
    attempt = 0
    while True:
        try:
            return schema.make_ready(connection_of(settings), upgrade_first=options.sync_on_startup)
        except Unreachable as error:
            attempt += 1
            if 0 <= options.max_retries < attempt:
                raise
            problem = str(error)
        # Outside of the block: oslo.log repeats the error that is being handled.
        LOG.warning("%s Trying again in %d seconds.", problem, options.retry_interval)
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
