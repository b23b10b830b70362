"""`placement serve` and `placement db`: running the service, and looking after its database."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version as package_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement import DISTRIBUTION
from placement.client.display import PROSE, ActionCommand, Prose, argument, port_number, positive
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.identifiers import is_loopback

if TYPE_CHECKING:
    from oslo_config import cfg

    from placement.server.checks import Findings


# The options that say which database a command works on.


OPTIONS = (
    argument(
        "--database",
        metavar="URL",
        help="SQLite or PostgreSQL, before any configuration; without a password, which others could see",
    ),
    argument("--config-file", metavar="FILE", help="ini file with the options"),
)
LOG = logging.getLogger("placement.command")
# What the command says goes to the terminal, what the service says to its log.
_SERVICE_LOG = logging.getLogger(__name__)


def name_sources(parsed: argparse.Namespace, default: str | None = None) -> None:
    """Leave in the environment which file and database the arguments name, also for worker processes.

    `default` is the database if there is no configuration file at all. Raises PlacementError.
    """
    from placement.common import secrets
    from placement.server import settings

    if parsed.config_file:
        if not Path(parsed.config_file).is_file():
            raise PlacementError(f"--config-file: {parsed.config_file} is no file")
        os.environ[settings.FILE_VARIABLE] = parsed.config_file
    if parsed.database:
        if secrets.has_password(parsed.database):
            LOG.warning(
                "--database: any user of this machine sees its password in the list of processes; put it "
                "into [placement_database] password_file, ~/.pgpass or %s",
                settings.CONNECTION_VARIABLE,
            )
        os.environ[settings.CONNECTION_VARIABLE] = parsed.database
    elif default and not settings.configuration_files() and settings.CONNECTION_VARIABLE not in os.environ:
        os.environ[settings.CONNECTION_VARIABLE] = default


def configure(parsed: argparse.Namespace) -> cfg.ConfigOpts:
    """Return the configuration that the arguments name. Raises PlacementError."""
    from placement.server import settings

    name_sources(parsed)
    return settings.load()


def database_url(parsed: argparse.Namespace) -> str:
    """Return the URL of the configured database. Raises PlacementError."""
    from placement.server import settings

    return settings.connection_of(configure(parsed))


_HOST = "127.0.0.1"
_PORT = 8778
_BELIEVING = "noauth2"
_EVERYBODY = (
    "[api] auth_strategy is noauth2, so every caller on this machine is believed, and the user admin may "
    "do everything. For development only."
)


class Serve(ActionCommand):
    """Run the service."""

    arguments = (
        argument("--host", default=_HOST, help="address to listen on (default %(default)s)"),
        argument("--port", type=port_number, default=_PORT, help="port to listen on (default %(default)s)"),
        argument(
            "--workers",
            type=positive,
            help="worker processes (default as many as there are cores, at most four)",
        ),
        argument(
            "--auth",
            choices=("keystone", "token", _BELIEVING),
            help="how callers are identified, before any configuration; noauth2 believes every caller on "
            "this machine",
        ),
        argument(
            "--demo",
            action="store_true",
            help="load the example clusters into an empty database, and believe every caller on this machine "
            "unless something else is configured",
        ),
        argument(
            "--allow-remote-noauth",
            action="store_true",
            help="believe callers on other machines, too, and listen beyond loopback",
        ),
        argument(
            "--tls-cert", metavar="FILE", help="speak TLS with this certificate, before any configuration"
        ),
        argument("--tls-key", metavar="FILE", help="its key"),
        argument(
            "--tls-client-ca",
            metavar="FILE",
            help="answer only clients with a certificate of this authority, except for probes",
        ),
        *OPTIONS,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Make the database ready and serve until stopped."""
        from placement.metrics import sharing

        # Before anything is imported that counts.
        sharing.share()
        from placement.common import secrets
        from placement.server import demonstration, settings
        from placement.server.preparation import prepare
        from placement.server.processes import Server, default_workers, listening

        loaded = _configure(parsed_args)
        host, port = parsed_args.host, parsed_args.port
        url = settings.connection_of(loaded)
        tls = settings.tls_of(loaded)
        workers = parsed_args.workers or default_workers()
        settings.warn_of_open_secrets(loaded)
        listener = listening(host, port)
        version = settings.make_ready(loaded)
        os.environ[settings.MADE_READY_VARIABLE] = "1"
        _SERVICE_LOG.info(
            "%s %s, Python %s", DISTRIBUTION, package_version(DISTRIBUTION), platform.python_version()
        )
        _SERVICE_LOG.info("database %s, schema %s", secrets.shown(url), version)
        _SERVICE_LOG.info("callers: %s; workers: %d", loaded.api.auth_strategy, workers)
        _SERVICE_LOG.info(
            "TLS: %s", "no" if tls is None else f"yes, with the certificate in {tls.files.certificate}"
        )
        if parsed_args.demo:
            demonstration.load_into_empty(url)

        def greet() -> None:
            if loaded.api.auth_strategy == _BELIEVING:
                print(_EVERYBODY)
            demonstration.greet(host, port, url, with_examples=parsed_args.demo, encrypted=tls is not None)

        Server(listener, workers, lambda: settings.limits_of(prepare()), greet, tls).run()


def _configure(parsed: argparse.Namespace) -> cfg.ConfigOpts:
    """Return the configuration that the arguments choose, and leave it in the environment for workers.

    Tokens and rules are read here: what workers cannot use would only show when they start, one after the
    other. Raises PlacementError, also where every caller on other machines would be believed.
    """
    from placement.http.policy_files import is_set
    from placement.server import settings
    from placement.server.preparation import prepare

    name_sources(parsed, default=settings.DEMONSTRATION if parsed.demo else None)
    if parsed.allow_remote_noauth:
        os.environ[settings.REMOTE_VARIABLE] = "True"
    for variable, file in zip(
        settings.TLS_VARIABLES, (parsed.tls_cert, parsed.tls_key, parsed.tls_client_ca), strict=True
    ):
        if file:
            os.environ[variable] = file
    chosen, (loaded, _) = parsed.auth, settings.read()
    if chosen is None and parsed.demo and not is_set(loaded, "api", "auth_strategy"):
        chosen = _BELIEVING
    if chosen is not None:
        os.environ[settings.STRATEGY_VARIABLE] = chosen
    if chosen == _BELIEVING and not settings.sets_new_defaults(loaded):
        # The user admin passes every rule, unless the configuration says otherwise.
        os.environ[settings.NEW_DEFAULTS_VARIABLE] = "False"
    loaded, problems = settings.read()
    if not problems:
        settings.start_logging(loaded)
    prepare()
    believing = loaded.api.auth_strategy == _BELIEVING and not loaded.api.allow_remote_noauth
    if believing and not is_loopback(parsed.host):
        raise PlacementError(
            f"--host: {parsed.host} is not a loopback address, and with auth_strategy noauth2 every caller "
            "is believed. Listen on 127.0.0.1, or give --allow-remote-noauth if that is what you want."
        )
    return loaded


# `placement config check`: whether the service would start, and what will need attention.


class CheckConfiguration(Prose):
    """Check configuration, tokens, rules, certificates, database, schema and clock before a start.

    Nothing is changed, and the service may be running. Ends with 1 if there are errors.
    """

    arguments = OPTIONS

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        """Look at everything, and list what is well and what is not."""
        from placement.server import diagnosis

        name_sources(parsed_args)
        found = list(diagnosis.findings())
        self.exit_status = int(any(each.severity == diagnosis.ERROR for each in found))
        if parsed_args.formatter == PROSE:
            return ("Findings",), [(f"{each.severity}: {each.subject}: {each.sentence}",) for each in found]
        return diagnosis.Finding._fields, [tuple(each) for each in found]


# `placement db check`: whether a database is as it must be.


_COLUMNS = ("severity", "invariant", "finding", "repair")
# By whether it is a warning.
_SEVERITY = ("error", "warning")


class CheckDatabase(Prose):
    """Find what must not be in a database: sums that differ, dangling rows, loops, CPUs with two owners.

    The service may be running. Ends with 1 if there are errors; warnings may come about in ordinary use.
    """

    arguments = (
        argument(
            "--repair",
            action="store_true",
            help="list what could be put right without a decision; nothing is changed",
        ),
        argument("--yes", action="store_true", help="with --repair: do it, in one transaction"),
        *OPTIONS,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        """Look, repair if that is asked for, and look again."""
        from placement.server import checks, online_migrations, settings

        if parsed_args.yes and not parsed_args.repair:
            raise PlacementError("--yes: it says that --repair shall be done, and --repair is not there")
        loaded = configure(parsed_args)
        owner = online_migrations.owner_of(loaded)
        url = settings.connection_of(loaded)
        findings = checks.check(url, owner)
        if parsed_args.yes and any(one.remedy for one in findings.violations):
            checks.repair(url, owner)
            before, findings = findings, checks.check(url, owner)
            left = {one.sentence for one in findings.violations}
            for one in before.violations:
                if one.remedy and one.sentence not in left:
                    self.note(f"repaired: {one.sentence}")
        self.exit_status = int(bool(findings.errors))
        if parsed_args.formatter == PROSE:
            lines = _lines(findings, shows_remedies=parsed_args.repair)
            return ("Findings",), [(line,) for line in lines]
        return _COLUMNS, [
            (_SEVERITY[one.is_warning], one.invariant, one.sentence, one.remedy)
            for one in findings.violations
        ]


def _lines(findings: Findings, *, shows_remedies: bool) -> Iterator[str]:
    for one in findings.violations:
        yield f"{_SEVERITY[one.is_warning]}: {one.sentence} [{one.invariant}]"
        if shows_remedies:
            yield f"    --repair --yes would {one.remedy}" if one.remedy else "    needs a person"
    errors, count = len(findings.errors), len(findings.violations)
    if not count:
        yield "Everything holds."
        return
    mendable = sum(bool(one.remedy) for one in findings.violations)
    yield f"{errors} errors, {count - errors} warnings; {mendable} can be put right by --repair."
    if not findings.are_pods_compared:
        yield "What pods hold was not compared with the pods, for that the rest has to be well."


# `placement db`: looking after the database schema.


def tell(line: str) -> None:
    """Print how far an upgrade is, on standard error."""
    print(line, file=sys.stderr, flush=True)


class Upgrade(ActionCommand):
    """Bring the database schema to the newest version."""

    arguments = OPTIONS

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Upgrade and print the version."""
        from placement.server import schema

        url = database_url(parsed_args)
        schema.upgrade(url, tell)
        print(schema.version(url))


class ShowSchemaVersion(ActionCommand):
    """Print the version of the database schema."""

    arguments = OPTIONS

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print it."""
        from placement.server import schema

        print(schema.version(database_url(parsed_args)))
