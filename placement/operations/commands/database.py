"""`placement db`: looking after the database schema."""

from __future__ import annotations

import argparse

from placement.operations.commands import connection
from placement.operations.commands.display import Action


class Upgrade(Action):
    """Bring the database schema to the newest version."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Where the database is."""
        parser = super().get_parser(prog_name)
        connection.add_options(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Upgrade and print the version."""
        from placement.services import schema

        url = connection.database_url(parsed_args)
        schema.upgrade(url)
        print(schema.version(url))


class Version(Action):
    """Print the version of the database schema."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Where the database is."""
        parser = super().get_parser(prog_name)
        connection.add_options(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print it."""
        from placement.services import schema

        print(schema.version(connection.database_url(parsed_args)))
