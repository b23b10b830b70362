"""`placement cluster`: Kubernetes clusters."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from placement.client.commands.host import share
from placement.client.display import (
    CLUSTER,
    ActionCommand,
    Argument,
    Details,
    Listing,
    UsageError,
    argument,
    given,
)
from placement.common.host_use import cpus, memory
from placement.common.manifest import Profile
from placement.engine.domain.errors import PlacementError

if TYPE_CHECKING:
    from placement.client.client import Client

_COLUMNS = ("name", "nodes", "profile", "description", "aggregate", "uuid")
_LISTED = ("name", "hosts", "nodes", "cpu_use", "memory_use", *_COLUMNS[2:])
_NO_SETTINGS = frozenset({"name", "nodes", "aggregate", "uuid", "remarks"})
"""Members of the answer about a cluster that are no settings."""
_ABOUT_ONE = (400, 409)
"""Statuses of refusals after which another member may well be taken."""


def _order(text: str) -> Any:
    """Return a way to score: the name of one, or JSON. Raises ArgumentTypeError."""
    if text.strip()[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"is no JSON: {error}") from None


_SETTINGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "profile": ("--profile", "how nodes become trees", {"choices": [str(profile) for profile in Profile]}),
    "description": ("--description", "a few words for people", {}),
    "defaultCPUBindPolicy": (
        "--default-cpu-bind-policy",
        "of LSE and LSR pods that name none: FullPCPUs, SpreadByPCPUs, or an empty text for none",
        {},
    ),
    "defaultCPUExclusivePolicy": (
        "--default-cpu-exclusive-policy",
        "of pods that name none: None, PCPULevel or NUMANodeLevel",
        {},
    ),
    "defaultNUMATopologyPolicy": (
        "--default-numa-topology-policy",
        "of hosts that have none: None, BestEffort, Restricted or SingleNUMANode",
        {},
    ),
    "numaAllocateStrategy": (
        "--numa-allocate-strategy",
        "MostAllocated, LeastAllocated or DistributeEvenly",
        {},
    ),
    "scoring": ("--scoring", "how places are scored: a name, or JSON", {"type": _order}),
    "hostScoring": ("--host-scoring", "former way to say how hosts are scored", {"type": _order}),
    "numaScoring": ("--numa-scoring", "former way to say how NUMA nodes are scored", {"type": _order}),
    "guaranteedQoS": ("--guaranteed-qos", "the class that Guaranteed stands for, such as LSR", {}),
    "subPriorityImmutable": (
        "--sub-priority-immutable",
        "whether the label koordinator.sh/priority must not change",
        {"type": json.loads, "choices": [True, False], "metavar": "{true,false}"},
    ),
    "nodeLabels": (
        "--node-label",
        "key of a label that becomes a trait, repeatable",
        {"action": "append", "metavar": "KEY"},
    ),
}
"""Settings of clusters by their names in bodies: option, help, and how argparse reads the option."""
_DEFAULTS = {
    "defaultCPUBindPolicy": "FullPCPUs",
    "defaultCPUExclusivePolicy": "None",
    "defaultNUMATopologyPolicy": "None",
    "numaAllocateStrategy": "follows scoring",
    "scoring": "LeastAllocated",
    "guaranteedQoS": "LSR",
    "subPriorityImmutable": "true",
    "nodeLabels": "none",
}
"""What counts for the settings that a cluster does not have, as people read it."""
_SET = tuple(
    argument(option, dest=name, help=help, **reading) for name, (option, help, reading) in _SETTINGS.items()
)
_UNSET = tuple(
    argument(option, dest=name, action="store_const", const=True, help=help)
    for name, (option, help, _) in _SETTINGS.items()
)


def cluster_path(*segments: str) -> str:
    """Return the path of something about clusters."""
    from placement.client.client import path

    return f"/ext/v1{path('clusters', *segments)}"


class InClusters(Listing):
    """A command that lists what is in a cluster, or in all clusters that have nodes."""

    arguments: ClassVar[Sequence[Argument]] = (
        argument("cluster", nargs="?", help="name of the cluster (default all that have nodes)"),
    )

    def listed(
        self,
        parsed_args: argparse.Namespace,
        columns: tuple[str, ...],
        rows: Callable[[str], Iterable[tuple[Any, ...]]],
        most: int,
    ) -> tuple[Any, Any]:
        """Return columns and rows, at most --limit; people see `most` without a limit.

        Without a cluster the rows of one cluster after another have its name in front.
        """
        cluster = parsed_args.cluster
        parsed_args.where = "" if cluster is None else f" in cluster {cluster}"
        if cluster is not None:
            found = self.in_order(parsed_args, columns, rows(cluster))
            return columns, self.bounded(parsed_args, found, most)
        names = [each["name"] for each in self.client.get(cluster_path())["clusters"] if each["nodes"]]
        columns = ("cluster", *columns)
        found = self.in_order(parsed_args, columns, ((name, *row) for name in names for row in rows(name)))
        return columns, self.bounded(parsed_args, found, most)


def require_node(client: Client, cluster: str, node: str) -> None:
    """Raise ServiceError unless the cluster has the node; a list for it would only be empty."""
    client.get(cluster_path(cluster, "nodes", node))


def read_name(manifest: Mapping[str, Any], kind: str) -> str:
    """Return the name in a manifest. Raises PlacementError for one without."""
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str):
        raise PlacementError(f"metadata.name: a {kind} has none")
    return name


def put_each(
    command: ActionCommand, cluster: str, collection: str, members: Sequence[tuple[tuple[str, ...], object]]
) -> Iterator[Any]:
    """Put members of a cluster, by their names, one by one, and yield the answers.

    A refused one is an error of the command. One that is not about the member itself, such as about a service
    that is away, is the last: the others are named as not tried.
    """
    from placement.client.client import ServiceError

    client = command.client
    for number, (names, body) in enumerate(members, start=1):
        try:
            yield client.put(cluster_path(cluster, collection, *names), body)
        except ServiceError as error:
            command.fail(f"{'/'.join(names)}: {error}")
            left = ["/".join(others) for others, _ in members[number:]]
            if left and error.status not in _ABOUT_ONE:
                command.fail(f"not tried: {', '.join(left)}")
                return


class ListClusters(Listing):
    """List all clusters with their hosts, the nodes of Kubernetes among them, and what is used of them."""

    left_out_first = ("profile",)
    only_wide = ("description", "aggregate", "uuid")
    nothing = "clusters"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        clusters = self.client.get(cluster_path(), [("include", "use")])["clusters"]
        return _LISTED, [
            (
                *(cluster[name] for name in ("name", "hosts", "nodes")),
                *(share(cpus(cluster["resources"])), share(memory(cluster["resources"]))),
                *(cluster[name] for name in _LISTED[5:]),
            )
            for cluster in clusters
        ]


class ShowCluster(Details):
    """Show a cluster with all settings; people see the defaults of settings that it does not have, too."""

    arguments = (CLUSTER,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        return _details(parsed_args, self.client.get(cluster_path(parsed_args.cluster)))


class CreateCluster(Details):
    """Create a cluster; one that exists is refused and keeps its settings."""

    arguments = (CLUSTER, *_SET)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        present = self.client.get(cluster_path())["clusters"]
        if any(cluster["name"] == parsed_args.cluster for cluster in present):
            raise PlacementError(
                f"Cluster {parsed_args.cluster} exists already; `cluster set` changes its settings."
            )
        return _put(self.client, parsed_args, _named(parsed_args))


class SetCluster(Details):
    """Change settings of a cluster; a setting that is not named stays as it is."""

    arguments = (CLUSTER, *_SET)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        named = _named(parsed_args, "set")
        return _put(self.client, parsed_args, {**_present(self.client, parsed_args), **named})


class UnsetCluster(Details):
    """Give settings of a cluster their defaults again."""

    arguments = (CLUSTER, *_UNSET)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        named = _named(parsed_args, "unset")
        present = _present(self.client, parsed_args).items()
        kept = {name: value for name, value in present if name not in named}
        return _put(self.client, parsed_args, kept)


class DeleteCluster(ActionCommand):
    """Delete a cluster without nodes."""

    arguments = (CLUSTER,)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.client.delete(cluster_path(parsed_args.cluster))


def _named(parsed_args: argparse.Namespace, verb: str | None = None) -> dict[str, Any]:
    """Return the named settings. Raises PlacementError if none is named and `verb` needs one."""
    named = given(**{name: getattr(parsed_args, name) for name in _SETTINGS})
    if verb and not named:
        raise UsageError(f"cluster {verb}: no setting is named")
    return named


def _present(client: Client, parsed_args: argparse.Namespace) -> dict[str, Any]:
    cluster = client.get(cluster_path(parsed_args.cluster))
    return {name: value for name, value in cluster.items() if name not in _NO_SETTINGS}


def _put(client: Client, parsed_args: argparse.Namespace, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    return _details(parsed_args, client.put(cluster_path(parsed_args.cluster), settings))


def _details(parsed_args: argparse.Namespace, cluster: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the fields of a cluster and their values; for people, objects are JSON, defaults named."""
    names = (*_COLUMNS, *(name for name in cluster if name not in _COLUMNS))
    values = (cluster[name] for name in names)
    if parsed_args.formatter != "table":
        return names, tuple(values)
    left = {name: f"{default} (default)" for name, default in _DEFAULTS.items() if cluster.get(name) is None}
    shown = (json.dumps(value) if isinstance(value, dict | list) else value for value in values)
    fields = {**dict(zip(names, shown, strict=True)), **left}
    return tuple(fields), tuple(fields.values())
