"""Search and claim by many clients at once: how long the slowest wait, in another checkout and in this one.

python -m benchmarks.many_writers ../before                   16 clients, SQLite, two workers each
python -m benchmarks.many_writers ../before --clients 4 --database postgresql

Each client asks for ten candidates and claims one of them, again and again. The two checkouts are started
side by side and take turns, --rounds of --seconds each. Processor time is that of all workers; on PostgreSQL
the server's is not in it. Both run under the interpreter that runs this, with its packages.
"""

from __future__ import annotations

import argparse
import os
import statistics
from contextlib import ExitStack
from pathlib import Path

from benchmarks.data import KINDS, build
from benchmarks.measure import Timing, search_and_claim
from benchmarks.processor_time import milliseconds_of
from benchmarks.report import print_table
from benchmarks.servers import Measured, children_of
from benchmarks.side_by_side import served

_HERE = Path(__file__).resolve().parents[1]
_QUERY = "resources=VCPU:1,MEMORY_MB:64,DISK_GB:1&limit=10"
_SHARES = (0.5, 0.95, 0.99)
_HEADINGS = ["checkout", "loops/s", "p50", "p95", "p99", "longest", "CPU a loop", "failed", "load"]


def main() -> None:
    """Measure what the command line asks for, and print a row for each round and the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_writers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--database", choices=["postgresql", "sqlite"], default="sqlite")
    parser.add_argument("--hosts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    data = ["flat", str(given.hosts), given.database]
    found: dict[str, list[list[float]]] = {"the other": [], "this one": []}
    rows = []
    with ExitStack() as stack:
        roots = (given.other.resolve(), _HERE)
        services = [stack.enter_context(served(root, data, workers=given.workers)) for root in roots]
        servers = [
            Measured(str(root), each.url, each.master) for root, each in zip(roots, services, strict=True)
        ]
        for server in servers:
            if given.database == "sqlite":
                build(server.url, KINDS["flat"](given.hosts), server.url)
            _measured(server, given.clients, 1.0)
        both = list(zip(found, servers, strict=True))
        for _ in range(given.rounds):
            # The second one finds the machine warm.
            both.reverse()
            for name, server in both:
                load = os.getloadavg()[0]
                figures = _measured(server, given.clients, given.seconds)
                found[name].append(figures)
                rows.append([name, *_texts(figures), f"{load:.1f}"])
    for name, figures_of_rounds in found.items():
        medians = [statistics.median(column) for column in zip(*figures_of_rounds, strict=True)]
        rows.append([f"{name}, medians", *_texts(medians), ""])
    print_table(f"{given.clients} clients, {given.hosts} hosts on {given.database}", _HEADINGS, rows)


def _measured(server: Measured, clients: int, seconds: float) -> list[float]:
    """Return loops per second, the percentiles and the longest in ms, CPU of a loop in ms, and failures."""
    timing = Timing()
    before = milliseconds_of(children_of(server.master))
    found = search_and_claim(server, _QUERY, clients, seconds, timing)
    loops = len(timing.milliseconds)
    taken = milliseconds_of(children_of(server.master)) - before
    if not loops:
        raise RuntimeError(f"{server.name}: no loop succeeded, {found.failed} failed")
    percentiles = [timing.percentile(share) for share in _SHARES]
    return [found.per_second, *percentiles, max(timing.milliseconds), taken / loops, found.failed]


def _texts(figures: list[float]) -> list[str]:
    return [f"{figure:.1f}" if place == 5 else f"{figure:.0f}" for place, figure in enumerate(figures)]


if __name__ == "__main__":
    main()
