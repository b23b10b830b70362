"""`placement import`, `export` and `verify`: moving over from OpenStack Placement, and back."""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from placement.client.arguments import argument, positive
from placement.client.client import Client
from placement.client.command import PROSE, ActionCommand, Prose
from placement.client.tables import ShownTable
from placement.migrate.comparison import Comparison, Difference
from placement.server import sources

if TYPE_CHECKING:
    from placement.migrate.migration import MigrationReport
_ARGUMENTS = (
    argument(
        "incumbent",
        metavar="INCUMBENT",
        help="its database: a URL (SQLite, PostgreSQL, MySQL, MariaDB), or the placement.conf of OpenStack "
        "Placement that has it, which keeps the password off the command line",
    ),
    argument("--dry-run", action="store_true", help="do everything, report it, and undo it"),
    argument(
        "--remove",
        action="store_true",
        help="remove providers and consumers that only the target has; without this option they are an error",
    ),
    *sources.OPTIONS,
)
_EVERY_SECONDS = 5.0
_MINUTES_FROM = 120
LOG = logging.getLogger("placement.command")


class ImportIncumbent(ActionCommand):
    """Make the database hold what one of OpenStack Placement holds.

    Everything is written in one transaction, compared with the source, and only then stored. What belongs to
    clusters stays. Repeating it writes what has changed since.
    """

    arguments = (
        *_ARGUMENTS,
        argument(
            "--skip-inconsistent",
            metavar="FILE",
            type=Path,
            help="leave out rows that refer to nothing, and write them to FILE, which must not exist yet; "
            "without this option they are an error, and the SQL that corrects them is printed",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from placement.migrate import moving

        skipped = parsed_args.skip_inconsistent
        _run(parsed_args, lambda here, there, **how: moving.bring_in(there, here, skipped=skipped, **how))


class ExportIncumbent(ActionCommand):
    """Make a database of OpenStack Placement hold what this one holds: the way back.

    The tables have to be there; `placement-manage db sync` of OpenStack Placement makes them.
    """

    arguments = _ARGUMENTS

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from placement.migrate import moving

        _run(parsed_args, moving.write_back)


class VerifyServices(Prose):
    """Compare two running placement services, ours or OpenStack Placement's, by reading both over HTTP.

    Prints what differs, class by class, and ends with 1 if anything does; a format such as -o json gives a
    row for each difference. The caller needs the right to read everything. `placement import --dry-run`
    compares databases instead, in seconds: it counts the rows that an import would write.
    """

    arguments = (
        argument("url_a", metavar="URL_A", help="one service"),
        argument("url_b", metavar="URL_B", help="the other service"),
        argument("--token-b", metavar="TOKEN", help="token for B, if it differs from --token"),
        argument("--sample", type=positive, metavar="N", help="read only N providers, chosen at random"),
        argument(
            "--clients", type=positive, default=4, metavar="N", help="readers at once (default %(default)s)"
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        token = self.app.options.token
        token_b = token if parsed_args.token_b is None else parsed_args.token_b
        comparison = Comparison(
            lambda: Client(parsed_args.url_a, token, "URL_A"),
            lambda: Client(parsed_args.url_b, token_b, "URL_B"),
            parsed_args.clients,
        )
        comparison.run(parsed_args.sample, Meter())
        self.exit_status = 1 if comparison.differences else 0
        compared = ", ".join(f"{count} {what}" for what, count in comparison.compared.items())
        count = len(comparison.differences)
        outcome = "no difference" if not count else f"{count} difference{'s' if count > 1 else ''}"
        summary = f"{compared}: {outcome}."
        if parsed_args.formatter == PROSE:
            return ("Differences",), [(line,) for line in (*map(str, comparison.differences), summary)]
        self.note(summary)
        return Difference._fields, comparison.differences


def _run(parsed: argparse.Namespace, move: Callable[..., MigrationReport]) -> None:
    from prettytable import PrettyTable

    from placement.server import settings

    loaded = sources.configure(parsed)
    owner = loaded.placement.incomplete_consumer_project_id, loaded.placement.incomplete_consumer_user_id
    report = move(
        settings.connection_of(loaded),
        _incumbent(parsed.incumbent),
        owner=owner,
        progress=Meter(),
        may_remove=parsed.remove,
        rehearse=parsed.dry_run,
    )
    rows = [[what, one.added, one.changed, one.removed] for what, one in report.changes.items()]
    differing = [row for row in rows if any(row[1:])]
    if differing:
        table = PrettyTable(["What", "Added", "Changed", "Removed"])
        table.add_rows(differing)
        print(table)
    else:
        print("Nothing differed.")
    for line in _remarks(report, getattr(parsed, "skip_inconsistent", None)):
        print(line)
    compared = ", ".join(f"{count} {what}" for what, count in report.compared.items())
    print(f"Compared with the source and equal: {compared}.")
    if not any(report.compared.values()):
        print("The source has nothing: is its connection right?")
    print("Nothing was stored: --dry-run." if parsed.dry_run else "Stored.")


def _remarks(report: MigrationReport, skipped: Path | None) -> Iterator[str]:
    """Yield a line for each thing that is not as the source has it."""
    if skipped is not None:
        yield f"Rows that refer to nothing, left out or corrected: {report.skipped_rows}; {skipped} has them."
    if report.completed_consumers:
        yield f"{report.completed_consumers} consumers without a record got one."
    if report.idle_consumers:
        yield f"Consumers that hold nothing, left out: {report.idle_consumers}."
    respelled = {title: count for title, count in report.respelled.items() if count}
    if respelled:
        listed = ", ".join(f"{count} {title}" for title, count in respelled.items())
        yield f"Uuids brought into canonical spelling: {listed}."
    if report.merged_aggregates:
        yield f"Aggregates merged with another spelling of their uuid: {report.merged_aggregates}."


def _incumbent(given: str) -> str:
    """Return the URL of the incumbent's database. Raises PlacementError for a file that has none."""
    from placement.common import secrets
    from placement.server.configuration_files import connection_in

    if "://" not in given:
        return connection_in(given)
    if secrets.has_password(given):
        LOG.warning(
            "INCUMBENT: any user of this machine sees its password in the list of processes; "
            "name the placement.conf that has it instead"
        )
    return given


class Meter:
    """A meter on standard error: one line that changes on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._what = ""
        self._told = -math.inf
        self._began = 0.0
        self._width = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` are there."""
        is_terminal = sys.stderr.isatty()
        now = time.monotonic()
        ends = done >= total
        if what != self._what:
            self._what, self._told, self._began = what, -math.inf, now
        if not ends and now - self._told < (0.1 if is_terminal else _EVERY_SECONDS):
            return
        self._told = now
        line = f"{what}: {done} of {total}"
        if not ends and now - self._began > _EVERY_SECONDS:
            left = (now - self._began) / done * (total - done)
            line += (
                f", about {left / 60:.0f} min left" if left > _MINUTES_FROM else f", about {left:.0f} s left"
            )
        # The rest of a longer line is written over.
        begin = f"\r{line:{self._width}}" if is_terminal else line
        self._width = 0 if ends else len(line)
        end = "\n" if ends or not is_terminal else ""
        print(begin, end=end, file=sys.stderr, flush=True)
