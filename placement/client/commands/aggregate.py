"""`placement aggregate`: aggregates of providers, and their names."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from placement.client.display import (
    IN_CLUSTER,
    ActionCommand,
    Listing,
    Pairs,
    UsageError,
    argument,
    given,
    limit,
    pages_of,
)
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.identifiers import meant, near, normalize_uuid

if TYPE_CHECKING:
    from placement.client.client import Client

_AGGREGATES = "/ext/v1/aggregates"
_SHOWN = 50
_COLUMNS = ("name", "uuid", "cluster", "providers")


class ListAggregates(Listing):
    """List aggregates with their names and the number of their providers."""

    arguments = (IN_CLUSTER, limit(f"N aggregates at most (else {_SHOWN} for people)"))
    left_out_first = ("cluster",)
    nothing = "aggregates"
    filters = ("cluster",)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        wanted = {"cluster": parsed_args.cluster}
        found = self.pages(parsed_args, _AGGREGATES, "aggregates", "after", wanted, _SHOWN)
        return _COLUMNS, (tuple(each[name] for name in _COLUMNS) for each in found)


class SetAggregate(ActionCommand):
    """Name an aggregate, or take its name away; that of a cluster keeps the name of the cluster."""

    arguments = (
        argument("aggregate", metavar="UUID_OR_NAME", help="the aggregate"),
        argument("--name", help="what people know it by"),
        argument("--no-name", action="store_true", help="take its name away"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from placement.client.client import path

        if parsed_args.no_name == (parsed_args.name is not None):
            raise UsageError("aggregate set: either --name or --no-name says what it is called")
        client = self.client
        uuid = uuid_of(client, parsed_args.aggregate)
        client.put(f"{_AGGREGATES}{path(uuid)}", {"name": parsed_args.name})


# Names of aggregates: the service takes uuids.


def uuid_of(client: Client, uuid_or_name: str, cluster: str | None = None) -> str:
    """Return the uuid of an aggregate. Raises PlacementError for a name that none has, or several have.

    With a cluster only its aggregates are looked at, as is asked of tokens that are bound to clusters.
    """
    if normalize_uuid(uuid_or_name) is not None:
        return uuid_or_name
    query = [*given(cluster=cluster).items()]
    uuids: dict[str, list[str]] = {}
    for each in pages_of(client, _AGGREGATES, "aggregates", "after", query):
        if each["name"]:
            uuids.setdefault(each["name"], []).append(each["uuid"])
    if uuid_or_name not in uuids:
        hint = meant(near(uuid_or_name, uuids)) or "; `placement aggregate list` lists them"
        raise PlacementError(f"no aggregate is named {uuid_or_name}{hint}")
    first, *more = uuids[uuid_or_name]
    if more:
        raise PlacementError(f"several aggregates are named {uuid_or_name}: {', '.join([first, *more])}")
    return first


def resolved(client: Client, query: Pairs) -> Pairs:
    """Return a query with uuids for the names of aggregates in `member_of`. Raises PlacementError."""
    cluster = dict(query).get("cluster")
    return [
        (key, _resolved(client, value, cluster) if key.startswith("member_of") else value)
        for key, value in query
    ]


def _resolved(client: Client, value: str, cluster: str | None) -> str:
    names = value.removeprefix("!").removeprefix("in:")
    start = value.removesuffix(names)
    return start + ",".join(name and uuid_of(client, name, cluster) for name in names.split(","))
