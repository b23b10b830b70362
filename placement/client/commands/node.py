"""`placement node`: the nodes of Kubernetes clusters."""

from __future__ import annotations

import argparse
from typing import Any

from placement.client import drawing
from placement.client.commands.cluster import cluster_path, put_named
from placement.client.display import (
    CLUSTER,
    DRAWING,
    ActionCommand,
    DrawingCommand,
    Listing,
    argument,
    read_yaml,
)
from placement.client.formats import lines

# `placement tree`: the tree that a provider is in.


class TreeDrawing(DrawingCommand):
    """A command that draws a provider tree."""

    def drawn(self, parsed_args: argparse.Namespace, root: drawing.DrawnProvider) -> tuple[Any, list[Any]]:
        """Return the tree as lines or as rows, as the format asks for."""
        if parsed_args.formatter == DRAWING:
            return ("Tree",), [(line,) for line in drawing.draw(root, self.app.stdout)]
        return drawing.COLUMNS, list(drawing.rows(root))


class ShowTree(TreeDrawing):
    """Draw the tree that a provider is in, with capacity and use."""

    arguments = (argument("provider", metavar="UUID_OR_NAME", help="any provider of the tree"),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        return self.drawn(parsed_args, drawing.fetch(self.client, parsed_args.provider))


_NODE = (CLUSTER, argument("node", help="name of the node"))


class ListNodes(Listing):
    """List the nodes of a cluster."""

    arguments = (CLUSTER,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        nodes = self.client.get(cluster_path(parsed_args.cluster, "nodes"))["nodes"]
        return ("name", "resource_provider"), [(node["name"], node["resource_provider"]) for node in nodes]


class ShowNode(TreeDrawing):
    """Draw a node with its capacity and use, a character for each core, and the owners of its CPUs."""

    arguments = _NODE

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        body = self.client.get(cluster_path(parsed_args.cluster, "nodes", parsed_args.node))
        columns, rows = self.drawn(parsed_args, drawing.from_node(body["tree"]))
        if parsed_args.formatter == DRAWING and body.get("cpus"):
            rows += [(line,) for line in drawing.draw_cpu_owners(body["cpus"], self.app.stdout)]
            rows += [(line,) for line in drawing.notes(body)]
        return columns, rows


class ImportNodes(Listing):
    """Import nodes from manifests: each Node, and its NodeResourceTopology if there is one.

    The file is YAML or JSON as `kubectl get -o yaml` prints it, in one or several documents or lists.
    Importing the same again changes nothing.
    """

    arguments = (CLUSTER, argument("file", metavar="FILE", help="manifests; - for standard input"))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from placement.common.documents import nodes_manifests

        nodes = nodes_manifests(read_yaml(parsed_args.file))
        columns = ("name", "created", "changed", "deleted", "warnings")
        client, rows = self.client, []
        for name, manifests in nodes.items():
            body = {"node": manifests.node, "nodeResourceTopology": manifests.topology}
            done = put_named(client, body, parsed_args.cluster, "nodes", name)
            numbers = [len(done[change]) for change in ("created", "changed", "deleted")]
            rows.append((name, *numbers, lines(done["warnings"])))
        return columns, rows


class DeleteNode(ActionCommand):
    """Delete a node that no consumer uses."""

    arguments = _NODE

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.client.delete(cluster_path(parsed_args.cluster, "nodes", parsed_args.node))
