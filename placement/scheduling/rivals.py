"""Other schedulers on the nodes of the loop: what they have bound is read before each Binding.

It is needed only where both may use a node. On nodes that are marked no other scheduler binds.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from placement.common.manifest import ManifestReport, QuantityError, parse_quantity
from placement.common.pod_identity import ENDED_PHASES, canonical_uid
from placement.pods.manifests.pod import occupied_amounts, read_pod
from placement.scheduling.pending import PendingPod
from placement.sync.api_server import ALL_PODS, CORE, ApiServer, object_path

_PODS = "pods"


class Rivals:
    """What Kubernetes has on the nodes now, asked only while `shares_nodes`."""

    def __init__(self, api_server: ApiServer) -> None:
        self._api_server = api_server
        self._coming: defaultdict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
        self._lock = threading.Lock()
        self.shares_nodes = True

    @contextmanager
    def obstacle(self, pod: PendingPod, node: str) -> Iterator[str]:
        """Have why the pod must not be bound there after all, nothing if it may. Raises ApiServerError.

        The sum of the requests of all pods there, and of the ones that this process is binding there, must
        not pass what the node has.
        """
        if not self.shares_nodes:
            yield ""
            return
        with self._lock:
            self._coming[node][pod.id.uid] = pod.manifest
            coming = dict(self._coming[node])
        try:
            yield self._found(pod, node, coming)
        finally:
            with self._lock:
                del self._coming[node][pod.id.uid]
                if not self._coming[node]:
                    del self._coming[node]

    def _found(self, pod: PendingPod, node: str, coming: Mapping[str, Mapping[str, Any]]) -> str:
        found = self._api_server.get(object_path(f"{CORE}/nodes", node))
        if found is None:
            return f"node {node} is gone"
        pods = dict(coming)
        for page in self._api_server.pages(ALL_PODS, {"fieldSelector": f"spec.nodeName={node}"}):
            for each in page.items:
                if (each.get("status") or {}).get("phase") not in ENDED_PHASES:
                    pods[canonical_uid(str(each["metadata"].get("uid") or ""))] = each
        return _exceeded(
            pod.manifest, pods.values(), (found.get("status") or {}).get("allocatable") or {}, node
        )


def _exceeded(
    pod: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], allocatable: Mapping[str, Any], node: str
) -> str:
    """Return which of the resources that the pod asks for all pods ask too much of, nothing if none."""
    asked: defaultdict[str, Fraction] = defaultdict(Fraction)
    for each in pods:
        for name, amount in _amounts(each).items():
            asked[name] += amount
    for name in sorted(_amounts(pod)):
        try:
            offered = parse_quantity(allocatable.get(name, 0))
        except QuantityError:
            offered = Fraction(0)
        if asked[name] > offered:
            return f"other pods came to node {node} meanwhile: Insufficient {name}"
    return ""


def _amounts(pod: Mapping[str, Any]) -> dict[str, Fraction]:
    amounts = occupied_amounts(read_pod({"apiVersion": "v1", "kind": "Pod", **pod}, ManifestReport()))
    return {**{name: amount for name, amount in amounts.items() if amount}, _PODS: Fraction(1)}
