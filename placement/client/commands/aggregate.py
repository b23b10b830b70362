"""`placement aggregate`: aggregates of providers, and their names."""

from __future__ import annotations

import argparse
from typing import Any

from placement.client.display import IN_CLUSTER, ActionCommand, Listing, UsageError, argument, limit

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
        argument("aggregate", metavar="UUID", help="uuid of the aggregate"),
        argument("--name", help="what people know it by"),
        argument("--no-name", action="store_true", help="take its name away"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from placement.client.client import path

        if parsed_args.no_name == (parsed_args.name is not None):
            raise UsageError("aggregate set: either --name or --no-name says what it is called")
        self.client.put(f"{_AGGREGATES}{path(parsed_args.aggregate)}", {"name": parsed_args.name})
