"""`placement import` and `placement export`: moving over from OpenStack Placement, and back."""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from placement.operations.commands import connection
from placement.operations.commands.arguments import argument
from placement.operations.commands.display import Action

if TYPE_CHECKING:
    from placement.services.moving import Report

_ARGUMENTS = (
    argument(
        "incumbent",
        metavar="INCUMBENT",
        help="its database: a URL (SQLite, PostgreSQL, MySQL, MariaDB), or the placement.conf of OpenStack "
        "Placement that has it, which keeps the password off the command line",
    ),
    argument("--dry-run", action="store_true", help="do everything, say what it was, and undo it"),
    argument(
        "--remove",
        action="store_true",
        help="remove providers and consumers that only the target has; without it their presence is refused",
    ),
    *connection.OPTIONS,
)
_EVERY_SECONDS = 5.0
LOG = logging.getLogger("placement.command")


class ImportIncumbent(Action):
    """Make the database hold what one of OpenStack Placement holds.

    Everything is written in one transaction, compared with the source, and only then stored. What belongs to
    clusters stays. Repeating it writes what has changed since.
    """

    arguments = _ARGUMENTS

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Import and say what was done."""
        from placement.services import moving

        _run(parsed_args, lambda here, there, **how: moving.bring_in(there, here, **how))


class ExportIncumbent(Action):
    """Make a database of OpenStack Placement hold what this one holds: the way back.

    The tables have to be there; `placement-manage db sync` of OpenStack Placement makes them.
    """

    arguments = _ARGUMENTS

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Export and say what was done."""
        from placement.services import moving

        _run(parsed_args, moving.write_back)


def _run(parsed: argparse.Namespace, move: Callable[..., Report]) -> None:
    from placement.operations import settings

    loaded = connection.configure(parsed)
    owner = loaded.placement.incomplete_consumer_project_id, loaded.placement.incomplete_consumer_user_id
    report = move(
        settings.connection_of(loaded),
        _incumbent(parsed.incumbent),
        owner=owner,
        progress=Meter(),
        may_remove=parsed.remove,
        rehearse=parsed.dry_run,
    )
    _tell(report, parsed.dry_run)


def _incumbent(given: str) -> str:
    """The URL of the incumbent's database. Raises PlacementError for a file that has none."""
    from placement.operations import secrets
    from placement.operations.config_files import connection_in

    if "://" not in given:
        return connection_in(given)
    if secrets.has_password(given):
        LOG.warning(
            "INCUMBENT: everybody on this machine can see its password in the list of processes; "
            "name the placement.conf that has it instead"
        )
    return given


class Meter:
    """How far it is, on standard error: one line that changes on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._what = ""
        self._told = -math.inf
        self._width = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        """`done` of `total` are there."""
        is_terminal = sys.stderr.isatty()
        now = time.monotonic()
        ends = done >= total
        if what != self._what:
            self._what, self._told = what, -math.inf
        if not ends and now - self._told < (0.1 if is_terminal else _EVERY_SECONDS):
            return
        self._told = now
        line = f"{what}: {done} of {total}"
        # What is left of a longer line is written over.
        begin = f"\r{line:{self._width}}" if is_terminal else line
        self._width = 0 if ends else len(line)
        end = "\n" if ends or not is_terminal else ""
        print(begin, end=end, file=sys.stderr, flush=True)


def _tell(report: Report, is_rehearsed: bool) -> None:
    from placement.operations.tables import table

    rows = [(what, one.added, one.changed, one.removed) for what, one in report.changes.items()]
    print(table(("What", "Added", "Changed", "Removed"), rows))
    if report.completed_consumers:
        print(f"{report.completed_consumers} holders without a record were given one.")
    compared = ", ".join(f"{count} {what}" for what, count in report.compared.items())
    print(f"Compared with the source, and alike: {compared}.")
    print("Nothing was stored: --dry-run." if is_rehearsed else "Stored.")
