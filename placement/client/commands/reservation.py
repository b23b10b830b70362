"""`placement reservation`: places that are kept for pods to come."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placement.client.commands.cluster import cluster_path, put_named, read_name
from placement.client.display import CLUSTER, ActionCommand, Details, Listing, argument, limit, read_yaml
from placement.client.formats import Lines, PagedList, Pairs

_LISTED = ("name", "phase", "node", "held", "left", "used_by", "expires_at")
_SHOWN = (
    "name",
    "uid",
    "consumer_uuid",
    "phase",
    "node",
    "resource_provider",
    "allocate_once",
    "allocate_policy",
    "expires_at",
    "held",
    "left",
    "used_by",
    "score",
    "warnings",
    "remarks",
    "unreadable",
)
_LINES = {"warnings", "remarks", "unreadable"}
_RESERVATION = (CLUSTER, argument("reservation", help="name of the reservation"))


class ListReservations(Listing):
    """List the reservations of a cluster, including the ones that are over.

    Formats that are written row by row, csv and value, begin with the first page of the service.
    """

    arguments = (
        CLUSTER,
        argument("--node", help="on this node"),
        limit("so many at most"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask page by page and list."""
        path = cluster_path(parsed_args.cluster, "reservations")
        pages = PagedList(self.client, path, "reservations", "marker")
        found = pages.entries({"node": parsed_args.node}, parsed_args.limit)
        return _LISTED, (_row(_LISTED, reservation) for reservation in found)


class ShowReservation(Details):
    """Show a reservation: where it is, what it has left, and which pods use it."""

    arguments = _RESERVATION

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and show."""
        path = cluster_path(parsed_args.cluster, "reservations", parsed_args.reservation)
        return _SHOWN, _row(_SHOWN, self.client.get(path))


class CreateReservations(Listing):
    """Place the reservations of manifests, or change the terms of the ones that exist.

    The file is YAML or JSON as `kubectl get -o yaml` prints it, in one or several documents or lists.
    Creating the same again changes nothing.
    """

    arguments = (CLUSTER, argument("file", metavar="FILE", help="manifest; - for standard input"))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Send the reservations one by one, until one is refused."""
        from placement.common.manifest_lists import reservations_manifests

        manifests = reservations_manifests(read_yaml(parsed_args.file))
        columns = ("name", "phase", "node", "held", "warnings")
        return columns, list(self._created(parsed_args.cluster, manifests, columns))

    def _created(
        self, cluster: str, manifests: Sequence[Mapping[str, Any]], columns: Sequence[str]
    ) -> Iterator[tuple[Any, ...]]:
        client = self.client
        for name, manifest in [(read_name(manifest, "Reservation"), manifest) for manifest in manifests]:
            yield _row(columns, put_named(client, manifest, cluster, "reservations", name))


class DeleteReservation(ActionCommand):
    """Release what a reservation has left, and forget it; pods keep what they took from it."""

    arguments = _RESERVATION

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete it."""
        self.client.delete(cluster_path(parsed_args.cluster, "reservations", parsed_args.reservation))


def _row(columns: Sequence[str], reservation: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(_cell(column, reservation) for column in columns)


def _cell(column: str, reservation: Mapping[str, Any]) -> object:
    if column in ("held", "left"):
        holding = reservation[column]
        return None if holding is None else Pairs(_amounts(holding))
    if column == "used_by":
        owners = reservation["current_owners"]
        return Lines([f"{owner['namespace']}/{owner['name']}" for owner in owners])
    return Lines(reservation[column]) if column in _LINES else reservation[column]


def _amounts(holding: Mapping[str, Any]) -> dict[str, str]:
    cpuset = {"cpuset": holding["cpuset"]} if holding["cpuset"] else {}
    return {**cpuset, **holding["resources"]}
