"""`placement db`: looking after the database schema."""

from __future__ import annotations

import argparse
import sys

from placement.operations.commands import connection
from placement.operations.commands.display import Action


def tell(line: str) -> None:
    """Print how far an upgrade is, on standard error."""
    print(line, file=sys.stderr, flush=True)


class Upgrade(Action):
    """Bring the database schema to the newest version."""

    arguments = connection.OPTIONS

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Upgrade and print the version."""
        from placement.services import schema

        url = connection.database_url(parsed_args)
        schema.upgrade(url, tell)
        print(schema.version(url))


class Version(Action):
    """Print the version of the database schema."""

    arguments = connection.OPTIONS

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print it."""
        from placement.services import schema

        print(schema.version(connection.database_url(parsed_args)))
