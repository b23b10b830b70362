"""`placement allocation`: what consumers hold."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from placement.domain.errors import PlacementError
from placement.operations.commands import names
from placement.operations.commands.arguments import argument, positive
from placement.operations.commands.columns import ResourceAmounts
from placement.operations.commands.display import Action, Listing
from placement.operations.commands.pages import PagedList

if TYPE_CHECKING:
    from placement.operations.client import Client

_LISTED = ("Consumer", "Provider", "Amounts", "Project", "User", "Type", "Cluster", "UUID", "Dedicated CPUs")
_COLUMNS = ("Provider", "Amounts", "Project", "User", "Type", "UUID")
_CONSUMER = argument("consumer", metavar="CONSUMER", help="uuid of the consumer")


class ListAllocations(Listing):
    """List allocations, a row for each provider of each consumer.

    Formats that are written row by row, csv and value, begin with the first page of the service.
    """

    arguments = (
        argument("--project", help="of consumers of this project"),
        argument("--user", help="of consumers of this user"),
        argument("--type", help="of consumers of this type; unknown: without a type"),
        argument("--provider", metavar="UUID_OR_NAME", help="on this provider"),
        argument("--cluster", help="on providers of this cluster"),
        argument("--limit", type=positive, metavar="N", help="of so many consumers at most"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask page by page and list."""
        client = self.client
        given = {
            "project_id": parsed_args.project,
            "user_id": parsed_args.user,
            "consumer_type": parsed_args.type,
            "cluster": parsed_args.cluster,
        }
        if parsed_args.provider is not None:
            given["resource_provider"] = names.provider(client, parsed_args.provider)["uuid"]
        consumers = PagedList(client, "/ext/v1/allocations", "consumers", "after").entries(
            given, parsed_args.limit
        )
        return _LISTED, (row for consumer in consumers for row in _rows(consumer))


class ShowAllocation(Listing):
    """Show what a consumer holds, a row for each provider, and which CPUs of its guest are dedicated."""

    arguments = (_CONSUMER,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and list."""
        client = self.client
        body = client.get(_path(parsed_args.consumer))
        held = body["allocations"]
        if not held:
            raise PlacementError(f"consumer {parsed_args.consumer} holds nothing")
        known = names.of(client, held)
        cpus = _dedicated_cpus(client, parsed_args.consumer)
        if cpus:
            self.note(f"dedicated CPUs of the guest: {cpus}")
        owner = (body["project_id"], body["user_id"], body["consumer_type"])
        return _COLUMNS, [
            (known.get(uuid, uuid), ResourceAmounts(entry["resources"]), *owner, uuid)
            for uuid, entry in held.items()
        ]


class DeleteAllocation(Action):
    """Release everything a consumer holds."""

    arguments = (_CONSUMER,)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Release it."""
        self.client.delete(_path(parsed_args.consumer))


def _rows(consumer: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    uuid = consumer["consumer_uuid"]
    owner = (consumer["project_id"], consumer["user_id"], consumer["consumer_type"])
    for provider, held in consumer["allocations"].items():
        amounts, cpus = ResourceAmounts(held["resources"]), consumer.get("dedicated_cpus")
        yield uuid, held["name"], amounts, *owner, held["cluster"], provider, cpus


def _dedicated_cpus(client: Client, consumer: str) -> str | None:
    """The dedicated CPUs of the guest, if the service keeps them and shows them. Raises ServiceError."""
    from placement.operations.client import ServiceError

    try:
        listed = client.get("/ext/v1/allocations", [("consumer_uuid", consumer)])["consumers"]
    except ServiceError as error:
        # The incumbent has no such path, and not everybody may list.
        if error.status in (403, 404):
            return None
        raise
    found: str | None = next((each.get("dedicated_cpus") for each in listed), None)
    return found


def _path(consumer: str) -> str:
    from placement.operations.client import path

    return path("allocations", consumer)
