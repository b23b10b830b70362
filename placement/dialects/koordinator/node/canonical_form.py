"""Manifests reduced to what decides how a host is imported, so that like hosts have equal ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ANONYMOUS = "node"

_NODE_KEYS = ("node.koordinator.sh/",)
_REPORT_KEYS = ("node.koordinator.sh/", "kubelet.koordinator.sh/")


def anonymous_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """A Node that was imported before, reduced to what its import depends on.

    Importing it with its reduced topology gives the same host under the name `ANONYMOUS`.
    """
    metadata, status = _mapping(node, "metadata"), _mapping(node, "status")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": ANONYMOUS,
            "labels": _chosen(metadata, "labels", _NODE_KEYS),
            "annotations": _chosen(metadata, "annotations", _NODE_KEYS),
        },
        "status": {
            "allocatable": status.get("allocatable"),
            "nodeInfo": {"architecture": _mapping(status, "nodeInfo").get("architecture")},
        },
    }


def anonymous_report(nrt: Mapping[str, Any]) -> dict[str, Any]:
    """A NodeResourceTopology that was imported before, reduced likewise."""
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": ANONYMOUS,
            "annotations": _chosen(_mapping(nrt, "metadata"), "annotations", _REPORT_KEYS),
        },
        "topologyPolicies": nrt.get("topologyPolicies"),
        "zones": [_zone(zone) for zone in nrt.get("zones") or ()],
    }


def _zone(zone: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": zone.get("name"),
        "type": zone.get("type"),
        "resources": [
            {"name": entry.get("name"), "allocatable": entry.get("allocatable")}
            for entry in zone.get("resources") or ()
        ],
    }


def _chosen(metadata: Mapping[str, Any], key: str, prefixes: tuple[str, ...]) -> dict[str, Any]:
    return {name: text for name, text in _mapping(metadata, key).items() if name.startswith(prefixes)}


def _mapping(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = parent.get(key) or {}
    return found
