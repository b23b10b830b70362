"""How it grows: first load, memory, searches and catch-up at 10,000 to 1,000,000 providers.

python -m benchmarks.growth --hosts 10000 100000 1000000

The data goes straight into PostgreSQL; the service is the real one with one worker.
"""

from __future__ import annotations

import argparse
import os
import time
import uuid

import sqlalchemy as sa

from benchmarks.data import claim_body
from benchmarks.fleet import fill
from benchmarks.measure import Timing
from benchmarks.servers import Measured
from benchmarks.wire import Wire
from placement.candidates.forest import Forest
from placement.storage.database import Database
from placement.storage.feed import Feed
from tests.server import database_url, running_service

_QUERY = "/allocation_candidates?resources=VCPU:2,MEMORY_MB:4096,DISK_GB:20"


def main() -> None:
    """Measure every size and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--hosts", nargs="+", type=int, default=[10_000, 100_000])
    given = parser.parse_args()
    print("| providers | first load | worker | limit 10 | limit 1000 | traits, limit 1000 | after a write |")
    print("|---|---|---|---|---|---|---|")
    for hosts in given.hosts:
        with database_url("postgresql") as connection:
            fill(connection, hosts)
            _measure(connection, hosts)


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


def _measure(connection: str, hosts: int) -> None:
    load = _first_load(connection)
    database = Database(connection)
    with database.read() as reading:
        host = reading.execute(sa.text("SELECT uuid FROM resource_providers LIMIT 1")).scalar_one()
    database.dispose()
    with running_service(connection, workers=1) as server:
        measured = Measured("ours", server.url, server.process.pid)
        wire = Wire(server.url)
        cells = []
        for tail in ("&limit=10", "&limit=1000", "&required=COMPUTE_ACCELERATORS,!CUSTOM_X&limit=1000"):
            wire.call("PUT", "/traits/CUSTOM_X")
            cells.append(_median(wire, _QUERY + tail))
        plain = _median(wire, _QUERY + "&limit=1000")
        caught_up = Timing()
        for _ in range(30):
            body = claim_body({host: {"DISK_GB": 1}})
            wire.must("PUT", f"/allocations/{uuid.uuid4()}", body)
            caught_up.milliseconds.append(wire.timed("GET", _QUERY + "&limit=1000")[0])
        after = caught_up.percentile(0.5) - plain
        memory = measured.largest_worker_megabytes()
    times = " | ".join(f"{cell:.2f} ms" for cell in cells)
    print(f"| {hosts} | {load:.2f} s | {memory:.0f} MB | {times} | +{after:.2f} ms |", flush=True)


def _median(wire: Wire, path: str) -> float:
    timing = Timing()
    for _ in range(60):
        took, status, _ = wire.timed("GET", path)
        if status != 200:
            raise RuntimeError(f"{path}: {status}")
        timing.milliseconds.append(took)
    return timing.percentile(0.5)


if __name__ == "__main__":
    main()
