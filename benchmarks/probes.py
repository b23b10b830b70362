"""How long health and metrics take to answer, at rest and while many clients search.

python -m benchmarks.probes                              10,000 flat hosts, 200 clients
python -m benchmarks.probes --hosts 100000 --clients 0

The data goes straight into PostgreSQL; the service is the real one. Each probe is a connection of its own, as
load balancers make them. The clients are processes of their own, on the same cores as the service.
"""

from __future__ import annotations

import argparse
import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import bulk, data
from benchmarks.measure import Timing
from benchmarks.report import print_table
from benchmarks.wire import Wire
from tests.server import database_url, running_service

_SEARCH = "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512&limit=10"
_PATHS = ("/livez", "/readyz", "/healthcheck", "/metrics", "/", _SEARCH)
_ROUNDS = 100
_PAUSE_SECONDS = 0.02
_PROCESSES = 4


def main() -> None:
    """Measure each path and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.probes", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with database_url("postgresql") as connection:
        bulk.fill(connection, data.flat(given.hosts))
        environment = {"OS_API__MAX_REQUESTS_PER_CALLER": "0"}
        with running_service(connection, workers=given.workers, environment=environment) as server:
            while Wire(server.url).call("GET", _SEARCH)[0] == 503:
                time.sleep(1)
            with _searching(server.url, given.clients):
                rows = [[path, *_figures(_probed(server.url, path))] for path in _PATHS]
    title = f"milliseconds, {given.hosts:,} hosts, {given.clients} clients, {given.workers} workers"
    print_table(title, ["path", "median", "95%", "slowest"], rows)


def _probed(url: str, path: str) -> Timing:
    timing = Timing()
    for _ in range(_ROUNDS):
        took, status, content = Wire(url).timed("GET", path)
        if status != 200:
            raise RuntimeError(f"{path}: {status} {content[:300]!r}")
        timing.milliseconds.append(took)
        time.sleep(_PAUSE_SECONDS)
    return timing


def _figures(timing: Timing) -> list[str]:
    return [f"{timing.percentile(part):.1f}" for part in (0.5, 0.95, 1.0)]


@contextmanager
def _searching(url: str, clients: int) -> Iterator[None]:
    """So many clients search during the block, each again as soon as it has its answer."""
    parts = [clients // _PROCESSES + (number < clients % _PROCESSES) for number in range(_PROCESSES)]
    processes = [multiprocessing.Process(target=_search, args=(url, part), daemon=True) for part in parts]
    for process in processes:
        process.start()
    time.sleep(2)
    try:
        yield
    finally:
        for process in processes:
            process.terminate()


def _search(url: str, clients: int) -> None:
    def again() -> None:
        wire = Wire(url)
        while True:
            wire.call("GET", _SEARCH)

    threads = [threading.Thread(target=again) for _ in range(clients)]
    for thread in threads:
        thread.start()


if __name__ == "__main__":
    main()
