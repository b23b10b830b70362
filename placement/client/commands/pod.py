"""`placement pod`: pods of Kubernetes clusters."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from placement.client.arguments import CLUSTER, UsageError, argument, given, limit, read_yaml
from placement.client.cells import TextCell, cpu_list, documents, lines
from placement.client.command import ActionCommand, Details, Listing
from placement.client.commands.cluster import (
    InClusters,
    cluster_path,
    in_cluster,
    names_in_cluster,
    put_each,
    read_name,
    require_node,
)
from placement.client.explanations import Explaining, near_misses
from placement.client.tables import ShownTable
from placement.engine.domain.errors import PlacementError

if TYPE_CHECKING:
    from placement.client.client import Client

_NAMESPACE = "default"
_LISTED = ("namespace", "name", "node", "qos_class", "cpuset", "phase", "consumer_uuid")
_CREATED = ("namespace", "name", "node", "cpuset", "score", "annotations", "remarks")
_CONFIRMED = "confirmed_by_kubernetes"
_LINES = ("warnings", "remarks", "unreadable")
_SHOWN = (
    *("namespace", "name", "uid", "consumer_uuid", "node", "resource_provider", "phase"),
    *("qos_class", "kubernetes_qos_class", _CONFIRMED, "cpuset", "containers", "annotations", *_LINES),
)
_SHOWN_PODS = 50
_SHOWN_NODES = 10
_NAMED = 3
# For so many kinds of refusal the missing amounts are asked for, one by one.
_EXPLAINED = 5
_FILE = argument("file", metavar="FILE", help="manifest; - for standard input")
_NODES = argument("--node", action="append", help="look at this node only, repeatable")
_STRICT = argument(
    "--strict", action="store_true", help="refuse a pod that asks for what is not decided, as a volume claim"
)
_POD = (
    *in_cluster("pod", "POD"),
    argument("-n", "--namespace", help=f"namespace of the pod (default {_NAMESPACE}); or NAMESPACE/POD"),
)


class ListPods(InClusters):
    """List the pods of a cluster, or of all clusters that have nodes.

    Formats that are written row by row, csv and value, begin with the first page of the service.
    """

    arguments = (
        *InClusters.arguments,
        argument("-n", "--namespace", help="in this namespace"),
        argument("--node", help="on this node"),
        argument("--qos", help="of this QoS class, such as LSR"),
        limit(f"N pods at most (default {_SHOWN_PODS} in tables)"),
    )
    left_out_first = ("phase", "qos_class", "cpuset")
    kept = ("name", "node")
    only_wide = ("consumer_uuid",)
    nothing = "pods{where}"
    filters = ("namespace", "node", "qos")

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        wanted = {name: getattr(parsed_args, name) for name in self.filters}
        if parsed_args.cluster and parsed_args.node:
            require_node(self.client, parsed_args.cluster, parsed_args.node)

        def rows(cluster: str) -> Iterable[tuple[Any, ...]]:
            pods = self.entries(parsed_args, cluster_path(cluster, "pods"), "pods", "marker", wanted)
            return (tuple(_listed(name, pod) for name in _LISTED) for pod in pods)

        return self.listed(parsed_args, _LISTED, rows, _SHOWN_PODS)


class ShowPod(Details):
    """Show a pod with its node, CPUs and amounts.

    Kubernetes confirms a place that was given here when the pod is reported on its node.
    """

    arguments = _POD

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        pod = self.client.get(_path(parsed_args))
        pod[_CONFIRMED] = not pod["scheduled"] if pod["node"] else None
        return self.filled(parsed_args, {name: _cell(name, pod[name]) for name in _SHOWN})


class CreatePods(Listing):
    """Place the pods of manifests, or record the pods that say where they run.

    The file is YAML or JSON as `kubectl get -o yaml` prints it, in one or several documents or lists.
    A pod that is refused keeps only others of its gang from their places. Creating the same again changes
    nothing. A pod with another spec than before is placed anew, and a remark says what it gave back.
    """

    arguments = (
        CLUSTER,
        _FILE,
        argument("-n", "--namespace", help="namespace of manifests without one (default default)"),
        _STRICT,
    )
    left_out_first = ("score", "cpuset")
    kept = ("name", "node", "remarks")
    only_wide = ("annotations",)

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        """Send the pods one by one; all at once if any of them is in a gang."""
        from placement.common.gang import gang_of

        cluster, default = parsed_args.cluster, parsed_args.namespace or _NAMESPACE
        pods = [(_names(manifest, default), manifest) for manifest in _manifests(parsed_args.file)]
        if not pods:
            raise PlacementError(f"{parsed_args.file}: has no pods")
        if any(gang_of(manifest, namespace) for (namespace, _), manifest in pods):
            created = self._create_together(cluster, pods, parsed_args.strict)
        else:
            created = list(put_each(self, cluster, "pods", pods, _query_of(parsed_args.strict)))
        for pod in created:
            pod["remarks"] = [*pod["warnings"], *pod["remarks"]]
        return _CREATED, [tuple(_cell(column, pod[column]) for column in _CREATED) for pod in created]

    def _create_together(
        self, cluster: str, pods: Sequence[tuple[tuple[str, str], Mapping[str, Any]]], strict: bool
    ) -> list[dict[str, Any]]:
        items = [
            {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
            for (namespace, _), manifest in pods
        ]
        body = {"apiVersion": "v1", "kind": "List", "items": items}
        outcomes = self.client.post(cluster_path(cluster, "pods") + _query_of(strict), body)["pods"]
        for outcome in outcomes:
            if "error" in outcome:
                self.fail(f"{outcome['namespace']}/{outcome['name']}: {outcome['error']['detail']}")
        return [outcome["pod"] for outcome in outcomes if "pod" in outcome]


class DeletePod(ActionCommand):
    """Release what a pod holds, and forget it."""

    arguments = _POD

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.client.delete(_path(parsed_args))


class PreviewPod(Listing):
    """List the nodes where a pod would go, best first, then nodes that refuse it and why; claims nothing.

    Nodes where the pod gets more of what it prefers of its CPUs are its first choice, whatever their score.
    For people, nodes that refuse for the same reasons are one row, with what the nearest ones lack.
    """

    arguments = (
        CLUSTER,
        _FILE,
        _NODES,
        limit(f"N fitting nodes at most (default {_SHOWN_NODES} in tables)"),
        _STRICT,
    )
    left_out_first = ("cpuset",)
    kept = ("node", "score", "choice", "remarks")

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        client, cluster, pod = self.client, parsed_args.cluster, _manifest(parsed_args.file)
        preview = _preview(client, cluster, pod, parsed_args.node, parsed_args.limit, parsed_args.strict)
        for remark in (preview["message"], *preview["warnings"]):
            self.note(remark)
        self.exit_status = 0 if preview["fitting"] else 1
        nodes = preview["nodes"]
        rows: Iterable[tuple[Any, ...]] = [
            (number, node["name"], node["score"], choice, node["cpuset"], lines(node["remarks"]))
            for number, (choice, node) in enumerate(zip(_choices(nodes), nodes, strict=True), start=1)
        ]
        if parsed_args.limit is None:
            rows = self.first(parsed_args, rows, _SHOWN_NODES)
        if self.for_people(parsed_args):
            refusing = _sum_up(client, cluster, pod, preview["rejected"])
        else:
            refusing = [(each["node"], each["reasons"]) for each in preview["rejected"]]
        rows = [*rows, *((None, node, *[None] * 3, lines(reasons)) for node, reasons in refusing)]
        return ("#", "node", "score", "choice", "cpuset", "remarks"), rows


class ExplainPod(Explaining):
    """Explain how many nodes fit a pod, or which condition no node meets and which nodes come closest."""

    arguments = (CLUSTER, _FILE, _NODES)

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        pod = _manifest(parsed_args.file)
        preview = _preview(self.client, parsed_args.cluster, pod, parsed_args.node, 0)
        for warning in preview["warnings"]:
            self.note(warning)
        return self.result(parsed_args, preview["explanation"])


class TranslatePod(Listing):
    """List the queries for allocation candidates that a pod stands for, best first."""

    arguments = (CLUSTER, _FILE)

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
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


def _listed(name: str, pod: Mapping[str, Any]) -> object:
    if name == "cpuset" and not pod["cpuset"] and pod["node"]:
        return TextCell("", ["shared"])
    return pod[name]


def _choices(nodes: Sequence[Mapping[str, Any]]) -> Iterable[int]:
    """Return 1 for the nodes where the pod misses least, 2 for the next ones, and so on."""
    levels = sorted({node["missed"] for node in nodes})
    return [levels.index(node["missed"]) + 1 for node in nodes]


def _preview(
    client: Client,
    cluster: str,
    pod: object,
    nodes: Sequence[str] | None,
    limit: int | None,
    strict: bool = False,
) -> Any:
    """Return where a pod would go, on these nodes or on all, with at most `limit` places."""
    request = {"pod": pod, **given(nodeNames=nodes, limit=limit)}
    return client.post(cluster_path(cluster, "pods", "preview") + _query_of(strict), request)


def _query_of(strict: bool) -> str:
    """Return the query string of requests that are strict about what is not decided."""
    return "?strict=true" if strict else ""


def _sum_up(
    client: Client, cluster: str, pod: object, refusals: Sequence[Mapping[str, Any]]
) -> list[tuple[object, list[str]]]:
    """Return a row for all nodes that refuse for the same reasons: some names, and what the nearest lack."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for refusal in refusals:
        groups.setdefault(tuple(refusal["reasons"]), []).append(refusal["node"])
    rows: list[tuple[object, list[str]]] = []
    for number, (reasons, nodes) in enumerate(sorted(groups.items(), key=lambda group: -len(group[1]))):
        lacking: list[str] = []
        if number < _EXPLAINED:
            nearest = _preview(client, cluster, pod, nodes, 0)["explanation"]["nearest"]
            # The others say what the reasons say.
            amounts = [miss for miss in nearest if "missing" in miss]
            lacking = [f"  {sentence}" for sentence in islice(near_misses(amounts), _NAMED)]
        named = nodes if len(nodes) <= _NAMED else [*nodes[:_NAMED], f"... {len(nodes) - _NAMED} more"]
        rows.append((lines(named), [*reasons, *lacking]))
    return rows


def _cell(name: str, value: Any) -> object:
    if name == "annotations":
        return documents(value)
    if name == "containers":
        return TextCell(value, (f"{each['name']}: CPUs {cpu_list(each.get('cpuset'))}" for each in value))
    return lines(value) if name in _LINES else value


def _manifests(file: str) -> Sequence[Mapping[str, Any]]:
    from placement.common.documents import pods_manifests

    return pods_manifests(read_yaml(file))


def _manifest(file: str) -> Mapping[str, Any]:
    found = _manifests(file)
    if len(found) != 1:
        raise PlacementError(f"{file}: has {len(found)} pods, but this command takes one")
    return found[0]


def _names(manifest: Mapping[str, Any], default: str) -> tuple[str, str]:
    """Return the namespace and the name. Raises PlacementError for a pod without a name."""
    name = read_name(manifest, "Pod")
    namespace = manifest["metadata"].get("namespace") or default
    if not isinstance(namespace, str):
        raise PlacementError(f"metadata.namespace: of Pod {name} is not text")
    return namespace, name


def _path(parsed: argparse.Namespace) -> str:
    cluster, *between, name = names_in_cluster(parsed, "pod", "NAMESPACE/POD")
    namespaces = {*between, *({parsed.namespace} - {None})}
    if len(namespaces) > 1:
        raise UsageError(f"--namespace: {parsed.namespace} is not that of {'/'.join([*between, name])}")
    return cluster_path(cluster, "pods", *(namespaces or {_NAMESPACE}), name)
