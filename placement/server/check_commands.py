"""`placement config check` and `placement db check`: configurations and databases before a start."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from placement.client.arguments import argument
from placement.client.command import PROSE, Prose
from placement.engine.domain.errors import PlacementError
from placement.server.sources import OPTIONS, configure, name_sources

if TYPE_CHECKING:
    from placement.server.checks import Findings


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
        return diagnosis.SettingFinding._fields, [tuple(each) for each in found]


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
            help="list repairs that need no decision; nothing is changed",
        ),
        argument("--yes", action="store_true", help="with --repair: do it, in one transaction"),
        *OPTIONS,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        """Look, repair if that is asked for, and look again."""
        from placement.server import checks, online_migrations, settings

        if parsed_args.yes and not parsed_args.repair:
            raise PlacementError("--yes: is only for --repair")
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
    yield f"{errors} errors, {count - errors} warnings; {mendable} can be repaired with --repair."
    if not findings.are_pods_compared:
        yield "Pods and their allocations were not compared: the errors above come first."
