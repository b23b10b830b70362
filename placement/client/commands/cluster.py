"""`placement cluster`: Kubernetes clusters."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from placement.client.display import CLUSTER, ActionCommand, Details, Listing, argument
from placement.common.manifest import Profile
from placement.engine.domain.errors import PlacementError

if TYPE_CHECKING:
    from placement.client.client import Client

_COLUMNS = ("name", "nodes", "profile", "description", "aggregate", "uuid")
_NO_SETTINGS = frozenset({"name", "nodes", "aggregate", "uuid", "remarks"})
"""Members of the answer about a cluster that are no settings."""


def _order(text: str) -> Any:
    """Return a way to score: the name of one, or JSON. Raises ArgumentTypeError."""
    if text.strip()[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"is no JSON: {error}") from None


class _Setting(NamedTuple):
    """A setting of clusters: its name in bodies, its option, and how argparse reads the option."""

    name: str
    option: str
    help: str
    reading: Mapping[str, Any] = MappingProxyType({})


_SETTINGS = (
    _Setting(
        "profile", "--profile", "how nodes become trees", {"choices": [str(profile) for profile in Profile]}
    ),
    _Setting("description", "--description", "a few words for people"),
    _Setting(
        "defaultCPUBindPolicy",
        "--default-cpu-bind-policy",
        "of LSE and LSR pods that name none: FullPCPUs, SpreadByPCPUs, or an empty text for none",
    ),
    _Setting(
        "defaultCPUExclusivePolicy",
        "--default-cpu-exclusive-policy",
        "of pods that name none: None, PCPULevel or NUMANodeLevel",
    ),
    _Setting(
        "defaultNUMATopologyPolicy",
        "--default-numa-topology-policy",
        "of hosts that have none: None, BestEffort, Restricted or SingleNUMANode",
    ),
    _Setting(
        "numaAllocateStrategy",
        "--numa-allocate-strategy",
        "MostAllocated, LeastAllocated or DistributeEvenly",
    ),
    _Setting("scoring", "--scoring", "how places are scored: a name, or JSON", {"type": _order}),
    _Setting("hostScoring", "--host-scoring", "former way to say how hosts are scored", {"type": _order}),
    _Setting(
        "numaScoring", "--numa-scoring", "former way to say how NUMA nodes are scored", {"type": _order}
    ),
    _Setting("guaranteedQoS", "--guaranteed-qos", "the class that Guaranteed stands for, such as LSR"),
    _Setting(
        "subPriorityImmutable",
        "--sub-priority-immutable",
        "whether the label koordinator.sh/priority must not change",
        {"type": json.loads, "choices": [True, False], "metavar": "{true,false}"},
    ),
    _Setting(
        "nodeLabels",
        "--node-label",
        "key of a label that becomes a trait, repeatable",
        {"action": "append", "metavar": "KEY"},
    ),
)
_SET = tuple(argument(each.option, dest=each.name, help=each.help, **each.reading) for each in _SETTINGS)
_UNSET = tuple(
    argument(each.option, dest=each.name, action="store_const", const=True, help=each.help)
    for each in _SETTINGS
)


def cluster_path(*segments: str) -> str:
    """Return the path of something about clusters."""
    from placement.client.client import path

    return f"/ext/v1{path('clusters', *segments)}"


def read_name(manifest: Mapping[str, Any], kind: str) -> str:
    """Return the name in a manifest. Raises PlacementError for one without."""
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str):
        raise PlacementError(f"metadata.name: a {kind} has none")
    return name


def put_named(client: Client, body: object, cluster: str, collection: str, *names: str) -> Any:
    """Put a member of a cluster, return the answer. Raises PlacementError that begins with its names."""
    try:
        return client.put(cluster_path(cluster, collection, *names), body)
    except PlacementError as error:
        raise PlacementError(f"{'/'.join(names)}: {error}") from None


class ListClusters(Listing):
    """List all clusters."""

    left_out_first = ("aggregate", "uuid")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and list."""
        return _COLUMNS, [_row(cluster) for cluster in self.client.get(cluster_path())["clusters"]]


class ShowCluster(Details):
    """Show a cluster with all settings that it has; the others have their defaults."""

    arguments = (CLUSTER,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and show."""
        return _details(parsed_args, self.client.get(cluster_path(parsed_args.cluster)))


class CreateCluster(Details):
    """Create a cluster; one that exists is refused and keeps its settings."""

    arguments = (CLUSTER, *_SET)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Put and show. Raises PlacementError if the cluster exists."""
        present = self.client.get(cluster_path())["clusters"]
        if any(cluster["name"] == parsed_args.cluster for cluster in present):
            raise PlacementError(
                f"Cluster {parsed_args.cluster} exists already; `cluster set` changes its settings."
            )
        return _put(self.client, parsed_args, _given(parsed_args))


class SetCluster(Details):
    """Change settings of a cluster; a setting that is not named stays as it is."""

    arguments = (CLUSTER, *_SET)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask, put and show. Raises PlacementError if no setting is named."""
        present, named = _to_change(self.client, parsed_args, "set")
        return _put(self.client, parsed_args, {**present, **named})


class UnsetCluster(Details):
    """Give settings of a cluster their defaults again."""

    arguments = (CLUSTER, *_UNSET)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask, put and show. Raises PlacementError if no setting is named."""
        present, named = _to_change(self.client, parsed_args, "unset")
        kept = {name: value for name, value in present.items() if name not in named}
        return _put(self.client, parsed_args, kept)


class DeleteCluster(ActionCommand):
    """Delete a cluster without nodes."""

    arguments = (CLUSTER,)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete it."""
        self.client.delete(cluster_path(parsed_args.cluster))


def _row(cluster: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(cluster[name] for name in _COLUMNS)


def _given(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that are named, by their names in bodies."""
    named = {each.name: getattr(parsed_args, each.name) for each in _SETTINGS}
    return {name: value for name, value in named.items() if value is not None}


def _to_change(
    client: Client, parsed_args: argparse.Namespace, verb: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the present settings of a cluster and the named ones. Raises PlacementError if none is named."""
    named = _given(parsed_args)
    if not named:
        raise PlacementError(f"cluster {verb}: no setting is named")
    return _settings(client.get(cluster_path(parsed_args.cluster))), named


def _put(client: Client, parsed_args: argparse.Namespace, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """Store the settings of a cluster; return what is shown of the answer."""
    return _details(parsed_args, client.put(cluster_path(parsed_args.cluster), settings))


def _settings(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in the answer about a cluster."""
    return {name: value for name, value in cluster.items() if name not in _NO_SETTINGS}


def _details(parsed_args: argparse.Namespace, cluster: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the fields of a cluster and their values; for people, objects are JSON."""
    names = (*_COLUMNS, *(name for name in cluster if name not in _COLUMNS))
    values = (cluster[name] for name in names)
    if parsed_args.formatter == "table":
        values = (json.dumps(value) if isinstance(value, dict | list) else value for value in values)
    return names, tuple(values)
