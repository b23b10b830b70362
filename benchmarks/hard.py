"""Hard and large searches, and what others notice of them, on one worker of the real service.

python -m benchmarks.hard

First searches that are hard to refuse or yield very many candidates. Then a search with `limit=10` over 1,000
hosts: alone, beside a search that nobody finishes, beside one that yields 100,000 candidates, and beside 200
connections that never finish sending.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from urllib.parse import urlsplit

from benchmarks import bulk, data
from benchmarks.measure import Timing
from benchmarks.report import print_table
from benchmarks.wire import Wire
from tests.server import database_url, running_service

_ROUNDS = 60
_DEVICES = 16
_HOSTS = 1000
_AMOUNTS = [2 * number + 1 for number in range(60, 140)]
_TIGHT = sum(_AMOUNTS) // _DEVICES + 1
_SENDERS = 200
_SEARCH = "/allocation_candidates?resources=VCPU:2,MEMORY_MB:4096,DISK_GB:20&limit=10"


def _groups(resource_class: str, amounts: range | list[int], *others: str, limit: int | None = None) -> str:
    """Named groups of one class, one for each amount."""
    parts = [f"resources_{at}={resource_class}:{amount}" for at, amount in enumerate(amounts)]
    parts += ["group_policy=none", *others, *([f"limit={limit}"] if limit else [])]
    return "/allocation_candidates?" + "&".join(parts)


_ENDLESS = _groups("CUSTOM_TIGHT", _AMOUNTS, limit=1)
_LARGEST = _groups("CUSTOM_HUNDRED", [1] * 10)
_QUERIES = {
    "17 of more than half on 16 devices": _groups(
        "CUSTOM_HUNDRED_16", range(51, 68), "resources_s=CUSTOM_HUNDRED_16:1", limit=1
    ),
    "33 of more than a third on 16 devices": _groups(
        "CUSTOM_HUNDRED_16", [34 + number % 16 for number in range(33)], limit=1
    ),
    "10 like groups on 8 devices": _LARGEST,
    "6 like groups on 8 devices": _groups("CUSTOM_HUNDRED", [1] * 6),
    "14 amounts on 2 devices": _groups("CUSTOM_THOUSAND", range(1, 15)),
    "20 amounts on 2 devices, limit 10000": _groups("CUSTOM_THOUSAND", range(1, 21), limit=10_000),
}


def main() -> None:
    """Measure and print."""
    with database_url("postgresql") as connection:
        bulk.fill(connection, data.flat(_HOSTS))
        with running_service(connection, workers=1) as server:
            wire = Wire(server.url)
            _devices(wire)
            _print_searches(wire)
            _print_neighbours(server.url)


def _devices(wire: Wire) -> None:
    for name, count, total in (
        ("CUSTOM_HUNDRED", 8, 100),
        ("CUSTOM_HUNDRED_16", 16, 100),
        ("CUSTOM_THOUSAND", 2, 1000),
        ("CUSTOM_TIGHT", _DEVICES, _TIGHT),
    ):
        wire.must("PUT", f"/resource_classes/{name}")
        host = data.identifier(f"host of {name}")
        wire.must("POST", "/resource_providers", {"name": f"host of {name}", "uuid": host})
        for number in range(count):
            own = data.identifier(f"{name}-{number}")
            body = {"name": f"{name}-{number}", "uuid": own, "parent_provider_uuid": host}
            wire.must("POST", "/resource_providers", body)
            inventories = {"resource_provider_generation": 0, "inventories": {name: {"total": total}}}
            wire.must("PUT", f"/resource_providers/{own}/inventories", inventories)


def _print_searches(wire: Wire) -> None:
    rows = []
    for name, path in _QUERIES.items():
        timing, size = Timing(), 0
        for _ in range(3):
            took, status, content = wire.timed("GET", path)
            if status != 200:
                raise RuntimeError(f"{name}: {status} {content[:300]!r}")
            timing.milliseconds.append(took)
            size = len(content)
        rows.append(
            [name, f"{content.count(b'mappings'):,}", f"{size / 1e6:.1f}", f"{timing.percentile(0.5):.0f}"]
        )
    print_table("hard and large searches", ["query", "candidates", "MB", "ms"], rows)


def _print_neighbours(url: str) -> None:
    rows = []
    neighbours: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "alone": _nothing,
        "beside a search without an end": lambda: _asking(url, _ENDLESS),
        "beside 100,000 candidates, over and over": lambda: _asking(url, _LARGEST),
        f"beside {_SENDERS} who never finish sending": lambda: _half_sent(url),
    }
    for name, beside in neighbours.items():
        with beside():
            rows.append([name, *_latencies(url)])
    print_table("limit=10 over 1,000 hosts", ["", "p50 ms", "p95 ms", "max ms"], rows)


def _latencies(url: str) -> list[str]:
    wire, timing = Wire(url), Timing()
    for _ in range(_ROUNDS):
        took, status, content = wire.timed("GET", _SEARCH)
        if status != 200:
            raise RuntimeError(f"{status} {content[:300]!r}")
        timing.milliseconds.append(took)
    return [f"{timing.percentile(part):.1f}" for part in (0.5, 0.95, 1.0)]


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _asking(url: str, path: str) -> Iterator[None]:
    """Somebody asks for the same again and again."""
    ended = threading.Event()

    def ask() -> None:
        wire = Wire(url)
        while not ended.is_set():
            wire.call("GET", path)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _half_sent(url: str) -> Iterator[None]:
    """Connections with half a head or half a body."""
    at = urlsplit(url)
    half_head = b"GET / HTTP/1.1\r\nHost: x\r\nX-"
    half_body = half_head.replace(b"GET", b"PUT") + b"Y: 1\r\nContent-Length: 99\r\n\r\n{"
    with contextlib.ExitStack() as stack:
        for number in range(_SENDERS):
            connected = stack.enter_context(socket.create_connection((at.hostname, at.port or 80)))
            connected.sendall(half_body if number % 2 else half_head)
        yield


if __name__ == "__main__":
    main()
