"""`placement allocation`: what consumers hold."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from placement.client.arguments import argument, consumer_uuid, limit
from placement.client.cells import TextCell, amounts, owner
from placement.client.command import PROSE, ActionCommand, Prose
from placement.client.provider_names import find_provider, fold, names_of
from placement.client.tables import ShownTable
from placement.engine.domain.errors import PlacementError

if TYPE_CHECKING:
    from placement.client.client import Client

_LISTED = ("consumer", "provider", "amounts", "project", "user", "type", "cluster", "uuid", "dedicated_cpus")
_COLUMNS = ("provider", "amounts", "project", "user", "type", "uuid")
_TEXT = ("Allocations",)
_SHOWN = 20
_CONSUMER = argument("consumer", metavar="CONSUMER", type=consumer_uuid, help="uuid of the consumer")


class ListAllocations(Prose):
    """List allocations: consumers with their providers, or a row for each provider of each consumer.

    Formats that are written row by row, csv and value, begin with the first page of the service.
    """

    arguments = (
        argument("--project", help="of consumers of this project"),
        argument("--user", help="of consumers of this user"),
        argument("--type", help="of consumers of this type; unknown: without a type"),
        argument(
            "--provider",
            metavar="UUID_OR_NAME",
            help="on this host with its parts, or another provider",
        ),
        argument("--class", dest="resource_class", help="of this resource class only, such as PGPU"),
        argument("--cluster", help="on providers of this cluster"),
        limit(f"of N consumers at most (default {_SHOWN} in tables)"),
    )
    left_out_first = ("dedicated_cpus", "uuid", "user", "type", "cluster", "project")
    kept = ("provider", "amounts")
    nothing = "allocations"
    filters = ("project", "user", "type", "provider", "resource_class", "cluster")

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        client = self.client
        wanted = {
            "project_id": parsed_args.project,
            "user_id": parsed_args.user,
            "consumer_type": parsed_args.type,
            "cluster": parsed_args.cluster,
            "resource_class": parsed_args.resource_class,
        }
        if parsed_args.provider is not None:
            provider = find_provider(client, parsed_args.provider)
            # Of a host all parts are meant.
            is_host = provider["uuid"] == provider["root_provider_uuid"]
            wanted["host" if is_host else "resource_provider"] = provider["uuid"]
        path = "/ext/v1/allocations"
        consumers = self.entries(parsed_args, path, "consumers", "after", wanted, _SHOWN)
        if parsed_args.formatter == PROSE:
            return _TEXT, [(line,) for consumer in consumers for line in _describe(consumer)]
        return _LISTED, (
            (
                consumer["consumer_uuid"],
                held["name"],
                amounts(held["resources"]),
                *_owner(consumer, whole=parsed_args.wide),
                held["cluster"],
                provider,
                consumer.get("dedicated_cpus"),
            )
            for consumer in consumers
            for provider, held in consumer["allocations"].items()
        )


class ShowAllocation(Prose):
    """Show the allocations of a consumer by provider, and the dedicated CPUs of its guest."""

    arguments = (_CONSUMER,)
    left_out_first = ("uuid", "user", "type", "project")

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        client = self.client
        body = client.get(_path(parsed_args.consumer))
        held = body["allocations"]
        if not held:
            raise PlacementError(f"consumer {parsed_args.consumer} holds nothing")
        known = names_of(client, held)
        cpus = _dedicated_cpus(client, parsed_args.consumer)
        if cpus:
            self.note(f"dedicated CPUs of the guest: {cpus}")
        if parsed_args.formatter == PROSE:
            named = {uuid: {**entry, "name": known.get(uuid, uuid)} for uuid, entry in held.items()}
            consumer = {**body, "consumer_uuid": parsed_args.consumer, "allocations": named}
            return _TEXT, [(line,) for line in _describe(consumer)]
        return _COLUMNS, [
            (known.get(uuid, uuid), amounts(entry["resources"]), *_owner(body, whole=parsed_args.wide), uuid)
            for uuid, entry in held.items()
        ]


class DeleteAllocation(ActionCommand):
    """Release everything a consumer holds."""

    arguments = (_CONSUMER,)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.client.delete(_path(parsed_args.consumer))


def _owner(consumer: Mapping[str, Any], *, whole: bool) -> tuple[TextCell, TextCell, str]:
    project, user = (owner(consumer[name], whole=whole) for name in ("project_id", "user_id"))
    return project, user, consumer["consumer_type"]


def _describe(consumer: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about a consumer: its owner, and what it holds of each provider or row of alike ones."""
    project, user, kind = _owner(consumer, whole=False)
    yield consumer["consumer_uuid"]
    yield f"   {kind} of project {project}, user {user}"
    held = [(entry["name"], entry["resources"]) for entry in consumer["allocations"].values()]
    for name, each, count in fold(held):
        suffix = " each" if count > 1 else ""
        yield f"   {name}"
        yield from (f"      {resource}={amount}{suffix}" for resource, amount in sorted(each.items()))
    if consumer.get("dedicated_cpus"):
        yield f"   dedicated CPUs of the guest: {consumer['dedicated_cpus']}"


def _dedicated_cpus(client: Client, consumer: str) -> str | None:
    """Return the dedicated CPUs of the guest if the service keeps and shows them. Raises ServiceError."""
    from placement.client.client import ServiceError

    try:
        listed = client.get("/ext/v1/allocations", [("consumer_uuid", consumer)])["consumers"]
    except ServiceError as error:
        # OpenStack Placement has no such path, and not every caller may list.
        if error.status in (403, 404):
            return None
        raise
    found: str | None = next((each.get("dedicated_cpus") for each in listed), None)
    return found


def _path(consumer: str) -> str:
    from placement.client.client import path

    return path("allocations", consumer)
