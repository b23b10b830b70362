"""`placement allocation`: what consumers hold."""

from __future__ import annotations

import argparse
from typing import Any

from placement.domain.errors import PlacementError
from placement.operations.commands import names
from placement.operations.commands.columns import Amounts
from placement.operations.commands.display import Action, Listing

_COLUMNS = ("Provider", "Amounts", "Project", "User", "Type", "UUID")


class ShowAllocation(Listing):
    """Show what a consumer holds, a row for each provider."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Who."""
        parser = super().get_parser(prog_name)
        _add_consumer(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and list."""
        client = self.client
        body = client.get(_path(parsed_args.consumer))
        held = body["allocations"]
        if not held:
            raise PlacementError(f"consumer {parsed_args.consumer} holds nothing")
        known = names.of(client, held)
        owner = (body["project_id"], body["user_id"], body["consumer_type"])
        return _COLUMNS, [
            (known.get(uuid, uuid), Amounts(entry["resources"]), *owner, uuid) for uuid, entry in held.items()
        ]


class DeleteAllocation(Action):
    """Release everything a consumer holds."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Who."""
        parser = super().get_parser(prog_name)
        _add_consumer(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Release it."""
        self.client.delete(_path(parsed_args.consumer))


def _add_consumer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("consumer", metavar="CONSUMER", help="uuid of the consumer")


def _path(consumer: str) -> str:
    from placement.operations.client import path

    return path("allocations", consumer)
