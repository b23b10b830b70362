"""`placement reservation`: places that are kept for pods to come."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from placement.client.arguments import CLUSTER, argument, limit, read_yaml
from placement.client.cells import lines, quantities
from placement.client.command import ActionCommand, Details, Listing
from placement.client.commands.cluster import (
    cluster_path,
    in_cluster,
    names_in_cluster,
    put_each,
    read_name,
    require_node,
)
from placement.client.tables import ShownTable

_LISTED = ("name", "phase", "node", "held", "left", "used_by", "expires_at")
_LINES = ("warnings", "remarks", "unreadable")
_SHOWN = (
    *("name", "uid", "consumer_uuid", "phase", "node", "resource_provider", "allocate_once"),
    *("allocate_policy", "expires_at", "held", "left", "used_by", "score", *_LINES),
)
_CREATED = ("name", "phase", "node", "held", "warnings")
_RESERVATION = in_cluster("reservation", "RESERVATION")


def _path(parsed: argparse.Namespace) -> str:
    cluster, name = names_in_cluster(parsed, "reservation", "RESERVATION")
    return cluster_path(cluster, "reservations", name)


class ListReservations(Listing):
    """List the reservations of a cluster, including the ones that are over.

    Formats that are written row by row, csv and value, begin with the first page of the service.
    """

    arguments = (CLUSTER, argument("--node", help="on this node"), limit("N reservations at most"))
    left_out_first = ("expires_at", "used_by", "held")
    kept = ("phase", "node", "left")
    nothing = "reservations in cluster {cluster}"
    filters = ("node",)

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        path = cluster_path(parsed_args.cluster, "reservations")
        if parsed_args.node:
            require_node(self.client, parsed_args.cluster, parsed_args.node)
        found = self.entries(parsed_args, path, "reservations", "marker", {"node": parsed_args.node})
        return _LISTED, (_row(_LISTED, reservation) for reservation in found)


class ShowReservation(Details):
    """Show a reservation: where it is, what it has left, and which pods use it."""

    arguments = _RESERVATION

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        path = _path(parsed_args)
        reservation = self.client.get(path)
        return self.filled(parsed_args, {column: _cell(column, reservation) for column in _SHOWN})


class CreateReservations(Listing):
    """Place the reservations of manifests, or change the terms of the ones that exist.

    The file is YAML or JSON as `kubectl get -o yaml` prints it, in one or several documents or lists.
    Creating the same again changes nothing.
    """

    arguments = (CLUSTER, argument("file", metavar="FILE", help="manifest; - for standard input"))

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        from placement.common.documents import manifests_of_kind

        manifests = manifests_of_kind("Reservation", read_yaml(parsed_args.file))
        named = [((read_name(manifest, "Reservation"),), manifest) for manifest in manifests]
        created = put_each(self, parsed_args.cluster, "reservations", named)
        return _CREATED, [_row(_CREATED, reservation) for reservation in created]


class DeleteReservation(ActionCommand):
    """Release what a reservation has left, and forget it; pods keep what they took from it."""

    arguments = _RESERVATION

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.client.delete(_path(parsed_args))


def _row(columns: Sequence[str], reservation: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(_cell(column, reservation) for column in columns)


def _cell(column: str, reservation: Mapping[str, Any]) -> object:
    value = reservation["current_owners" if column == "used_by" else column]
    if column in ("held", "left"):
        # It holds nothing once it is over.
        if reservation["left"] is None:
            return None
        return quantities({**({"cpuset": value["cpuset"]} if value["cpuset"] else {}), **value["resources"]})
    if column == "used_by":
        return lines([f"{owner['namespace']}/{owner['name']}" for owner in value])
    return lines(value) if column in _LINES else value
