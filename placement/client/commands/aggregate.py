"""`placement aggregate`: aggregates of providers, and their names."""

from __future__ import annotations

import argparse

from placement.client.arguments import IN_CLUSTER, UsageError, argument, limit
from placement.client.command import ActionCommand, Listing
from placement.client.tables import ShownTable

_AGGREGATES = "/ext/v1/aggregates"
_SHOWN = 50
_COLUMNS = ("name", "uuid", "cluster", "providers")


class ListAggregates(Listing):
    """List aggregates with their names and the number of their providers."""

    arguments = (IN_CLUSTER, limit(f"N aggregates at most (default {_SHOWN} in tables)"))
    left_out_first = ("cluster",)
    nothing = "aggregates"
    filters = ("cluster",)

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        wanted = {"cluster": parsed_args.cluster}
        aggregates = self.entries(parsed_args, _AGGREGATES, "aggregates", "after", wanted, _SHOWN)
        return _COLUMNS, (tuple(each[name] for name in _COLUMNS) for each in aggregates)


class SetAggregate(ActionCommand):
    """Name an aggregate, or remove its name; the aggregate of a cluster keeps the name of the cluster."""

    arguments = (
        argument("aggregate", metavar="UUID_OR_NAME", help="the aggregate"),
        argument("--name", help="the name that pages and tables show"),
        argument("--no-name", action="store_true", help="remove its name"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from placement.client.client import path

        if parsed_args.no_name == (parsed_args.name is not None):
            raise UsageError("aggregate set: needs --name or --no-name")
        named = self.client.put(f"{_AGGREGATES}{path(parsed_args.aggregate)}", {"name": parsed_args.name})
        if others := named["also_named"]:
            self.note(
                f"Warning: the name {parsed_args.name} is also that of {', '.join(others)}; "
                f"requests that name {parsed_args.name} are refused, and need a UUID."
            )
