"""The `placement-status` command: the check whether a database may be upgraded to this version."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

from oslo_config import cfg
from oslo_policy import opts
from prettytable import HRuleStyle, PrettyTable

from placement.engine.domain.errors import PlacementError
from placement.server import schema, settings
from placement.server.manage import add_common, load, online_migrations
from placement.server.online_migrations import CREATE_CONSUMERS, SET_ROOTS

_CRASHED = 255


class Result(IntEnum):
    """The result of a check; the worst of all is the exit code."""

    SUCCESS = 0
    WARNING = 1
    FAILURE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    parser = argparse.ArgumentParser(prog="placement-status", description="Check a placement installation.")
    add_common(parser)
    categories = parser.add_subparsers(metavar="CATEGORY", required=True)
    actions = categories.add_parser("upgrade", help="upgrades").add_subparsers(
        metavar="ACTION", required=True
    )
    actions.add_parser("check", help="find obstacles to an upgrade")
    parsed = parser.parse_args(arguments)
    # The exit code tells operators' tools that nothing was found out; a person needs the reason.
    try:
        return _check(load(parsed))
    except PlacementError as error:
        print(f"placement-status: {error}", file=sys.stderr)
    except Exception:
        traceback.print_exc()
    return _CRASHED


def _check(loaded: cfg.ConfigOpts) -> int:
    """Print the result of each check, and what to do about it; return the worst."""
    if schema.version(settings.connection_of(loaded)) is None:
        raise PlacementError("the database has no tables yet; run `placement-manage db sync` first")
    migrations = online_migrations(loaded)
    roots, consumers = migrations.count(SET_ROOTS), migrations.count(CREATE_CONSUMERS)
    remedy = "Run `placement-manage db online_data_migrations`."
    opts.set_defaults(loaded)
    policy_file = loaded.oslo_policy.policy_file
    file = loaded.find_file(policy_file)
    checks: list[tuple[str, object, Result, str]] = [
        ("Missing Root Provider IDs", roots, Result.FAILURE, f"{roots} providers lack a root. {remedy}"),
        (
            "Incomplete Consumers",
            consumers,
            Result.WARNING,
            f"{consumers} consumers lack a record. {remedy}",
        ),
        (
            "Policy File JSON to YAML Migration",
            file and Path(file).suffix == ".json",
            Result.FAILURE,
            f"{policy_file} is JSON. "
            "Convert it with `oslopolicy-convert-json-to-yaml --namespace placement`.",
        ),
    ]
    table = PrettyTable(["Upgrade Check Results"], align="l", hrules=HRuleStyle.ALL)
    worst = Result.SUCCESS
    for name, is_wrong, result, details in checks:
        found = result if is_wrong else Result.SUCCESS
        shown = details if is_wrong else None
        table.add_row([f"Check: {name}\nResult: {found.name.title()}\nDetails: {shown}"])
        worst = max(worst, found)
    print(table)
    return worst


if __name__ == "__main__":
    sys.exit(main())
