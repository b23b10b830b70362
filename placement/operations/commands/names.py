"""Names of providers: answers of the service carry uuids, people read names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from placement.domain.errors import PlacementError
from placement.domain.identifiers import normalize_uuid

if TYPE_CHECKING:
    from placement.operations.client import Client

_FEW_TREES = 20


def in_trees(client: Client, roots: Collection[str]) -> Mapping[str, str]:
    """The names, by uuid, of all providers in the trees of these roots."""
    # Each call is short, one for all providers is long; many short ones take longer than that.
    if len(roots) > _FEW_TREES:
        return _names(client, [])
    found: dict[str, str] = {}
    for root in sorted(roots):
        found.update(_names(client, [("in_tree", root)]))
    return found


def of(client: Client, uuids: Collection[str]) -> Mapping[str, str]:
    """The names of these providers, by uuid."""
    found: dict[str, str] = {}
    for uuid in sorted(uuids):
        found.update(_names(client, [("uuid", uuid)]))
    return found


def provider(client: Client, uuid_or_name: str) -> Mapping[str, Any]:
    """The entry of one provider in the list of all. Raises PlacementError if there is none."""
    uuid = normalize_uuid(uuid_or_name)
    query = ("name", uuid_or_name) if uuid is None else ("uuid", uuid)
    found = client.get("/resource_providers", [query])["resource_providers"]
    # To the service an empty name is no filter at all.
    if not (uuid_or_name and found):
        raise PlacementError(f"{uuid_or_name}: no such resource provider")
    entry: Mapping[str, Any] = found[0]
    return entry


def _names(client: Client, query: list[tuple[str, str]]) -> dict[str, str]:
    listed = client.get("/resource_providers", query)["resource_providers"]
    return {provider["uuid"]: provider["name"] for provider in listed}
