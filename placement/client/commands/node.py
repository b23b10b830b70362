"""`placement node`: the nodes of Kubernetes clusters."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

from placement.client import drawing
from placement.client.commands.cluster import cluster_path, put_named
from placement.client.commands.host import HOSTS, gibibytes, number
from placement.client.display import (
    CLUSTER,
    DRAWING,
    ActionCommand,
    DrawingCommand,
    Listing,
    argument,
    pages_of,
    read_yaml,
)
from placement.client.formats import age, lines
from placement.common.host_use import cpus, memory

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
    """List the nodes of a cluster: whether they take pods, what they have free, since when they are known.

    The CPUs and the memory are the ones that pods request of a node as a whole.
    """

    arguments = (CLUSTER,)
    left_out_first = ("resource_provider", "age")
    kept = ("state",)
    only_wide = ("resource_provider",)
    nothing = "nodes in cluster {cluster}"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        client, cluster, now = self.client, parsed_args.cluster, datetime.now(UTC)
        nodes = client.get(cluster_path(cluster, "nodes"), [("include", "state")])["nodes"]
        hosts = pages_of(client, HOSTS, "hosts", "after", [("cluster", cluster)])
        resources = {each["uuid"]: each["resources"] for each in hosts}
        rows = []
        for node in nodes:
            # A node that came between the two calls has no figures yet.
            used = resources.get(node["resource_provider"], {})
            rows.append(
                (
                    node["name"],
                    lines(node["closed"] or ["open"]),
                    number(cpus(used).free),
                    gibibytes(memory(used).free),
                    node["pods"],
                    age(node["created_at"], now),
                    node["resource_provider"],
                )
            )
        return ("name", "state", "cpus_free", "memory_free", "pods", "age", "resource_provider"), rows


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
