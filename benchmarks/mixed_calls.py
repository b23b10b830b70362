"""Calls of all kinds, as several clients make them for hours.

Every call releases or deletes what it has claimed or created, so that only history and names stay.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.wire import Wire
from tests.kubernetes import node_manifests, pod_manifest

_CLUSTER = "/ext/v1/clusters/edge"
_OWNER = {"user_id": "soak", "consumer_type": "INSTANCE"}
_PAGES = ("/ui/", "/ui/consumers", "/ui/changes", "/ui/why?kind=query&query=resources=VCPU:999")


class Client:
    """A caller on a connection of its own: its calls of random kinds, answers by status, and times."""

    def __init__(self, url: str, number: int) -> None:
        self.answers: Counter[int] = Counter()
        self._milliseconds: list[float] = []
        self._wire = Wire(url)
        self._random = random.Random(number)
        self._names = (f"soak-{number}-{serial}" for serial in itertools.count())

    def run(self, kinds: Sequence[str], stop: threading.Event) -> None:
        """Call until stopped."""
        while not stop.is_set():
            KINDS[self._random.choice(kinds)](self)

    def waited(self) -> list[float]:
        """Return how many milliseconds each call took since this was asked last."""
        waited, self._milliseconds = self._milliseconds, []
        return waited

    def claims(self) -> None:
        """Claim by query, for a project of its own, read, and release."""
        consumer = str(uuid.uuid4())
        body = {**_OWNER, "consumer_uuid": consumer, "project_id": next(self._names), "query": self._query()}
        self._call("POST", "/ext/v1/claims", body)
        self._call("GET", f"/allocations/{consumer}")
        self._call("DELETE", f"/allocations/{consumer}")

    def members(self) -> None:
        """Claim for three consumers at once, and release each."""
        consumers = [str(uuid.uuid4()) for _ in range(3)]
        owned = {**_OWNER, "project_id": "soak", "query": self._query()}
        members = [{**owned, "consumer_uuid": consumer} for consumer in consumers]
        self._call("POST", "/ext/v1/claims", {"members": members, "atomic": True})
        for consumer in consumers:
            self._call("DELETE", f"/allocations/{consumer}")

    def pods(self) -> None:
        """Preview, place, read and delete a pod."""
        path = f"{_CLUSTER}/pods/soak/{next(self._names)}"
        pod = pod_manifest(str(self._random.choice([1, 2, 4])), qos="LSR", uid=str(uuid.uuid4()))
        pod["metadata"] |= {"name": path.rpartition("/")[2], "namespace": "soak"}
        self._call("POST", f"{_CLUSTER}/pods/preview", pod)
        for method in ("PUT", "GET", "DELETE"):
            self._call(method, path, pod if method == "PUT" else None)

    def nodes(self) -> None:
        """Import a node, read it, and delete it."""
        name = next(self._names)
        self._call("PUT", f"{_CLUSTER}/nodes/{name}", node_manifests(name))
        self._call("GET", f"{_CLUSTER}/nodes/{name}")
        self._call("DELETE", f"{_CLUSTER}/nodes/{name}")

    def searches(self) -> None:
        """Ask for candidates, for an explanation, and for capacity."""
        self._call("GET", f"/allocation_candidates?{self._query()}&limit=20")
        self._call("GET", f"/ext/v1/allocation_candidates?cluster=edge&{self._query()}&explain=1&limit=5")
        self._call("GET", f"/ext/v1/capacity?{self._query()}")

    def lists(self) -> None:
        """Read lists."""
        self._call("GET", f"/resource_providers?{self._query()}")
        self._call("GET", f"/usages?project_id={next(self._names)}")
        self._call("GET", "/ext/v1/audit?limit=20")

    def refusals(self) -> None:
        """Ask for what is not there, and claim with a body that is no claim."""
        self._call("GET", f"/nothing/{next(self._names)}")
        self._call("GET", f"/allocation_candidates?resources={next(self._names)}:1")
        self._call("POST", "/ext/v1/claims", {"consumer_uuid": next(self._names)})

    def pages(self) -> None:
        """Read pages, as a browser does."""
        for path in _PAGES:
            self._call("GET", path, more={"Accept": "text/html"})

    def _query(self) -> str:
        return f"resources=VCPU:{self._random.randrange(1, 5)},MEMORY_MB:{self._random.randrange(1, 5000)}"

    def _call(self, method: str, path: str, body: Any = None, more: Mapping[str, str] | None = None) -> None:
        started = time.perf_counter()
        self.answers[self._wire.call(method, path, body, more)[0]] += 1
        self._milliseconds.append((time.perf_counter() - started) * 1000)


KINDS: dict[str, Callable[[Client], None]] = {
    each.__name__: each
    for each in (
        Client.claims,
        Client.members,
        Client.pods,
        Client.nodes,
        Client.searches,
        Client.lists,
        Client.refusals,
        Client.pages,
    )
}
