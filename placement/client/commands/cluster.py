"""`placement cluster`: Kubernetes clusters."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from placement.client.arguments import CLUSTER, Argument, UsageError, argument, given
from placement.client.command import ActionCommand, Details, Listing
from placement.client.commands.host import share
from placement.client.tables import ShownTable
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
        raise argparse.ArgumentTypeError(f"is not JSON: {error}") from None


_SETTINGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "profile": (
        "--profile",
        "how nodes become providers",
        {"choices": [str(profile) for profile in Profile]},
    ),
    "description": ("--description", "a few words for people", {}),
    "defaultCPUBindPolicy": (
        "--default-cpu-bind-policy",
        "for LSE and LSR pods without a bind policy: FullPCPUs, SpreadByPCPUs, or an empty text for none",
        {},
    ),
    "defaultCPUExclusivePolicy": (
        "--default-cpu-exclusive-policy",
        "for pods without an exclusive policy: None, PCPULevel or NUMANodeLevel",
        {},
    ),
    "defaultNUMATopologyPolicy": (
        "--default-numa-topology-policy",
        "for hosts without a NUMA policy: None, BestEffort, Restricted or SingleNUMANode",
        {},
    ),
    "numaAllocateStrategy": (
        "--numa-allocate-strategy",
        "MostAllocated, LeastAllocated or DistributeEvenly",
        {},
    ),
    "scoring": ("--scoring", "how places are scored: a name, or JSON", {"type": _order}),
    "hostScoring": ("--host-scoring", "old setting: how hosts are scored", {"type": _order}),
    "numaScoring": ("--numa-scoring", "old setting: how NUMA nodes are scored", {"type": _order}),
    "guaranteedQoS": ("--guaranteed-qos", "the class that Guaranteed stands for, such as LSR", {}),
    "subPriorityImmutable": (
        "--sub-priority-immutable",
        "whether the label koordinator.sh/priority must not change",
        {"type": json.loads, "choices": [True, False], "metavar": "{true,false}"},
    ),
    "loopNodes": (
        "--loop-nodes",
        "where `placement schedule kubernetes` places its pods: all, or marked nodes only",
        {"choices": ["all", "marked"]},
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
    "loopNodes": "all",
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


def in_cluster(member: str, what: str) -> tuple[Argument, Argument]:
    """Return the arguments that name something in a cluster: CLUSTER NAME, or CLUSTER/NAME as in tables."""
    return (
        argument("cluster", help=f"name of the cluster, or CLUSTER/{what}"),
        argument(member, nargs="?", metavar=what, help=f"name of the {member}"),
    )


def names_in_cluster(parsed: argparse.Namespace, member: str, form: str = "NAME") -> list[str]:
    """Return the cluster and the names behind it, at most as many as `form` has, by slashes.

    Raises UsageError.
    """
    words: list[str] = [word for word in (parsed.cluster, getattr(parsed, member)) if word is not None]
    names = "/".join(words).split("/")
    most = 1 + len(form.split("/"))
    if len(names) == most + 1 and names[0] == names[1]:
        # The cluster, and then the whole name as tables print it.
        del names[0]
    if not 2 <= len(names) <= most or not all(names):
        raise UsageError(f"{member}: give CLUSTER {form} or CLUSTER/{form}, not {' '.join(words)}")
    return names


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
    ) -> ShownTable:
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
    command: ActionCommand,
    cluster: str,
    collection: str,
    members: Sequence[tuple[tuple[str, ...], object]],
    query: str = "",
) -> Iterator[Any]:
    """Put members of a cluster, by their names, one by one, and yield the answers.

    A refused one is an error of the command. One that is not about the member itself, such as about a service
    that is away, is the last: the others are named as not tried.
    """
    from placement.client.client import ServiceError

    client = command.client
    for number, (names, body) in enumerate(members, start=1):
        try:
            yield client.put(cluster_path(cluster, collection, *names) + query, body)
        except ServiceError as error:
            command.fail(f"{'/'.join(names)}: {error}")
            left = ["/".join(others) for others, _ in members[number:]]
            if left and error.status not in _ABOUT_ONE:
                command.fail(f"not tried: {', '.join(left)}")
                return


class ListClusters(Listing):
    """List all clusters with their hosts, Kubernetes nodes and used amounts."""

    left_out_first = ("profile",)
    only_wide = ("description", "aggregate", "uuid")
    nothing = "clusters"

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
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
    """Show a cluster with all settings; tables also show the defaults of unset settings."""

    arguments = (CLUSTER,)

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        return _details(parsed_args, self.client.get(cluster_path(parsed_args.cluster)))


class CreateCluster(Details):
    """Create a cluster; one that exists is refused and keeps its settings."""

    arguments = (CLUSTER, *_SET)

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        present = self.client.get(cluster_path())["clusters"]
        if any(cluster["name"] == parsed_args.cluster for cluster in present):
            raise PlacementError(
                f"Cluster {parsed_args.cluster} exists already; `cluster set` changes its settings."
            )
        return _put(self.client, parsed_args, _named(parsed_args))


class SetCluster(Details):
    """Change settings of a cluster; a setting that is not named stays as it is."""

    arguments = (CLUSTER, *_SET)

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        named = _named(parsed_args, "set")
        return _put(self.client, parsed_args, {**_present(self.client, parsed_args), **named})


class UnsetCluster(Details):
    """Give settings of a cluster their defaults again."""

    arguments = (CLUSTER, *_UNSET)

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
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
        raise UsageError(f"cluster {verb}: name at least one setting")
    return named


def _present(client: Client, parsed_args: argparse.Namespace) -> dict[str, Any]:
    cluster = client.get(cluster_path(parsed_args.cluster))
    return {name: value for name, value in cluster.items() if name not in _NO_SETTINGS}


def _put(client: Client, parsed_args: argparse.Namespace, settings: Mapping[str, Any]) -> ShownTable:
    return _details(parsed_args, client.put(cluster_path(parsed_args.cluster), settings))


def _details(parsed_args: argparse.Namespace, cluster: Mapping[str, Any]) -> ShownTable:
    """Return the fields of a cluster and their values; for people, objects are JSON, defaults named."""
    names = (*_COLUMNS, *(name for name in cluster if name not in _COLUMNS))
    values = (cluster[name] for name in names)
    if parsed_args.formatter != "table":
        return names, tuple(values)
    left = {name: f"{default} (default)" for name, default in _DEFAULTS.items() if cluster.get(name) is None}
    shown = (json.dumps(value) if isinstance(value, dict | list) else value for value in values)
    fields = {**dict(zip(names, shown, strict=True)), **left}
    return tuple(fields), tuple(fields.values())
