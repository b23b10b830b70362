"""`placement db check`: whether a database is as it must be."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from placement.domain.errors import PlacementError
from placement.operations.commands import connection
from placement.operations.commands.arguments import argument
from placement.operations.commands.display import PROSE, Prose

if TYPE_CHECKING:
    from placement.services.checking import Findings, Violation

_COLUMNS = ("severity", "invariant", "finding", "repair")


class Check(Prose):
    """Find what must not be in a database: sums that differ, rows without others, loops, CPUs of two owners.

    The service may be running. Ends with 1 if there are errors; warnings may come about in ordinary use.
    """

    arguments = (
        argument(
            "--repair",
            action="store_true",
            help="say what could be put right without anybody's decision; nothing is changed",
        ),
        argument("--yes", action="store_true", help="with --repair: do it, in one transaction"),
        *connection.OPTIONS,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        """Look, repair if that is asked for, and look again."""
        from placement.operations import settings
        from placement.services import checking
        from placement.services.online_migrations import Owner

        if parsed_args.yes and not parsed_args.repair:
            raise PlacementError("--yes: it says that --repair shall be done, and --repair is not there")
        loaded = connection.configure(parsed_args)
        incomplete = loaded.placement
        owner = Owner(incomplete.incomplete_consumer_project_id, incomplete.incomplete_consumer_user_id)
        url = settings.connection_of(loaded)
        findings = checking.check(url, owner)
        if parsed_args.yes and any(one.remedy for one in findings.violations):
            checking.repair(url, owner)
            before, findings = findings, checking.check(url, owner)
            left = {one.sentence for one in findings.violations}
            for one in before.violations:
                if one.remedy and one.sentence not in left:
                    self.note(f"repaired: {one.sentence}")
        self.exit_status = int(bool(findings.errors))
        if parsed_args.formatter == PROSE:
            lines = _told(findings, shows_remedies=parsed_args.repair)
            return ("Findings",), [(line,) for line in lines]
        return _COLUMNS, [
            (_severity(one), one.invariant, one.sentence, one.remedy) for one in findings.violations
        ]


def _severity(violation: Violation) -> str:
    return "warning" if violation.is_warning else "error"


def _told(findings: Findings, *, shows_remedies: bool) -> Iterator[str]:
    for one in findings.violations:
        yield f"{_severity(one)}: {one.sentence} [{one.invariant}]"
        if shows_remedies:
            yield f"    --repair --yes would {one.remedy}" if one.remedy else "    needs a person"
    errors, all_found = len(findings.errors), len(findings.violations)
    if not all_found:
        yield "Everything holds."
        return
    mendable = sum(bool(one.remedy) for one in findings.violations)
    yield f"{errors} errors, {all_found - errors} warnings; {mendable} can be put right by --repair."
    if not findings.are_pods_compared:
        yield "What pods hold was not compared with the pods, for that the rest has to be well."
