"""The `placement` command."""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from placement.domain.errors import PlacementError
from placement.operations import demonstration, settings
from placement.operations.server import Server, default_workers
from placement.services import schema

_DEFAULT_DATABASE = "sqlite:///var/placement.sqlite"
_HOST = "127.0.0.1"
_PORT = 8778


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        return int(parsed.run(parsed) or 0)
    except PlacementError as error:
        print(f"placement: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="placement", description="A resource allocation service.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="run the service")
    serve.add_argument("--host", default=_HOST, help="address to listen on (default %(default)s)")
    serve.add_argument("--port", type=int, default=_PORT, help="port to listen on (default %(default)s)")
    serve.add_argument("--workers", type=int, default=default_workers(), help="worker processes")
    serve.add_argument("--demo", action="store_true", help="load the example clusters into an empty database")
    serve.add_argument(
        "--allow-remote-noauth",
        action="store_true",
        help="listen beyond loopback although every caller is believed",
    )
    serve.set_defaults(run=_serve)
    database = commands.add_parser("db", help="look after the database schema")
    actions = database.add_subparsers(title="actions", required=True, metavar="ACTION")
    upgrade = actions.add_parser("upgrade", help="bring the schema to the newest version")
    upgrade.set_defaults(run=_upgrade)
    version = actions.add_parser("version", help="print the schema version")
    version.set_defaults(run=_version)
    for command in (serve, upgrade, version):
        command.add_argument(
            "--database", metavar="URL", help="SQLite or PostgreSQL, before any configuration"
        )
        command.add_argument("--config-file", metavar="FILE", help="ini file with the options")
    return parser


def _connection(parsed: argparse.Namespace) -> str:
    """The database URL, left in the environment for the worker processes."""
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


def _serve(parsed: argparse.Namespace) -> int:
    connection = _connection(parsed)
    if not parsed.allow_remote_noauth and not _is_loopback(parsed.host):
        raise PlacementError(
            f"--host: {parsed.host} is not a loopback address, and with auth_strategy noauth2 every "
            "caller is believed. Listen on 127.0.0.1, or give --allow-remote-noauth if that is what you want."
        )
    schema.make_ready(connection)
    if parsed.demo:
        demonstration.load_into_empty(connection)
    demonstration.greet(parsed.host, parsed.port, connection, with_examples=parsed.demo)
    Server(parsed.host, parsed.port, parsed.workers).run()
    return 0


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _upgrade(parsed: argparse.Namespace) -> int:
    schema.upgrade(_connection(parsed))
    return _version(parsed)


def _version(parsed: argparse.Namespace) -> int:
    print(schema.version(_connection(parsed)))
    return 0
