"""Differences between the service and kube-scheduler that have a reason; docs/kubernetes.md lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any

from placement.common.manifest import Field, ManifestReport, parse_quantity
from placement.pods.manifests.pod import pod_requests, read_pod
from placement.pods.manifests.selection import NodeSelection, read_attributes, read_node_selection
from tests.differential.comparing import FILTER, Pair
from tests.differential.random_pods import NAMESPACE_NAME

_UNITS = {"memory": 2**20, "ephemeral-storage": 2**30}
_MOST_PIECES = 2**31 - 1
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
# The minor version that is tried besides a current one; some of what it decides, later ones decide otherwise.
_OLD = 20
_INSUFFICIENT = "Insufficient "


@dataclass(frozen=True)
class KnownDifference:
    """A kind of difference: who refuses what, and of which pairs that is true."""

    what: str
    explains: Callable[[Pair], bool]


def _requests(pod: Mapping[str, Any]) -> Mapping[str, Fraction]:
    return pod_requests(read_pod(pod, ManifestReport()))


def _used(pair: Pair, resource: str, unit: int) -> int:
    """Return what the pods of the node request, in whole units, each rounded up."""
    return sum(ceil(_requests(pod).get(resource, Fraction(0)) / unit) for pod in pair.neighbours)


def _offered(pair: Pair, resource: str) -> Fraction:
    return parse_quantity(pair.node["status"]["allocatable"].get(resource, "0"))


def _host_ports(pod: Mapping[str, Any]) -> set[tuple[str, int]]:
    ports = [port for each in pod["spec"]["containers"] for port in each.get("ports", [])]
    return {(port.get("protocol", "TCP"), port["hostPort"]) for port in ports if port.get("hostPort")}


def _has_taken_port(pair: Pair) -> bool:
    """Kube-scheduler alone refuses a node where a pod has the host port."""
    taken = set().union(*map(_host_ports, pair.neighbours))
    return pair.ours and bool(taken & _host_ports(pair.pod.manifest))


def _is_rounded(pair: Pair) -> bool:
    """The service alone refuses a node whose memory or disk is short in whole units only."""
    if pair.ours or not pair.reasons:
        return False
    return all(
        resource in _UNITS and _is_short(pair, resource, _UNITS[resource]) for resource in _insufficient(pair)
    )


def _insufficient(pair: Pair) -> list[str]:
    """Return the resources that are too few by the reasons, the whole reason where it is another."""
    words = [each for reason in pair.reasons for each in reason.split(", ")]
    return [each.removeprefix(_INSUFFICIENT).partition(":")[0] for each in words]


def _is_short(pair: Pair, resource: str, unit: int) -> bool:
    asked = ceil(_requests(pair.pod.manifest).get(resource, Fraction(0)) / unit)
    return _used(pair, resource, unit) + asked > floor(_offered(pair, resource) / unit)


def _has_too_many_pieces(pair: Pair) -> bool:
    """The service alone refuses a node that offers more pieces than an inventory counts."""
    return not pair.ours and all(_offered(pair, each) > _MOST_PIECES for each in _insufficient(pair))


def _is_overcommitted(pair: Pair) -> bool:
    """An old kube-scheduler alone refuses a node that lacks what the pod asks none of."""
    if not pair.ours or pair.minor > _OLD:
        return False
    requests = _requests(pair.pod.manifest)
    compared = {"cpu", "memory", "ephemeral-storage", *requests}
    lacking = [each for each in compared if not requests.get(each) and _exceeds(pair, each)]
    return bool(requests) and bool(lacking)


def _exceeds(pair: Pair, resource: str) -> bool:
    used = sum(_requests(pod).get(resource, Fraction(0)) for pod in pair.neighbours)
    return used > _offered(pair, resource)


def _spreads_all(pair: Pair) -> bool:
    """An old kube-scheduler alone counts all pods where the selector of a spread is empty."""
    return pair.minor <= _OLD and any(each.get("labelSelector") == {} for each in _constraints(pair))


def _constraints(pair: Pair) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pair.pod.manifest["spec"].get("topologySpreadConstraints", [])
    return found


def _spreads_over_other_nodes(pair: Pair) -> bool:
    """An old kube-scheduler alone counts pods on nodes that the pod does not select or that lack a key."""
    if pair.minor > _OLD:
        return False
    constraints = _constraints(pair)
    spec = Field("spec", pair.pod.manifest["spec"], ManifestReport())
    selection = read_node_selection(spec)
    places, others = set(), set()
    for node in pair.nodes:
        labels = node["metadata"]["labels"]
        counts = all(each["topologyKey"] in labels for each in constraints) and _selects(selection, node)
        has_pods = any(pod["spec"].get("nodeName") == node["metadata"]["name"] for pod in pair.there)
        if counts or has_pods:
            of_node = {(each["topologyKey"], labels.get(each["topologyKey"])) for each in constraints}
            (places if counts else others).update(of_node)
    return bool(places & others)


def _selects(selection: NodeSelection, node: dict[str, Any]) -> bool:
    attributes = read_attributes(node)
    return all(attributes.labels.get(key) == value for key, value in selection.selector) and (
        selection.terms is None or any(term.holds(attributes) for term in selection.terms)
    )


def _terms(pod: Mapping[str, Any], *sides: str) -> Iterator[dict[str, Any]]:
    affinity = pod["spec"].get("affinity", {})
    for side in sides:
        yield from affinity.get(side, {}).get(_REQUIRED, [])


def _ask_for_labels(terms: Iterable[dict[str, Any]]) -> bool:
    """Return whether a term selects namespaces by a label that does not follow from the name."""
    selectors = [term.get("namespaceSelector") or {} for term in terms]
    keys = {key for selector in selectors for key in selector.get("matchLabels", {})}
    return bool(keys - {NAMESPACE_NAME})


def _asks_for_labels(pair: Pair) -> bool:
    """The preview refuses a pod that asks for labels of namespaces; filter leaves that to kube-scheduler."""
    if not _ask_for_labels(_terms(pair.pod.manifest, "podAffinity", "podAntiAffinity")):
        return False
    return pair.ours if pair.asked == FILTER else pair.reasons[0].startswith("400")


def _placed_ask_for_labels(pair: Pair) -> bool:
    """Kube-scheduler alone keeps a pod off others that name it by labels of its namespace."""
    return pair.ours and any(_ask_for_labels(_terms(pod, "podAntiAffinity")) for pod in pair.there)


KNOWN = (
    KnownDifference("a host port that a pod on the node has", _has_taken_port),
    KnownDifference("memory and disk in whole units", _is_rounded),
    KnownDifference("more than 2^31-1 pieces of a resource", _has_too_many_pieces),
    KnownDifference("a node that lacks what the pod asks none of", _is_overcommitted),
    KnownDifference("an empty selector of a topology spread", _spreads_all),
    KnownDifference("pods on nodes that count for no topology spread", _spreads_over_other_nodes),
    KnownDifference("labels of namespaces, asked for by the pod", _asks_for_labels),
    KnownDifference("labels of namespaces, asked for by placed pods", _placed_ask_for_labels),
)
"""All kinds; the reasons are in docs/kubernetes.md."""


def explanation(pair: Pair) -> KnownDifference | None:
    """Return the first known kind that a differing pair is of; None if there is none."""
    return next((kind for kind in KNOWN if kind.explains(pair)), None)
