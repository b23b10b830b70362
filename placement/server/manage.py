"""The `placement-manage` command, as operators of OpenStack Placement know it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version as package_version

from oslo_config import cfg
from prettytable import PrettyTable

from placement import DISTRIBUTION
from placement.engine.domain.errors import PlacementError
from placement.server import schema, settings
from placement.server.online_migrations import MigrationBatch, OnlineMigrations, owner_of
from placement.server.schema_commands import tell

_BATCH = 50
_NOTHING_LEFT, _SOMETHING_DONE, _STUCK, _BAD_COUNT = 0, 1, 2, 127


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if parsed.run is None:
        parsed.shown.print_help()
        return int(parsed.exit_code)
    try:
        loaded = load(parsed)
        return int(parsed.run(parsed, loaded) or 0)
    except PlacementError as error:
        print(f"placement-manage: {error}", file=sys.stderr)
        return 1


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that all commands for operators have."""
    parser.add_argument("--config-file", action="append", default=[], metavar="FILE", help="ini file")
    parser.add_argument("--config-dir", action="append", default=[], metavar="DIR", help="its *.conf files")
    parser.add_argument("--debug", action="store_true", help="log at level debug")
    parser.add_argument("--version", action="version", version=package_version(DISTRIBUTION))


def load(parsed: argparse.Namespace) -> cfg.ConfigOpts:
    """Return the configuration that the arguments name."""
    loaded = settings.load(parsed.config_file, parsed.config_dir)
    if parsed.debug:
        loaded.set_override("debug", True)
    settings.start_logging(loaded)
    return loaded


def online_migrations(loaded: cfg.ConfigOpts) -> OnlineMigrations:
    """Return the migrations of the configured database."""
    return OnlineMigrations(settings.open_database(loaded), owner_of(loaded))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="placement-manage", description="Look after a placement database.")
    add_common(parser)
    parser.set_defaults(run=None, shown=parser, exit_code=1)
    database = parser.add_subparsers(metavar="CATEGORY").add_parser("db", help="the database")
    database.set_defaults(shown=database, exit_code=0)
    actions = database.add_subparsers(metavar="ACTION")
    sync = actions.add_parser("sync", help="bring the schema to the newest version")
    sync.set_defaults(run=lambda _, loaded: schema.upgrade(settings.connection_of(loaded), tell))
    version = actions.add_parser("version", help="print the schema version")
    version.set_defaults(run=lambda _, loaded: print(schema.version(settings.connection_of(loaded))))
    stamp = actions.add_parser("stamp", help="record a schema version without running migrations")
    stamp.add_argument("revision", metavar="VERSION")
    stamp.set_defaults(
        run=lambda parsed, loaded: schema.stamp(settings.connection_of(loaded), parsed.revision)
    )
    online = actions.add_parser("online_data_migrations", help="complete rows that older versions left")
    online.add_argument("--max-count", metavar="N", help="how many rows at most; without it all, in batches")
    online.set_defaults(run=_online_data_migrations)
    return parser


def _online_data_migrations(parsed: argparse.Namespace, loaded: cfg.ConfigOpts) -> int:
    count = parsed.max_count
    if count is not None and not (count.isascii() and count.isdecimal() and int(count[:9]) > 0):
        print("Must supply a positive value for max_count", file=sys.stderr)
        return _BAD_COUNT
    if count is None:
        print(f"Running batches of {_BATCH} until complete")
    runs, error = _run_batches(loaded, None if count is None else int(count[:9]))
    if error is not None:
        print(f"placement-manage: {error}", file=sys.stderr)
    _print_totals(runs)
    latest = runs[-1] if runs else []
    if any(batch.completed for batch in latest):
        return _NOTHING_LEFT if count is None else _SOMETHING_DONE
    is_left = error is not None or any(batch.found > batch.completed for batch in latest)
    return _STUCK if is_left else _NOTHING_LEFT


def _run_batches(
    loaded: cfg.ConfigOpts, most: int | None
) -> tuple[list[list[MigrationBatch]], PlacementError | None]:
    """Run batches until one completes nothing, or a single one of `most` rows.

    Return the batches of each run, and the error that ended them, if one did.
    """
    runs: list[list[MigrationBatch]] = []
    try:
        while not runs or (most is None and any(batch.completed for batch in runs[-1])):
            runs.append(online_migrations(loaded).run(most or _BATCH))
    except PlacementError as error:
        return runs, error
    return runs, None


def _print_totals(runs: Sequence[Sequence[MigrationBatch]]) -> None:
    """Print how many rows each migration found, and how many it completed."""
    totals: dict[str, list[int]] = {}
    for batch in (batch for run in runs for batch in run):
        total = totals.setdefault(batch.name, [0, 0])
        total[0] += batch.found
        total[1] += batch.completed
    table = PrettyTable(["Migration", "Total Found", "Completed"])
    table.add_rows([[name, *total] for name, total in sorted(totals.items())])
    print(table)


if __name__ == "__main__":
    sys.exit(main())
