"""The configuration of a process: ini files, environment variables OS_<GROUP>__<OPTION>, the command line."""

from __future__ import annotations

import datetime
import logging
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from oslo_config import cfg
from oslo_log import log
from oslo_policy import opts

from placement.common.secrets import has_password, warn_if_readable, with_password_of
from placement.engine.domain.errors import PlacementError
from placement.http.caller_limits import deadline_of
from placement.http.policy_files import is_set
from placement.http.worker.lanes import WorkerLimits
from placement.http.worker.tls import Tls, TlsFiles
from placement.server import configuration_files, log_lines, schema
from placement.server.options import GROUPS
from placement.storage.backends.urls import has_accounts
from placement.storage.database import Database
from placement.storage.failures import Unreachable
from placement.storage.retention import Retention

DEMONSTRATION = "sqlite:///var/placement.sqlite"
"""The database of a demonstration."""
CONNECTION_VARIABLE = "OS_PLACEMENT_DATABASE__CONNECTION"
STRATEGY_VARIABLE = "OS_API__AUTH_STRATEGY"
REMOTE_VARIABLE = "OS_API__ALLOW_REMOTE_NOAUTH"
TLS_VARIABLES = ("OS_SSL__CERT_FILE", "OS_SSL__KEY_FILE", "OS_SSL__CA_FILE")
NEW_DEFAULTS_VARIABLE = "OS_OSLO_POLICY__ENFORCE_NEW_DEFAULTS"
# Secrets of plugins with options that are not known here, such as application_credential_secret.
_SECRET = re.compile(r"(password|secret|passcode|passphrase)$", re.IGNORECASE)
_SOURCE = re.compile(r"detail='([^']*)'")
_POLICY_FILE = ("oslo_policy", "policy_file")
# Set in the environment of worker processes: their database has been made ready.
MADE_READY_VARIABLE = "PLACEMENT_DATABASE_MADE_READY"
LOG = logging.getLogger(__name__)
_SHOW_STATEMENTS, _SHOW_RESULTS = 50, 100
# Libraries with messages at level debug that are of no use here.
_QUIET = ["oslo_policy=INFO", "keystonemiddleware=INFO", "stevedore=INFO", "urllib3=INFO", "alembic=WARNING"]


class ConfigurationErrors(PlacementError):
    """An error with everything that is wrong in a configuration, a sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        several = f"{len(problems)} errors in the configuration"
        super().__init__(problems[0] if len(problems) == 1 else "\n  ".join((several, *problems)))


def read(files: Sequence[str] = (), directories: Sequence[str] = ()) -> tuple[cfg.ConfigOpts, Sequence[str]]:
    """Return the configuration of this process, and a sentence for each bad option or value in it.

    Raises PlacementError naming a file that is no configuration.
    """
    settings = cfg.ConfigOpts()
    log.register_options(settings)
    for group, options in GROUPS.items():
        settings.register_opts(options, group=None if group == configuration_files.SHARED else group)
    given = list(files) or configuration_files.default_files()
    problems = [
        each.sentence for each in configuration_files.unknown_options(given, directories) if each.is_refused
    ]
    try:
        settings(
            args=[], project="placement", default_config_files=given, default_config_dirs=list(directories)
        )
    except cfg.Error as error:
        raise PlacementError(": ".join((", ".join(given), " ".join(str(error).split())))) from None
    opts.set_defaults(settings)
    for group, options in (*GROUPS.items(), *opts.list_opts()):
        for option in options:
            try:
                (settings if group == configuration_files.SHARED else settings[group])[option.dest]
            except (cfg.Error, ValueError) as error:
                # The library begins with an object of its own, which has the file or variable in it.
                where, _, reason = str(error).partition(" is not valid: ")
                source = _SOURCE.search(where)
                start = f"{source[1]}: " if source else ""
                problems.append(f"{start}[{group}] {option.dest}: {reason or where}")
    former = settings.placement.policy_file
    if former and not is_set(settings, *_POLICY_FILE):
        settings.set_override(_POLICY_FILE[1], former, group=_POLICY_FILE[0])
    return settings, problems


def load(files: Sequence[str] = (), directories: Sequence[str] = ()) -> cfg.ConfigOpts:
    """Return the configuration of this process. Raises ConfigurationErrors, PlacementError as `read` does."""
    settings, problems = read(files, directories)
    if problems:
        raise ConfigurationErrors(problems)
    return settings


def require_strategy(settings: cfg.ConfigOpts) -> None:
    """Raise PlacementError unless the configuration says how callers are identified.

    The default serves configurations with Keystone; without any configuration nothing is chosen.
    """
    if not configuration_files.default_files() and not is_set(settings, "api", "auth_strategy"):
        raise PlacementError(
            "There is no configuration, so no caller is allowed: try the service out with "
            "`placement serve --demo`, or choose --auth or [api] auth_strategy, keystone or token for real "
            "use, noauth2 to believe every caller on this machine."
        )


def sets_new_defaults(settings: cfg.ConfigOpts) -> bool:
    """Return whether [oslo_policy] enforce_new_defaults is set."""
    return is_set(settings, "oslo_policy", "enforce_new_defaults")


def files_with_secrets(settings: cfg.ConfigOpts) -> Iterator[tuple[str, str]]:
    """Yield each file that has to be read by its owner only, and what is in it."""
    if settings.placement_database.password_file:
        yield settings.placement_database.password_file, "the password"
    if settings.kubernetes.kubeconfig:
        yield settings.kubernetes.kubeconfig, "the credentials"
    folders = [Path(folder) for folder in settings.config_dir or ()]
    inside = [str(path) for folder in folders for path in sorted(folder.glob("*.conf"))]
    for file in dict.fromkeys([*(settings.config_file or ()), *inside]):
        names = [f"[{group}] {name}" for group, name in _secrets_in(file)]
        if names:
            yield file, ", ".join(names)


def _secrets_in(file: str) -> Iterator[tuple[str, str]]:
    """Yield group and name of the options in a file that hold secrets.

    The URL of a database is a secret if there is a password in it.
    """
    for group, found in configuration_files.sections_of(file).items():
        options = [*GROUPS.get(group, ()), *(configuration_files.options_of(group) or ())]
        secret = configuration_files.names_of([option for option in options if option.secret])
        for name, values in found.items():
            is_secret = name.replace("-", "_") in secret or _SECRET.search(name) is not None
            shown = values
            if group == "placement_database":
                # connection, and connection_parameters, which is the query of a URL.
                shown = [value for value in values if has_password(value) or has_password(f"?{value}")]
            if is_secret and any(shown):
                yield group, name


def ignored_options() -> list[str]:
    """Return a sentence for each option of the files that has no effect, and is no reason not to start."""
    return [
        each.sentence
        for each in configuration_files.unknown_options(configuration_files.default_files(), ())
        if not each.is_refused
    ]


def warn(settings: cfg.ConfigOpts) -> None:
    """Log which options have no effect, and which of the configured files with secrets others may read."""
    for sentence in ignored_options():
        LOG.warning("%s", sentence)
    for file, what in files_with_secrets(settings):
        warn_if_readable(file, what)


def connection_of(settings: cfg.ConfigOpts) -> str:
    """Return the database URL. Raises PlacementError if there is none."""
    connection = settings.placement_database.connection
    if not connection:
        files = "".join(f"{file}: " for file in configuration_files.default_files())
        raise PlacementError(
            f"{files}no database is configured: give --database, or set [placement_database] connection or "
            f"{CONNECTION_VARIABLE}"
        )
    password_file = settings.placement_database.password_file
    if not password_file:
        return str(connection)
    if not has_accounts(connection):
        raise PlacementError("[placement_database] password_file is for PostgreSQL; SQLite has no passwords")
    return with_password_of(password_file, connection)


def open_database(settings: cfg.ConfigOpts) -> Database:
    """Return the configured database."""
    options = settings.placement_database
    database = Database(
        connection_of(settings),
        parameters=options.connection_parameters,
        pool_size=options.max_pool_size,
        max_overflow=options.max_overflow,
        pool_timeout=options.pool_timeout,
        recycle_seconds=options.connection_recycle_time,
        durable=options.sqlite_synchronous,
        attempts=settings.placement.allocation_conflict_retry_count,
        # The limit of a session, so that requests which just began need none of their own.
        statement_seconds=deadline_of(0.0, settings.api.request_timeout),
        audits=settings.audit.enabled,
    )
    Retention(database, datetime.timedelta(days=settings.audit.keep_days)).follow()
    return database


def limits_of(settings: cfg.ConfigOpts) -> WorkerLimits:
    """Return the limits for clients of the HTTP server."""
    return WorkerLimits(
        largest_body_bytes=settings.api.max_request_body_bytes,
        request_seconds=settings.api.request_timeout,
        requests_per_caller=settings.api.max_requests_per_caller,
    )


def tls_of(settings: cfg.ConfigOpts) -> Tls | None:
    """Return how to encrypt connections, None if not at all. Raises PlacementError naming option or file."""
    options = settings.ssl
    if not (options.cert_file or options.key_file or options.ca_file):
        return None
    for name in ("cert_file", "key_file"):
        if not options[name]:
            raise PlacementError(
                f"[ssl] {name} is not set: TLS takes cert_file and key_file, or --tls-cert and --tls-key"
            )
    return Tls(TlsFiles(options.cert_file, options.key_file, options.ca_file))


def make_ready(settings: cfg.ConfigOpts) -> str | None:
    """Make the database ready for the service, waiting while it cannot be reached; return its version.

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
    """Set up logging as configured, and log what is configured."""
    log.set_defaults(default_log_levels=[*log.get_default_log_levels(), *_QUIET])
    log.setup(settings, "placement")
    log_lines.shorten(settings)
    verbosity = settings.placement_database.connection_debug
    if verbosity >= _SHOW_STATEMENTS:
        logging.getLogger("sqlalchemy.engine").setLevel(
            logging.DEBUG if verbosity >= _SHOW_RESULTS else logging.INFO
        )
    if settings.log_options:
        settings.log_opt_values(log.getLogger("placement.settings"), log.DEBUG)
