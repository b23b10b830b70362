"""`placement pod`: pods of Kubernetes clusters."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placement.client.commands.candidates import Explaining
from placement.client.commands.cluster import cluster_path, put_named, read_name
from placement.client.display import CLUSTER, ActionCommand, Details, Listing, argument, limit, read_yaml
from placement.client.formats import Containers, Lines, PagedList, Pairs
from placement.engine.domain.errors import PlacementError

if TYPE_CHECKING:
    from placement.client.client import Client

_NAMESPACE = "default"
_LISTED = ("namespace", "name", "node", "qos_class", "cpuset", "phase", "consumer_uuid")
_CREATED = ("namespace", "name", "node", "cpuset", "score", "annotations", "remarks")
_SHOWN = (
    "namespace",
    "name",
    "uid",
    "consumer_uuid",
    "node",
    "resource_provider",
    "phase",
    "qos_class",
    "kubernetes_qos_class",
    "scheduled",
    "cpuset",
    "containers",
    "annotations",
    "warnings",
    "remarks",
    "unreadable",
)
_SHOWN_PODS = 50
_SHOWN_NODES = 10
_NAMED = 3
# For so many kinds of refusal the missing amounts are asked for, one by one.
_EXPLAINED = 5
_LINES = {"warnings", "remarks", "unreadable"}
_FILE = argument("file", metavar="FILE", help="manifest; - for standard input")
_NODES = argument("--node", action="append", help="look at this node only, repeatable")
_POD = (
    CLUSTER,
    argument("pod", help="name of the pod"),
    argument("--namespace", default=_NAMESPACE, help="where it is (default %(default)s)"),
)


class ListPods(Listing):
    """List the pods of a cluster.

    Formats that are written row by row, csv and value, begin with the first page of the service.
    """

    arguments = (
        CLUSTER,
        argument("--namespace", help="in this namespace"),
        argument("--node", help="on this node"),
        argument("--qos", help="of this QoS class, such as LSR"),
        limit(f"so many at most (else {_SHOWN_PODS} for people)"),
    )
    left_out_first = ("consumer_uuid", "phase", "qos_class", "cpuset")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask page by page and list."""
        given = {name: getattr(parsed_args, name) for name in ("namespace", "node", "qos")}
        pods = PagedList(self.client, cluster_path(parsed_args.cluster, "pods"), "pods", "marker")
        found: Iterable[dict[str, Any]] = pods.entries(given, parsed_args.limit)
        if parsed_args.limit is None:
            found = self.first(parsed_args, found, _SHOWN_PODS)
        return _LISTED, (tuple(pod[name] for name in _LISTED) for pod in found)


class ShowPod(Details):
    """Show a pod, where it is and what it was given."""

    arguments = _POD

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and show."""
        pod = self.client.get(_path(parsed_args.cluster, parsed_args.namespace, parsed_args.pod))
        return _SHOWN, [_cell(name, pod[name]) for name in _SHOWN]


class CreatePods(Listing):
    """Place the pods of manifests, or record the pods that say where they run.

    The file is YAML or JSON as `kubectl get -o yaml` prints it, in one or several documents or lists.
    Creating the same again changes nothing.
    """

    arguments = (
        CLUSTER,
        _FILE,
        argument("--namespace", help="of manifests that name none (default default)"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Send the pods one by one, until one is refused; all at once if any of them is in a gang."""
        manifests = _manifests(parsed_args.file)
        return _CREATED, list(self._created(parsed_args.cluster, manifests, parsed_args.namespace))

    def _created(
        self, cluster: str, manifests: Sequence[Mapping[str, Any]], default: str | None
    ) -> Iterator[tuple[Any, ...]]:
        from placement.common.gang import gang_of

        client = self.client
        named = [(*_names(manifest, default or _NAMESPACE), manifest) for manifest in manifests]
        is_gang = any(gang_of(manifest, namespace) for namespace, _, manifest in named)
        for pod in _together(client, cluster, named) if is_gang else _in_turn(client, cluster, named):
            pod["remarks"] = [*pod["warnings"], *pod["remarks"]]
            yield tuple(_cell(column, pod[column]) for column in _CREATED)


_Named = Sequence[tuple[str, str, Mapping[str, Any]]]


def _in_turn(client: Client, cluster: str, pods: _Named) -> Iterator[dict[str, Any]]:
    for namespace, name, manifest in pods:
        yield put_named(client, manifest, cluster, "pods", namespace, name)


def _together(client: Client, cluster: str, pods: _Named) -> Iterator[dict[str, Any]]:
    items = [
        {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
        for namespace, _, manifest in pods
    ]
    answer = client.post(cluster_path(cluster, "pods"), {"apiVersion": "v1", "kind": "List", "items": items})
    for outcome in answer["pods"]:
        if "error" in outcome:
            where = f"{outcome['namespace']}/{outcome['name']}"
            raise PlacementError(f"{where}: {outcome['error']['detail']}")
        yield outcome["pod"]


class DeletePod(ActionCommand):
    """Release what a pod holds, and forget it."""

    arguments = _POD

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete it."""
        self.client.delete(_path(parsed_args.cluster, parsed_args.namespace, parsed_args.pod))


class PreviewPod(Listing):
    """List the nodes where a pod would go, best first, then nodes that refuse it and why; claims nothing.

    For people, nodes that refuse for the same reasons are one row, with what the nearest ones lack.
    """

    arguments = (
        CLUSTER,
        _FILE,
        _NODES,
        limit(f"so many fitting nodes at most (else {_SHOWN_NODES} for people)"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and list."""
        client, cluster, pod = self.client, parsed_args.cluster, _manifest(parsed_args.file)
        preview = _preview(client, cluster, pod, parsed_args.node, parsed_args.limit)
        for remark in (preview["message"], *preview["warnings"]):
            self.note(remark)
        self.exit_status = 0 if preview["fitting"] else 1
        fitting: Iterable[tuple[Any, ...]] = _fitting(preview)
        if parsed_args.limit is None:
            fitting = self.first(parsed_args, fitting, _SHOWN_NODES)
        for_people = self.for_people(parsed_args)
        refusing = _summed_up(client, cluster, pod, preview) if for_people else _refusing(preview)
        return ("#", "node", "score", "cpuset", "remarks"), [*fitting, *refusing]


class ExplainPod(Explaining):
    """Explain on how many nodes a pod would fit, or which condition no node meets and which come closest."""

    arguments = (CLUSTER, _FILE, _NODES)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and tell."""
        pod = _manifest(parsed_args.file)
        preview = _preview(self.client, parsed_args.cluster, pod, parsed_args.node, 0)
        return self.told(parsed_args, preview["explanation"])


class TranslatePod(Listing):
    """List the queries for allocation candidates that a pod stands for, best first."""

    arguments = (
        CLUSTER,
        _FILE,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Translate and list."""
        path = cluster_path(parsed_args.cluster, "pods", "translation")
        answer = self.client.post(path, _manifest(parsed_args.file))
        for gap in answer["not_expressed"]:
            self.note(f"not expressed: {gap}")
        for warning in answer["warnings"]:
            self.note(warning)
        return ("#", "meaning", "query"), [
            (number, entry["meaning"], entry["query"])
            for number, entry in enumerate(answer["queries"], start=1)
        ]


def _preview(
    client: Client, cluster: str, pod: object, nodes: Sequence[str] | None, limit: int | None
) -> Any:
    """Return where a pod would go, on these nodes or on all, with at most `limit` places."""
    request: dict[str, Any] = {"pod": pod}
    if nodes is not None:
        request["nodeNames"] = nodes
    if limit is not None:
        request["limit"] = limit
    return client.post(cluster_path(cluster, "pods", "preview"), request)


def _fitting(preview: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for number, node in enumerate(preview["nodes"], start=1):
        yield number, node["name"], node["score"], node["cpuset"], Lines(node["remarks"])


def _refusing(preview: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for refusal in preview["rejected"]:
        yield None, refusal["node"], None, None, Lines(refusal["reasons"])


def _summed_up(client: Client, cluster: str, pod: object, preview: Mapping[str, Any]) -> Iterator[Any]:
    """Yield a row for all nodes that refuse for the same reasons: some names, and what the nearest lack."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for refusal in preview["rejected"]:
        groups.setdefault(tuple(refusal["reasons"]), []).append(refusal["node"])
    for number, (reasons, nodes) in enumerate(sorted(groups.items(), key=lambda group: -len(group[1]))):
        lacking = _lacking(client, cluster, pod, nodes) if number < _EXPLAINED else []
        named = nodes if len(nodes) <= _NAMED else [*nodes[:_NAMED], f"... {len(nodes) - _NAMED} more"]
        yield None, Lines(named), None, None, Lines([*reasons, *lacking])


def _lacking(client: Client, cluster: str, pod: object, nodes: Sequence[str]) -> list[str]:
    """Return sentences about the amounts that the nearest of these nodes lack."""
    nearest = _preview(client, cluster, pod, nodes, 0)["explanation"]["nearest"]
    return [sentence for miss in nearest for sentence in miss["sentences"]][:_NAMED]


def _cell(name: str, value: Any) -> object:
    if name == "annotations":
        return Pairs(value)
    if name == "containers":
        return Containers(value)
    return Lines(value) if name in _LINES else value


def _manifests(file: str) -> Sequence[Mapping[str, Any]]:
    from placement.common.manifest_lists import pods_manifests

    return pods_manifests(read_yaml(file))


def _manifest(file: str) -> Mapping[str, Any]:
    found = _manifests(file)
    if len(found) != 1:
        raise PlacementError(f"{file}: has {len(found)} pods, and one is asked about at a time")
    return found[0]


def _names(manifest: Mapping[str, Any], default: str) -> tuple[str, str]:
    """Return the namespace and the name. Raises PlacementError for a pod without a name."""
    name = read_name(manifest, "Pod")
    namespace = manifest["metadata"].get("namespace") or default
    if not isinstance(namespace, str):
        raise PlacementError(f"metadata.namespace: of Pod {name} is no text")
    return namespace, name


def _path(cluster: str, namespace: str, name: str) -> str:
    return cluster_path(cluster, "pods", namespace, name)
