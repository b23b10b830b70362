"""How it grows: first load, memory, every query and catch-up as the number of hosts grows.

python -m benchmarks.growth                              flat hosts, 10,000 and 100,000
python -m benchmarks.growth --data numa --hosts 10000 100000
python -m benchmarks.growth --hosts 1000000

The data goes straight into PostgreSQL; the service is the real one with one worker.
"""

from __future__ import annotations

import argparse
import os
import time
import uuid

from benchmarks import bulk, data
from benchmarks.data import claim_body, identifier
from benchmarks.measure import Timing
from benchmarks.queries import QUERIES
from benchmarks.report import print_table
from benchmarks.servers import Measured
from benchmarks.wire import Wire
from placement.engine.forest.forest import Forest
from placement.storage.database import Database
from placement.storage.feed import Feed
from tests.server import database_url, running_service

_ROUNDS = 60
_LIMIT = "&limit=1000"


def main() -> None:
    """Measure every size and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", choices=sorted(data.KINDS), default="flat")
    parser.add_argument("--hosts", nargs="+", type=int, default=[10_000, 100_000])
    given = parser.parse_args()
    columns = []
    for hosts in given.hosts:
        with database_url("postgresql") as connection:
            columns.append(_measured(connection, given.data, hosts))
    rows = [
        [name, *(f"{column[name][0]:.2f} {column[name][1]}" for column in columns), _ratio(name, columns)]
        for name in columns[0]
    ]
    print_table(given.data, ["work", *(f"{hosts:,} hosts" for hosts in given.hosts), "ratio"], rows)


def _ratio(name: str, columns: list[dict[str, tuple[float, str]]]) -> str:
    return f"{columns[-1][name][0] / columns[0][name][0]:.1f}"


def _measured(connection: str, kind: str, hosts: int) -> dict[str, tuple[float, str]]:
    """Work -> (figure, unit) for one size."""
    data_set = data.KINDS[kind](hosts)
    bulk.fill(connection, data_set)
    host, providers = data_set.hosts[0][0], sum(map(len, data_set.hosts))
    resource_class = next(iter(host.inventories))
    del data_set
    figures: dict[str, tuple[float, str]] = {"providers": (providers, "")}
    figures["first load"] = _first_load(connection), "s"
    with running_service(connection, workers=1) as server:
        measured = Measured("ours", server.url, server.process.pid)
        wire = Wire(server.url)
        while wire.call("GET", f"/allocation_candidates?resources={resource_class}:1&limit=1")[0] == 503:
            time.sleep(1)
        for name, query in QUERIES[kind].items():
            path = f"/allocation_candidates?{query}"
            figures[name] = _median(wire, path if "limit=" in path else path + _LIMIT), "ms"
        searched = f"/allocation_candidates?resources={resource_class}:1{_LIMIT}"
        plain = _median(wire, searched)
        caught_up = Timing()
        for _ in range(_ROUNDS):
            body = claim_body({identifier(host.name): {resource_class: 1}})
            consumer = f"/allocations/{uuid.uuid4()}"
            wire.must("PUT", consumer, body)
            caught_up.milliseconds.append(wire.timed("GET", searched)[0])
            wire.must("DELETE", consumer)
            wire.must("GET", searched)
        figures["the next search after a write takes longer by"] = caught_up.percentile(0.5) - plain, "ms"
        figures["resident memory of the worker"] = measured.largest_worker_megabytes(), "MB"
    return figures


def _first_load(connection: str) -> float:
    """Seconds to load the forest, measured in a process of its own so that nothing stays behind."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        feed, forest = Feed(Database(connection)), Forest()
        started = time.perf_counter()
        with feed.snapshot() as (_, snapshot):
            forest.load(snapshot)
        os.write(writing, str(time.perf_counter() - started).encode())
        os._exit(0)
    os.wait()
    return float(os.read(reading, 100))


def _median(wire: Wire, path: str) -> float:
    timing = Timing()
    for _ in range(_ROUNDS):
        took, status, content = wire.timed("GET", path)
        if status != 200:
            raise RuntimeError(f"{path}: {status} {content[:300]!r}")
        timing.milliseconds.append(took)
    return timing.percentile(0.5)


if __name__ == "__main__":
    main()
