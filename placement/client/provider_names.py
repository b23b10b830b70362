"""Names of providers: answers of the service carry uuids, people read names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from placement.engine.domain.errors import PlacementError
from placement.engine.domain.identifiers import meant, near_hosts, normalize_uuid
from placement.engine.numa.cpus import format_cpu_list

if TYPE_CHECKING:
    from placement.client.arguments import QueryPairs
    from placement.client.client import Client

_FEW_TREES = 20
# Comparing a word with more names would take long.
_MOST_HOSTS = 2000
_NUMBERED = re.compile(r"(.*\D)(0|[1-9][0-9]*)", re.DOTALL)


def names_of(client: Client, uuids: Collection[str]) -> Mapping[str, str]:
    """Return the names of these providers, by uuid."""
    return _names(client, [[("uuid", uuid)] for uuid in sorted(uuids)])


def names_in_trees(client: Client, roots: Collection[str]) -> Mapping[str, str]:
    """Return the names, by uuid, of all providers in the trees of these roots."""
    # A call for each tree is short, one for all providers is long; many short ones take longer than that.
    queries = [[]] if len(roots) > _FEW_TREES else [[("in_tree", root)] for root in sorted(roots)]
    return _names(client, queries)


def _names(client: Client, queries: Iterable[QueryPairs]) -> dict[str, str]:
    return {
        provider["uuid"]: provider["name"]
        for query in queries
        for provider in client.get("/resource_providers", query)["resource_providers"]
    }


def find_provider(client: Client, uuid_or_name: str) -> Mapping[str, Any]:
    """Return the entry of one provider in the list of all. Raises PlacementError if there is none."""
    uuid = normalize_uuid(uuid_or_name)
    query = ("name", uuid_or_name) if uuid is None else ("uuid", uuid)
    found = client.get("/resource_providers", [query])["resource_providers"]
    # To the service an empty name is no filter at all.
    if not (uuid_or_name and found):
        like = near_hosts(uuid_or_name, _hosts(client)) if uuid is None and uuid_or_name else ()
        raise PlacementError(f"{uuid_or_name}: no such resource provider{meant(like)}")
    entry: Mapping[str, Any] = found[0]
    return entry


def _hosts(client: Client) -> list[str]:
    """Return the names of hosts, none where the service or the caller has no list of them."""
    try:
        return [
            entry["name"] for entry in client.entries("/ext/v1/hosts", "hosts", "marker", most=_MOST_HOSTS)
        ]
    except PlacementError:
        return []


def fold(
    amounts_by_name: Iterable[tuple[str, Mapping[str, int]]],
) -> Iterator[tuple[str, Mapping[str, int], int]]:
    """Yield (name, amounts of each, how many); names that differ in a number only are one: core-0-[1-12]."""
    groups: dict[tuple[str, tuple[tuple[str, int], ...]], list[str]] = {}
    for name, amounts in amounts_by_name:
        numbered = _NUMBERED.fullmatch(name)
        stem = numbered[1] if numbered else name
        groups.setdefault((stem, tuple(sorted(amounts.items()))), []).append(name)
    for (stem, each), names in groups.items():
        if len(names) == 1:
            yield names[0], dict(each), 1
        else:
            numbers = format_cpu_list(int(name.removeprefix(stem)) for name in names)
            yield f"{stem}[{numbers}]", dict(each), len(names)
