"""The comparison of two running services, read over HTTP as any client reads them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, NamedTuple

from placement.client.client import Client, ServiceError, path
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.domain.portions import portions

_OF_PROVIDER = ("inventories", "usages", "traits", "aggregates", "allocations")
# Work is handed to threads in portions, so that progress is shown while the comparison goes on.
_PORTION = 2000
ReadProgress = Callable[[str, int, int], None]
Connect = Callable[[], Client]


class Difference(NamedTuple):
    """A value that differs between two services, A and B; None where a service has none."""

    kind: str
    uuid: str
    name: str
    what: str
    a: Any
    b: Any

    def __str__(self) -> str:
        """Return it as a sentence."""
        called = f"{self.name} ({self.uuid})" if self.name else self.uuid
        begin = f"{self.kind} {called}: " + (f"{self.what} " if self.what else "")
        if self.a is None or self.b is None:
            where, value = ("B", self.b) if self.a is None else ("A", self.a)
            return f"{begin}is only in {where}" + ("" if value is True else f", {value}")
        return f"{begin}is {self.a} in A and {self.b} in B"


class Comparison:
    """Two services, A and B, each asked by several threads at once.

    `compared` are the numbers of things that were.
    """

    def __init__(self, connect_a: Connect, connect_b: Connect, clients: int) -> None:
        """Take `connect_a` and `connect_b` to make clients for each of `clients` threads."""
        self._connect = (connect_a, connect_b)
        self._clients = clients
        self._own = threading.local()
        self.compared: dict[str, int] = {}
        self.differences: list[Difference] = []

    def run(self, sample: int | None, progress: ReadProgress) -> None:
        """Compare names, providers with all they have, and the consumers that hold something of them.

        `sample` limits the providers, chosen by chance. What differs is read once more before it counts, as
        both services may be written to meanwhile. Raises ServiceError.
        """
        self._names("resource class", "resource classes", _listed("resource_classes", "name"))
        self._names("trait", "traits", lambda client: dict.fromkeys(client.get("/traits")["traits"], ""))
        providers = self._names("provider", "providers", _listed("resource_providers", "uuid", "name"))
        chosen = random.sample(providers, min(sample, len(providers))) if sample else providers
        consumers = self._each("provider", chosen, _provider, progress)
        self._each("consumer", sorted(consumers), _consumer, progress)

    def _names(self, kind: str, kinds: str, read: Callable[[Client], dict[str, str]]) -> list[str]:
        """Compare the lists of both, keys with names; return the keys that both have."""
        a, b = (read(client) for client in self._both())
        if a.keys() != b.keys():
            a, b = (read(client) for client in self._both())
        for key in sorted(a.keys() ^ b.keys()):
            name, in_a = {**a, **b}[key], key in a
            self.differences.append(Difference(kind, key, name, "", in_a or None, None if in_a else True))
        self.compared[kinds] = len(a.keys() | b.keys())
        return sorted(a.keys() & b.keys())

    def _each(self, what: str, uuids: list[str], read: _ClientRead, progress: ReadProgress) -> set[str]:
        """Compare things, several at a time; return the consumers that were met."""
        met: set[str] = set()
        with ThreadPoolExecutor(self._clients) as pool:
            done = 0
            for portion in portions(uuids, _PORTION):
                for consumers, differences in pool.map(lambda uuid: self._one(what, uuid, read), portion):
                    met |= consumers
                    self.differences += differences
                    done += 1
                    progress(f"{what}s", done, len(uuids))
        self.compared[f"{what}s read"] = len(uuids)
        return met

    def _one(self, what: str, uuid: str, read: _ClientRead) -> tuple[set[str], list[Difference]]:
        a, b = (_read(read, client, uuid) for client in self._both())
        if _spelled_alike(a) != _spelled_alike(b):
            a, b = (_read(read, client, uuid) for client in self._both())
        consumers = _consumers_of(a, b)
        a, b = _spelled_alike(a), _spelled_alike(b)
        name: str = a.get("name") or b.get("name") or ""
        in_a, in_b = dict(_leaves(a)), dict(_leaves(b))
        differences = [
            Difference(what, uuid, name, leaf, in_a.get(leaf), in_b.get(leaf))
            for leaf in sorted({*in_a, *in_b})
            if in_a.get(leaf) != in_b.get(leaf)
        ]
        return consumers, differences

    def _both(self) -> tuple[Client, Client]:
        if not hasattr(self._own, "clients"):
            self._own.clients = tuple(connect() for connect in self._connect)
        clients: tuple[Client, Client] = self._own.clients
        return clients


_ClientRead = Callable[[Client, str], dict[str, Any]]


def _read(read: _ClientRead, client: Client, uuid: str) -> dict[str, Any]:
    """Read a thing of a service, empty if it was deleted since the list was read. Raises ServiceError."""
    try:
        return read(client, uuid)
    except ServiceError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return {}


def _listed(route: str, member: str, name: str = "") -> Callable[[Client], dict[str, str]]:
    """Return a reader of one member of all that a route lists under its own name, with their names."""
    return lambda client: {entry[member]: entry.get(name, "") for entry in client.get(f"/{route}")[route]}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values inside of objects by where they are, and each entry of a list as one that is there."""
    if isinstance(value, list):
        value = dict.fromkeys(value, True)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path} {key}".lstrip())
    else:
        yield path, value


def _provider(client: Client, uuid: str) -> dict[str, Any]:
    own = client.get(path("resource_providers", uuid))
    found = {key: value for key, value in own.items() if key not in ("links", "uuid")}
    for part in _OF_PROVIDER:
        answer = client.get(path("resource_providers", uuid, part))[part]
        found[part] = sorted(answer) if isinstance(answer, list) else answer
    return found


def _spelled(uuid: str) -> str:
    return normalize_uuid(uuid) or uuid


def _spelled_alike(found: dict[str, Any]) -> dict[str, Any]:
    """Return what was read with uuids of aggregates and consumers in canonical spelling.

    The incumbent shows them as they were given, this service in one spelling.
    """
    alike = dict(found)
    if "aggregates" in alike:
        alike["aggregates"] = sorted({_spelled(uuid) for uuid in alike["aggregates"]})
    if "allocations" in alike:
        alike["allocations"] = {_spelled(uuid): held for uuid, held in alike["allocations"].items()}
    return alike


def _consumers_of(a: dict[str, Any], b: dict[str, Any]) -> set[str]:
    """Return the consumers of a provider in two services, each once.

    Where the two spell it in two ways, the one that is not canonical counts: the incumbent knows no other.
    """
    chosen: dict[str, str] = {}
    for uuid in (*(a.get("allocations") or {}), *(b.get("allocations") or {})):
        if _spelled(uuid) not in chosen or uuid != _spelled(uuid):
            chosen[_spelled(uuid)] = uuid
    return set(chosen.values())


def _consumer(client: Client, uuid: str) -> dict[str, Any]:
    """Return a consumer and its allocations, without the generations of providers."""
    found = dict(client.get(path("allocations", uuid)))
    held = found.pop("allocations")
    return {**found, "resources": {provider: entry["resources"] for provider, entry in held.items()}}
