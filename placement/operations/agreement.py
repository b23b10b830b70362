"""Whether two running services say the same, read over HTTP as any client reads them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from placement.domain.portions import portions
from placement.operations.client import Client, path

_OF_PROVIDER = ("inventories", "usages", "traits", "aggregates", "allocations")
# Work is handed to threads in portions, so that differences are told while the comparison goes on.
_PORTION = 2000

Progress = Callable[[str, int, int], None]
Connect = Callable[[], Client]


@dataclass
class Agreement:
    """How much was compared, and what differs: a sentence each."""

    compared: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)


class Comparison:
    """Two services, A and B, each asked by several threads at once."""

    def __init__(self, connect_a: Connect, connect_b: Connect, clients: int) -> None:
        """`connect_a` and `connect_b` make a client, which one thread uses; there are `clients` threads."""
        self._connect = (connect_a, connect_b)
        self._clients = clients
        self._own = threading.local()
        self._found = Agreement()

    def run(self, sample: int | None, progress: Progress) -> Agreement:
        """Compare names, providers with all they have, and the consumers that hold something of them.

        `sample` limits the providers, chosen by chance. What differs is read once more before it is told, as
        both services may be written to meanwhile. Raises ServiceError.
        """
        self._names(
            "resource classes", lambda client: _names(client, "/resource_classes", "resource_classes")
        )
        self._names("traits", lambda client: set(client.get("/traits")["traits"]))
        providers = self._names("providers", lambda client: set(_providers(client)))
        chosen = random.sample(providers, min(sample, len(providers))) if sample else providers
        consumers = self._each("provider", chosen, _provider, progress)
        self._each("consumer", sorted(consumers), _consumer, progress)
        return self._found

    def _names(self, what: str, read: Callable[[Client], set[str]]) -> list[str]:
        """Compare two sets of names; those that both have."""
        a, b = (read(client) for client in self._both())
        if a != b:
            a, b = (read(client) for client in self._both())
        for only, where in ((a - b, "A"), (b - a, "B")):
            self._found.differences += [f"{what}: only {where} has {name}" for name in sorted(only)]
        self._found.compared[what] = len(a | b)
        return sorted(a & b)

    def _each(self, what: str, uuids: list[str], read: _Read, progress: Progress) -> set[str]:
        """Compare one thing after another; the consumers that were met."""
        met: set[str] = set()
        with ThreadPoolExecutor(self._clients) as pool:
            done = 0
            for portion in portions(uuids, _PORTION):
                for consumers, differences in pool.map(lambda uuid: self._one(what, uuid, read), portion):
                    met |= consumers
                    self._found.differences += differences
                done += len(portion)
                progress(f"{what}s", done, len(uuids))
        self._found.compared[f"{what}s read"] = len(uuids)
        return met

    def _one(self, what: str, uuid: str, read: _Read) -> tuple[set[str], list[str]]:
        a, b = (read(client, uuid) for client in self._both())
        if a != b:
            a, b = (read(client, uuid) for client in self._both())
        differences = [
            f"{what} {uuid}: {part} are {a.get(part)} in A and {b.get(part)} in B"
            for part in sorted({*a, *b})
            if a.get(part) != b.get(part)
        ]
        return {*(a.get("allocations") or {}), *(b.get("allocations") or {})}, differences

    def _both(self) -> tuple[Client, Client]:
        """The clients of this thread."""
        if not hasattr(self._own, "clients"):
            self._own.clients = tuple(connect() for connect in self._connect)
        clients: tuple[Client, Client] = self._own.clients
        return clients


_Read = Callable[[Client, str], dict[str, Any]]


def _names(client: Client, route: str, key: str) -> set[str]:
    return {entry["name"] for entry in client.get(route)[key]}


def _providers(client: Client) -> Iterator[str]:
    return (entry["uuid"] for entry in client.get("/resource_providers")["resource_providers"])


def _provider(client: Client, uuid: str) -> dict[str, Any]:
    """The provider and all it has, without order and links."""
    own = client.get(path("resource_providers", uuid))
    found = {key: value for key, value in own.items() if key not in ("links", "uuid")}
    for part in _OF_PROVIDER:
        answer = client.get(path("resource_providers", uuid, part))[part]
        found[part] = sorted(answer) if isinstance(answer, list) else answer
    return found


def _consumer(client: Client, uuid: str) -> dict[str, Any]:
    """What a consumer is and holds, without the generations of providers."""
    found = dict(client.get(path("allocations", uuid)))
    held = found.pop("allocations")
    return {**found, "resources": {provider: entry["resources"] for provider, entry in held.items()}}
