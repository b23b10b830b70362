"""What kube-scheduler's NodePorts, InterPodAffinity and PodTopologySpread say, written for obviousness."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.pod_rules import REASONS

HOSTNAME = "kubernetes.io/hostname"


@dataclass
class Node:
    """A node with its labels, whether a taint keeps the pod off, and the manifests of its pods."""

    name: str
    labels: Mapping[str, str]
    is_tainted: bool = False
    pods: list[dict[str, Any]] = field(default_factory=list)


def _labels(pod: Mapping[str, Any]) -> Mapping[str, str]:
    return dict(pod["metadata"]["labels"])


def _namespace(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["namespace"])


def _selected(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def _term_matches(term: Mapping[str, Any], owner: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    namespaces, by_name = term.get("namespaces") or [], term.get("namespaceSelector")
    if not namespaces and by_name is None:
        namespaces = [_namespace(owner)]
    if _namespace(pod) not in namespaces and by_name is None:
        return False
    own, labels = _labels(owner), _labels(pod)
    for key in term.get("matchLabelKeys", []):
        if key in own and labels.get(key) != own[key]:
            return False
    return _selected(term.get("labelSelector"), labels)


def _terms(pod: Mapping[str, Any], side: str, kind: str) -> Sequence[Any]:
    affinity = pod["spec"].get("affinity") or {}
    return list((affinity.get(side) or {}).get(f"{kind}DuringSchedulingIgnoredDuringExecution") or [])


def _constraints(pod: Mapping[str, Any], when: str) -> list[Any]:
    return [c for c in pod["spec"].get("topologySpreadConstraints", []) if c["whenUnsatisfiable"] == when]


def _same_place(one: Node, other: Node, key: str) -> bool:
    return key in one.labels and one.labels[key] == other.labels.get(key)


def refusal(pod: Mapping[str, Any], node: Node, nodes: Sequence[Node]) -> str | None:
    """Why the rules keep the pod off the node; None if they do not."""
    return _spread_refusal(pod, node, nodes) or _affinity_refusal(pod, node, nodes)


def _affinity_refusal(pod: Mapping[str, Any], node: Node, nodes: Sequence[Node]) -> str | None:
    near = _terms(pod, "podAffinity", "required")
    matching = [
        (other, placed)
        for other in nodes
        for placed in other.pods
        if all(_term_matches(term, pod, placed) for term in near)
    ]
    if near:
        if any(term["topologyKey"] not in node.labels for term in near):
            return REASONS["near"]
        if not all(any(_same_place(node, at, term["topologyKey"]) for at, _ in matching) for term in near):
            anybody = any(term["topologyKey"] in at.labels for at, _ in matching for term in near)
            if anybody or not all(_term_matches(term, pod, pod) for term in near):
                return REASONS["near"]
    for term in _terms(pod, "podAntiAffinity", "required"):
        for other in nodes:
            there = [placed for placed in other.pods if _term_matches(term, pod, placed)]
            if there and _same_place(node, other, term["topologyKey"]):
                return REASONS["apart"]
    for other in nodes:
        for placed in other.pods:
            for term in _terms(placed, "podAntiAffinity", "required"):
                if _same_place(node, other, term["topologyKey"]) and _term_matches(term, placed, pod):
                    return REASONS["kept"]
    return None


def _matches_constraint(constraint: Mapping[str, Any], pod: Mapping[str, Any], placed: Any) -> bool:
    if _namespace(pod) != _namespace(placed):
        return False
    return _selected(constraint["labelSelector"], _labels(placed))


def _counts(
    constraint: Mapping[str, Any], constraints: Sequence[Any], pod: Any, nodes: Sequence[Node]
) -> dict[str, int]:
    """How many pods are in each place that counts."""
    found: Counter[str] = Counter()
    for node in nodes:
        if any(each["topologyKey"] not in node.labels for each in constraints):
            continue
        selector = pod["spec"].get("nodeSelector") or {}
        if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not _selected(
            {"matchLabels": selector}, node.labels
        ):
            continue
        if constraint.get("nodeTaintsPolicy", "Ignore") == "Honor" and node.is_tainted:
            continue
        place = node.labels[constraint["topologyKey"]]
        found[place] += sum(_matches_constraint(constraint, pod, placed) for placed in node.pods)
    return dict(found)


def _spread_refusal(pod: Mapping[str, Any], node: Node, nodes: Sequence[Node]) -> str | None:
    constraints = _constraints(pod, "DoNotSchedule")
    for constraint in constraints:
        place = node.labels.get(constraint["topologyKey"])
        if place is None:
            return REASONS["unlabelled"]
        counts = _counts(constraint, constraints, pod, nodes)
        least = 0 if len(counts) < constraint.get("minDomains", 1) else min(counts.values())
        own = _matches_constraint(constraint, pod, pod)
        if counts.get(place, 0) + own - least > constraint["maxSkew"]:
            return REASONS["uneven"]
    return None


def affinity_scores(pod: Mapping[str, Any], fitting: Sequence[Node], nodes: Sequence[Node]) -> list[int]:
    """The normalized scores of InterPodAffinity."""
    raw = []
    for node in fitting:
        total = 0
        for other in nodes:
            for placed in other.pods:
                pairs = ((pod, placed), (placed, pod))
                for owner, mate in pairs:
                    for side, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
                        for each in _terms(owner, side, "preferred"):
                            term = each["podAffinityTerm"]
                            if _same_place(node, other, term["topologyKey"]):
                                total += sign * each["weight"] * _term_matches(term, owner, mate)
                for term in _terms(placed, "podAffinity", "required"):
                    if _same_place(node, other, term["topologyKey"]):
                        total += _term_matches(term, placed, pod)
        raw.append(total)
    least, most = min(raw), max(raw)
    return [0 if most == least else int(100 * (total - least) / (most - least)) for total in raw]


def prefers_spread(pod: Mapping[str, Any]) -> bool:
    """Whether PodTopologySpread scores nodes for the pod."""
    return bool(_constraints(pod, "ScheduleAnyway"))


def spread_scores(pod: Mapping[str, Any], fitting: Sequence[Node], nodes: Sequence[Node]) -> list[int]:
    """The normalized scores of PodTopologySpread."""
    constraints = _constraints(pod, "ScheduleAnyway")
    known = [node for node in fitting if all(each["topologyKey"] in node.labels for each in constraints)]
    raw: dict[str, int] = {}
    for node in known:
        score = 0.0
        for constraint in constraints:
            key = constraint["topologyKey"]
            if key == HOSTNAME:
                size = len(known)
                count = sum(_matches_constraint(constraint, pod, placed) for placed in node.pods)
            else:
                size = len({each.labels[key] for each in known})
                count = _counts(constraint, constraints, pod, nodes).get(node.labels[key], 0)
            score += count * math.log(size + 2) + constraint["maxSkew"] - 1
        raw[node.name] = math.floor(score + 0.5)
    least, most = min(raw.values(), default=0), max(raw.values(), default=0)
    return [
        0 if node.name not in raw else 100 if not most else 100 * (most + least - raw[node.name]) // most
        for node in fitting
    ]


def _host_ports(pod: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    spec = pod["spec"]
    containers = [*spec["containers"]]
    containers += [each for each in spec.get("initContainers", []) if each.get("restartPolicy") == "Always"]
    found = []
    for container in containers:
        for port in container.get("ports", []):
            number = port.get("hostPort") or 0
            if spec.get("hostNetwork") and number == 0:
                number = port["containerPort"]
            if number > 0:
                found.append((port.get("protocol") or "TCP", number, port.get("hostIP") or "0.0.0.0"))
    return found


def are_ports_free(pod: Mapping[str, Any], placed: Sequence[Mapping[str, Any]]) -> bool:
    """Whether no pod that is there has a port of this one, by NodePorts."""
    everywhere = ("0.0.0.0", "::")
    for protocol, number, address in _host_ports(pod):
        for other in placed:
            for other_protocol, other_number, other_address in _host_ports(other):
                if (protocol, number) != (other_protocol, other_number):
                    continue
                if address == other_address or address in everywhere or other_address in everywhere:
                    return False
    return True
