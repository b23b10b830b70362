"""Which candidate a client takes: the first of an unordered answer, or the best by some strategy.

`incumbent` stands for openstack-placement 16.0.0, whose answers have no order that means anything: asked
twice in one process it lists the same hosts in the same order, but another process lists them in another
order, and so does the same process for other amounts. Its clients therefore take the first host in an
arbitrary order for each worker and kind of request. Here it is worked out host by host, for two workers.

`unordered` is the first candidate of our own answer, which comes in order of the hosts' ids: first fit.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from benchmarks.data import DataSet, identifier
from benchmarks.packing.stream import Kind
from benchmarks.wire import Wire

Candidate = Mapping[str, Any]

_THEIRS, _OURS = "/allocation_candidates", "/ext/v1/allocation_candidates"
_WORKERS = 2
_RESOURCES = [{"name": "VCPU"}, {"name": "PCPU"}, {"name": "MEMORY_MB"}]
_RISING = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 100}]
_FULL = [{"utilization": 99, "score": 0}, {"utilization": 100, "score": 100}]
_MOST = {"type": "MostAllocated", "resources": _RESOURCES}
_CORES_GONE = {
    "type": "RequestedToCapacityRatio",
    "shape": _FULL,
    "resources": [{"name": "PCPU"}],
    "weight": 3,
}


class Client:
    """Asks the service for candidates of one run."""

    def __init__(self, url: str, data: DataSet, seed: int) -> None:
        self._wire = Wire(url)
        self._roots = [identifier(tree[0].name) for tree in data.hosts]
        self._hosts = {identifier(p.name): at for at, tree in enumerate(data.hosts) for p in tree}
        self._seed = seed
        self._chance = random.Random(seed)
        self._arbitrary: dict[tuple[int, str], list[int]] = {}
        self._full: dict[str, set[int]] = {}

    def incumbent(self, kind: Kind) -> Candidate | None:
        """The first candidate of the host that comes first in an arbitrary order of one of two workers."""
        full = self._full.setdefault(kind.name, set())
        for host in self._order_of(self._chance.randrange(_WORKERS), kind):
            if host not in full:
                found = self._asked(_THEIRS, f"{kind.query_in(self._roots[host])}&limit=1")
                if found:
                    return found[0]
                # It stays so until something on it is released; asking again would only take time.
                full.add(host)
        return None

    def released(self, candidate: Candidate) -> None:
        """What a candidate held is free again."""
        host = self._hosts[next(iter(candidate["allocations"]))]
        for full in self._full.values():
            full.discard(host)

    def _order_of(self, worker: int, kind: Kind) -> Sequence[int]:
        key = (worker, kind.name)
        if key not in self._arbitrary:
            places = list(range(len(self._roots)))
            random.Random(f"{self._seed} {worker} {kind.name}").shuffle(places)
            self._arbitrary[key] = places
        return self._arbitrary[key]

    def unordered(self, kind: Kind) -> Candidate | None:
        """The first candidate."""
        return next(iter(self._asked(_THEIRS, f"{kind.query}&limit=1")), None)

    def best(self, kind: Kind, order: object, wishes: str = "") -> Candidate | None:
        """The best candidate."""
        order_by = quote(json.dumps(order, separators=(",", ":")))
        return next(iter(self._asked(_OURS, f"{kind.query}&limit=1&order_by={order_by}{wishes}")), None)

    def _asked(self, path: str, query: str) -> list[Candidate]:
        found: list[Candidate] = orjson.loads(self._wire.must("GET", f"{path}?{query}"))[
            "allocation_requests"
        ]
        return found


def _by(order: object, wishes: str = "") -> Callable[[Client, Kind], Candidate | None]:
    return lambda client, kind: client.best(kind, order, wishes)


ORDERS: dict[str, Callable[[Client, Kind], Candidate | None]] = {
    "incumbent": Client.incumbent,
    "unordered": Client.unordered,
    "MostAllocated": _by(_MOST),
    "capacity ratio": _by(
        {"type": "RequestedToCapacityRatio", "shape": _RISING, "resources": _RESOURCES},
    ),
    "cores spared": _by(_CORES_GONE, "&prefer=!HW_NUMA_ROOT:2"),
    "cores spared, fullest": _by([_CORES_GONE, _MOST], "&prefer=!HW_NUMA_ROOT:2"),
    "LeastAllocated": _by({"type": "LeastAllocated", "resources": _RESOURCES}),
}
"""`cores spared`: first hosts whose cores are all taken, then hosts without cores, last hosts with free
cores; among each of these in order of their ids, or the fullest first."""


def _said(order: object, wishes: str = "") -> str:
    return f"&order_by={quote(json.dumps(order, separators=(',', ':')))}{wishes}"


CLAIMED_BY = {
    "unordered": "",
    "MostAllocated": _said(_MOST),
    "capacity ratio": _said({"type": "RequestedToCapacityRatio", "shape": _RISING, "resources": _RESOURCES}),
    "LeastAllocated": _said({"type": "LeastAllocated", "resources": _RESOURCES}),
}
"""What a claim adds to its query so that it gets the candidate that is the first by the order."""
