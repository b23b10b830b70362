"""Measuring: queries in turn on all servers, claims with several clients at once."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tqdm import tqdm

from benchmarks.data import claim_body, identifier
from benchmarks.queries import ONLY_OURS
from benchmarks.servers import Measured
from benchmarks.wire import Wire

_CLAIMANT = {"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE"}


@dataclass
class Timing:
    """Milliseconds of one piece of work on one server; `candidates` and `size` (bytes) of its answer."""

    milliseconds: list[float] = field(default_factory=list)
    candidates: int | None = None
    size: int = 0

    def percentile(self, share: float) -> float:
        """The value below which `share` of the measurements lie."""
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def figures(self) -> list[str]:
        """The median, the 99th percentile and the longest, as tables show them."""
        shares = (self.percentile(0.5), self.percentile(0.99), max(self.milliseconds))
        return [f"{milliseconds:.2f} ms" for milliseconds in shares]


def queries(
    servers: Sequence[Measured], wanted: dict[str, str], seconds: float
) -> dict[str, dict[str, Timing]]:
    """Every query on every server in turn, for about so many seconds per query and server."""
    wires = {server.name: Wire(server.url) for server in servers}
    results: dict[str, dict[str, Timing]] = {}
    for name, query in tqdm(wanted.items(), desc="queries", unit=""):
        asked = [s.name for s in servers if s.name != "incumbent" or name not in ONLY_OURS]
        timings = {server: Timing() for server in asked}
        path = f"/allocation_candidates?{query}"
        for server in asked:
            _, status, content = wires[server].timed("GET", path)
            if status != 200:
                raise RuntimeError(f"{server}: {name}: {status} {content[:200]!r}")
            timings[server].candidates = len(json.loads(content)["allocation_requests"])
            timings[server].size = len(content)
        spent = dict.fromkeys(asked, 0.0)
        while any(spent[server] < seconds * 1000 for server in asked):
            for server in asked:
                if spent[server] < seconds * 1000:
                    took, _, _ = wires[server].timed("GET", path)
                    timings[server].milliseconds.append(took)
                    spent[server] += took
        results[name] = timings
    return results


def bodies(server: Measured, wanted: dict[str, str]) -> dict[str, bytes]:
    """The answer to each query, by query string."""
    wire = Wire(server.url)
    return {query: wire.must("GET", f"/allocation_candidates?{query}") for query in wanted.values()}


class Writers:
    """Clients that claim and release on flat hosts until the block ends."""

    def __init__(self, server: Measured, hosts: int, clients: int = 4) -> None:
        self._server, self._hosts = server, hosts
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=[n], daemon=True) for n in range(clients)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number: int) -> None:
        wire, chance = Wire(self._server.url), random.Random(number)
        while not self._over.is_set():
            host = identifier(f"flat-{chance.randrange(self._hosts)}")
            consumer = f"/allocations/{uuid.uuid4()}"
            wire.call("PUT", consumer, claim_body({host: {"VCPU": 1}}))
            wire.call("DELETE", consumer)


@dataclass(frozen=True)
class Throughput:
    """How often per second something succeeded, and how often it did not."""

    per_second: float
    failed: int


def many(url: str, clients: int, seconds: float, work: Callable[[Wire, random.Random], bool]) -> Throughput:
    """How often so many clients do some work, which says whether it succeeded."""
    until = time.monotonic() + seconds
    done, failed = [0] * clients, [0] * clients

    def run(number: int) -> None:
        wire, chance = Wire(url), random.Random(number)
        while time.monotonic() < until:
            if work(wire, chance):
                done[number] += 1
            else:
                failed[number] += 1

    started = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(run, range(clients)))
    return Throughput(sum(done) / (time.monotonic() - started), sum(failed))


def claims(server: Measured, hosts: int, clients: int, seconds: float) -> Throughput:
    """PUT /allocations of new consumers on random flat hosts."""

    def work(wire: Wire, chance: random.Random) -> bool:
        host = identifier(f"flat-{chance.randrange(hosts)}")
        body = claim_body({host: {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}})
        return wire.call("PUT", f"/allocations/{uuid.uuid4()}", body)[0] == 204

    return many(server.url, clients, seconds, work)


def search_and_claim(
    server: Measured, query: str, clients: int, seconds: float, timing: Timing | None = None
) -> Throughput:
    """Ask for candidates, claim one of them at random; `timing` gets how long both took together."""

    def work(wire: Wire, chance: random.Random) -> bool:
        started = time.perf_counter()
        status, content = wire.call("GET", f"/allocation_candidates?{query}")
        found = json.loads(content)["allocation_requests"] if status == 200 else []
        if not found:
            return False
        body = {**claim_body({}), "allocations": chance.choice(found)["allocations"]}
        status, _ = wire.call("PUT", f"/allocations/{uuid.uuid4()}", body)
        if timing is not None:
            timing.milliseconds.append((time.perf_counter() - started) * 1000)
        return status == 204

    return many(server.url, clients, seconds, work)


def searches(server: Measured, query: str, clients: int, seconds: float) -> Throughput:
    """The same query again and again."""

    def work(wire: Wire, _: random.Random) -> bool:
        return wire.call("GET", f"/allocation_candidates?{query}")[0] == 200

    return many(server.url, clients, seconds, work)


def claim_in_one_call(server: Measured, query: str, clients: int, seconds: float) -> Throughput:
    """Search and claim in one call, for one consumer each."""

    def work(wire: Wire, _: random.Random) -> bool:
        body = {"consumer_uuid": str(uuid.uuid4()), **_CLAIMANT, "query": query}
        return wire.call("POST", "/ext/v1/claims", body)[0] == 201

    return many(server.url, clients, seconds, work)


def claims_in_bulk(
    server: Measured, query: str, members: int, clients: int, seconds: float, *, atomic: bool
) -> Throughput:
    """The same for so many consumers in each call; how many consumers per second."""

    def work(wire: Wire, _: random.Random) -> bool:
        everybody = [{"consumer_uuid": str(uuid.uuid4())} for _ in range(members)]
        body = {**_CLAIMANT, "query": query, "atomic": atomic, "members": everybody}
        status, content = wire.call("POST", "/ext/v1/claims", body)
        return status == 200 and all(each["status"] == 201 for each in json.loads(content)["members"])

    found = many(server.url, clients, seconds, work)
    return Throughput(found.per_second * members, found.failed)


class PeakMemory:
    """Watches the resident memory of a server in the background."""

    def __init__(self, server: Measured) -> None:
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.megabytes = 0.0

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self.megabytes = max(self.megabytes, self._server.resident_megabytes())
