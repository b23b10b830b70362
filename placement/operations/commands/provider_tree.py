"""A provider tree as the commands handle it, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from placement.domain.inventory import Inventory
from placement.operations.commands import names
from placement.operations.commands.columns import Lines

if TYPE_CHECKING:
    from placement.operations.client import Client

COLUMNS = ("Provider", "Parent", "Resource", "Used", "Capacity", "Traits", "UUID")


class Level(NamedTuple):
    """How much of a resource class there is, and how much of it is used."""

    used: int
    capacity: int


@dataclass(slots=True)
class Provider:
    """A provider with those below it."""

    uuid: str
    name: str
    traits: Sequence[str]
    levels: Mapping[str, Level]
    children: list[Provider] = field(default_factory=list)


def rows(provider: Provider, parent: str | None = None) -> Iterator[tuple[Any, ...]]:
    """A row for each resource class of each provider, parents first; one row where there is none."""
    described = Lines(provider.traits), provider.uuid
    if not provider.levels:
        yield provider.name, parent, None, 0, 0, *described
    for name, level in sorted(provider.levels.items()):
        yield provider.name, parent, name, *level, *described
    for child in provider.children:
        yield from rows(child, provider.name)


def from_node(body: Mapping[str, Any]) -> Provider:
    """The tree in the description of a node."""
    return Provider(
        body["uuid"],
        body["name"],
        body["traits"],
        {name: Level(record["used"], record["capacity"]) for name, record in body["resources"].items()},
        [from_node(child) for child in body["children"]],
    )


def fetch(client: Client, uuid_or_name: str) -> Provider:
    """The whole tree that the provider is in, by what every placement service offers."""
    root = names.provider(client, uuid_or_name)["root_provider_uuid"]
    listed = client.get("/resource_providers", [("in_tree", root)])["resource_providers"]
    providers = {entry["uuid"]: _described(client, entry) for entry in listed}
    for entry in listed:
        if entry["parent_provider_uuid"] is not None:
            providers[entry["parent_provider_uuid"]].children.append(providers[entry["uuid"]])
    return providers[root]


def _described(client: Client, entry: Mapping[str, Any]) -> Provider:
    own = f"/resource_providers/{entry['uuid']}"
    used = client.get(f"{own}/usages")["usages"]
    inventories = client.get(f"{own}/inventories")["inventories"]
    levels = {
        name: Level(used.get(name, 0), Inventory(**record).capacity) for name, record in inventories.items()
    }
    return Provider(entry["uuid"], entry["name"], client.get(f"{own}/traits")["traits"], levels)
