"""`placement node`: the nodes of Kubernetes clusters."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

from placement.client import tree_drawing
from placement.client.arguments import CLUSTER, argument, limit, read_yaml
from placement.client.cells import TextCell, age, lines
from placement.client.command import DRAWING, ActionCommand, DrawingCommand, Listing
from placement.client.commands.cluster import InClusters, cluster_path, in_cluster, names_in_cluster, put_each
from placement.client.commands.host import HOSTS, gibibytes, number
from placement.client.node_drawing import draw_cpu_owners, notes
from placement.client.tables import ShownTable
from placement.common.host_use import UseByClass, cpus, memory


class TreeDrawing(DrawingCommand):
    """A command that draws a provider tree."""

    def draw(
        self, parsed_args: argparse.Namespace, provider: tree_drawing.DrawnProvider
    ) -> tuple[Any, list[Any]]:
        """Return the tree as lines or as rows, as the format asks for."""
        if parsed_args.formatter == DRAWING:
            return ("Tree",), [(line,) for line in tree_drawing.draw(provider, self.app.stdout)]
        return tree_drawing.COLUMNS, list(tree_drawing.rows(provider))


class ShowTree(TreeDrawing):
    """Draw the host of a provider with all its parts, their capacity and use."""

    arguments = (argument("provider", metavar="UUID_OR_NAME", help="the host or any provider of it"),)

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        return self.draw(parsed_args, tree_drawing.fetch(self.client, parsed_args.provider))


_SHOWN = 50
_NODE = in_cluster("node", "NODE")


def _path(parsed: argparse.Namespace) -> str:
    cluster, node = names_in_cluster(parsed, "node", "NODE")
    return cluster_path(cluster, "nodes", node)


class ListNodes(InClusters):
    """List the nodes of a cluster, or of all clusters, with their state, free amounts and age.

    CPUs and memory are the amounts that pods request of the node as a whole. The number of pods includes
    other consumers that take the place of a pod; behind it is the most that the node may have.
    """

    arguments = (*InClusters.arguments, limit(f"N nodes at most (default {_SHOWN} in tables)"))
    left_out_first = ("resource_provider", "created_at")
    kept = ("name", "state")
    only_wide = ("resource_provider",)
    nothing = "nodes{where}; placement host list lists other hosts"

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        columns = ("name", "state", "cpus_free", "memory_free_mib", "pods", "created_at", "resource_provider")
        return self.listed(parsed_args, columns, self._rows, _SHOWN)

    def _rows(self, cluster: str) -> list[tuple[Any, ...]]:
        client, now = self.client, datetime.now(UTC)
        nodes = client.get(cluster_path(cluster, "nodes"), [("include", "state")])["nodes"]
        hosts = client.entries(HOSTS, "hosts", "after", [("cluster", cluster)])
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
                    _of_limit(node["pods"], used),
                    age(node["created_at"], now),
                    node["resource_provider"],
                )
            )
        return rows


def _of_limit(pods: int, resources: UseByClass) -> TextCell:
    """Return a cell of pods that shows how many the node may have, if it has a limit."""
    limit = resources.get("CUSTOM_PODS")
    return TextCell(pods, (f"{pods}/{limit['capacity']}" if limit else str(pods),))


class ShowNode(TreeDrawing):
    """Draw a node with its capacity and use, a character for each core, and the owners of its CPUs."""

    arguments = _NODE

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        body = self.client.get(_path(parsed_args))
        columns, rows = self.draw(parsed_args, tree_drawing.from_node(body["tree"]))
        if parsed_args.formatter == DRAWING and body.get("cpus"):
            rows += [(line,) for line in draw_cpu_owners(body["cpus"], self.app.stdout)]
            rows += [(line,) for line in notes(body)]
        return columns, rows


class ImportNodes(Listing):
    """Import nodes from manifests: each Node, and its NodeResourceTopology if there is one.

    The file is YAML or JSON as `kubectl get -o yaml` prints it, in one or several documents or lists.
    Importing the same again changes nothing. A node that is refused keeps no other from being imported.
    """

    arguments = (CLUSTER, argument("file", metavar="FILE", help="manifests; - for standard input"))
    only_wide = ("warnings",)

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        from placement.common.documents import nodes_manifests

        nodes = nodes_manifests(read_yaml(parsed_args.file))
        bodies = [
            ((name,), {"node": manifests.node, "nodeResourceTopology": manifests.topology})
            for name, manifests in nodes.items()
        ]
        warned: dict[str, list[str]] = {}
        rows = []
        for done in put_each(self, parsed_args.cluster, "nodes", bodies):
            for warning in done["warnings"]:
                warned.setdefault(warning, []).append(done["name"])
            numbers = [len(done[change]) for change in ("created", "changed", "deleted")]
            rows.append((done["name"], *numbers, lines(done["warnings"])))
        for warning, names in warned.items() if self.for_people(parsed_args) else ():
            self.note(f"{names[0] if len(names) == 1 else f'{len(names)} nodes'}: {warning}")
        return ("name", "created", "changed", "deleted", "warnings"), rows


class DeleteNode(ActionCommand):
    """Delete a node that no consumer uses."""

    arguments = _NODE

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.client.delete(_path(parsed_args))
