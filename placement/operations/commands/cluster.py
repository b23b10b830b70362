"""`placement cluster`: Kubernetes clusters."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from placement.dialects.koordinator.profile import Profile
from placement.operations.commands.arguments import CLUSTER, argument
from placement.operations.commands.display import Action, Details, Listing

_COLUMNS = ("name", "nodes", "profile", "description", "aggregate", "uuid")


def cluster_path(*segments: str) -> str:
    """The path of something about clusters."""
    from placement.operations.client import path

    return f"/ext/v1{path('clusters', *segments)}"


class ListClusters(Listing):
    """List all clusters."""

    left_out_first = ("aggregate", "uuid")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and list."""
        return _COLUMNS, [_row(cluster) for cluster in self.client.get(cluster_path())["clusters"]]


class ShowCluster(Details):
    """Show a cluster."""

    arguments = (CLUSTER,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and show."""
        return _COLUMNS, _row(self.client.get(cluster_path(parsed_args.cluster)))


class CreateCluster(Details):
    """Create a cluster, or replace the settings of one that exists."""

    arguments = (
        CLUSTER,
        argument("--profile", choices=[str(profile) for profile in Profile], help="how nodes become trees"),
        argument("--description", help="a few words for people"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Put and show."""
        given = {"profile": parsed_args.profile, "description": parsed_args.description}
        settings = {name: value for name, value in given.items() if value is not None}
        return _COLUMNS, _row(self.client.put(cluster_path(parsed_args.cluster), settings))


class DeleteCluster(Action):
    """Delete a cluster without nodes."""

    arguments = (CLUSTER,)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete it."""
        self.client.delete(cluster_path(parsed_args.cluster))


def _row(cluster: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(cluster[name] for name in _COLUMNS)
