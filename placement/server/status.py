"""The `placement-status` command: the check whether a database may be upgraded to this version."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from oslo_config import cfg
from oslo_policy import opts
from prettytable import HRuleStyle, PrettyTable

from placement.engine.domain.errors import PlacementError
from placement.server import schema, settings
from placement.server.manage import add_common, load, online_migrations

_CRASHED = 255


class Result(IntEnum):
    """The result of a check; the worst of all is the exit code."""

    SUCCESS = 0
    WARNING = 1
    FAILURE = 2


class Finding(NamedTuple):
    """A result and what to do about it."""

    result: Result
    details: str | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    parser = argparse.ArgumentParser(prog="placement-status", description="Check a placement installation.")
    add_common(parser)
    categories = parser.add_subparsers(metavar="CATEGORY", required=True)
    actions = categories.add_parser("upgrade", help="upgrades").add_subparsers(
        metavar="ACTION", required=True
    )
    actions.add_parser("check", help="find what stands in the way of an upgrade")
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
    if schema.version(settings.connection_of(loaded)) is None:
        raise PlacementError("the database has no tables yet; run `placement-manage db sync` first")
    found = [(name, check(loaded)) for name, check in _CHECKS.items()]
    table = PrettyTable(["Upgrade Check Results"], align="l", hrules=HRuleStyle.ALL)
    for name, finding in found:
        table.add_row([f"Check: {name}\nResult: {finding.result.name.title()}\nDetails: {finding.details}"])
    print(table)
    return max(finding.result for _, finding in found)


def _missing_roots(loaded: cfg.ConfigOpts) -> Finding:
    count = online_migrations(loaded).rootless_providers()
    if count:
        return Finding(
            Result.FAILURE,
            f"{count} providers lack a root. Run `placement-manage db online_data_migrations`.",
        )
    return Finding(Result.SUCCESS)


def _incomplete_consumers(loaded: cfg.ConfigOpts) -> Finding:
    count = online_migrations(loaded).incomplete_consumers()
    if count:
        return Finding(
            Result.WARNING,
            f"{count} consumers lack a record. Run `placement-manage db online_data_migrations`.",
        )
    return Finding(Result.SUCCESS)


def _policy_file(loaded: cfg.ConfigOpts) -> Finding:
    opts.set_defaults(loaded)
    configured = loaded.oslo_policy.policy_file
    found = loaded.find_file(configured)
    if found and Path(found).suffix == ".json":
        return Finding(
            Result.FAILURE,
            f"{configured} is JSON. Convert it with `oslopolicy-convert-json-to-yaml --namespace placement`.",
        )
    return Finding(Result.SUCCESS)


_CHECKS: dict[str, Callable[[cfg.ConfigOpts], Finding]] = {
    "Missing Root Provider IDs": _missing_roots,
    "Incomplete Consumers": _incomplete_consumers,
    "Policy File JSON to YAML Migration": _policy_file,
}

if __name__ == "__main__":
    sys.exit(main())
