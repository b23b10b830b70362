"""`placement node`: the nodes of Kubernetes clusters."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from placement.domain.errors import PlacementError
from placement.operations.commands import cpu_owners, provider_tree
from placement.operations.commands.arguments import CLUSTER, argument, read_bytes
from placement.operations.commands.cluster import cluster_path
from placement.operations.commands.columns import Lines
from placement.operations.commands.display import DRAWING, Action, Listing
from placement.operations.commands.tree import TreeDrawing

_NODE = (CLUSTER, argument("node", help="name of the node"))


class ListNodes(Listing):
    """List the nodes of a cluster."""

    arguments = (CLUSTER,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and list."""
        nodes = self.client.get(cluster_path(parsed_args.cluster, "nodes"))["nodes"]
        return ("name", "resource_provider"), [(node["name"], node["resource_provider"]) for node in nodes]


class ShowNode(TreeDrawing):
    """Draw a node with its capacity and use, cores a character each, and whose each of its CPUs is."""

    arguments = _NODE

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and draw."""
        body = self.client.get(cluster_path(parsed_args.cluster, "nodes", parsed_args.node))
        columns, rows = self.drawn(parsed_args, provider_tree.from_node(body["tree"]))
        if parsed_args.formatter == DRAWING and body.get("cpus"):
            rows += [(line,) for line in cpu_owners.draw(body["cpus"], self.app.stdout)]
            rows += [(line,) for line in cpu_owners.notes(body)]
        return columns, rows


class ImportNodes(Listing):
    """Import nodes from manifests: each Node, and its NodeResourceTopology if there is one.

    The file is YAML or JSON as `kubectl get -o yaml` prints it, in one or several documents or lists.
    Importing the same again changes nothing.
    """

    arguments = (
        CLUSTER,
        argument("file", metavar="FILE", help="manifests; - for standard input"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Send the nodes one by one, until one is refused."""
        from placement.services.documents import parse_yaml
        from placement.services.manifests import nodes_manifests

        nodes = nodes_manifests(parse_yaml(read_bytes(parsed_args.file)))
        columns = ("name", "created", "changed", "deleted", "warnings")
        return columns, list(self._imported(parsed_args.cluster, nodes))

    def _imported(self, cluster: str, nodes: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        client = self.client
        for name, manifests in nodes.items():
            body = {"node": manifests.node, "nodeResourceTopology": manifests.topology}
            try:
                done = client.put(cluster_path(cluster, "nodes", name), body)
            except PlacementError as error:
                raise PlacementError(f"{name}: {error}") from None
            numbers = [len(done[change]) for change in ("created", "changed", "deleted")]
            yield name, *numbers, Lines(done["warnings"])


class DeleteNode(Action):
    """Delete a node that nobody uses."""

    arguments = _NODE

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete it."""
        self.client.delete(cluster_path(parsed_args.cluster, "nodes", parsed_args.node))
