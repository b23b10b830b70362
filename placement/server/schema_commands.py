"""`placement db upgrade` and `placement db version`: looking after the database schema."""

from __future__ import annotations

import argparse
import sys

from placement.client.command import ActionCommand
from placement.server.sources import OPTIONS, database_url


class Upgrade(ActionCommand):
    """Bring the database schema to the newest version."""

    arguments = OPTIONS

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from placement.server import schema

        url = database_url(parsed_args)
        schema.upgrade(url, tell)
        print(schema.version(url))


class ShowSchemaVersion(ActionCommand):
    """Print the version of the database schema."""

    arguments = OPTIONS

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from placement.server import schema

        print(schema.version(database_url(parsed_args)))


def tell(line: str) -> None:
    """Print how far an upgrade is, on standard error."""
    print(line, file=sys.stderr, flush=True)
