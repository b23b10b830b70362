"""Compare with the incumbent in one interleaved run.

python -m benchmarks.comparison          both servers on PostgreSQL, all data sets at their usual sizes
python -m benchmarks.comparison --data flat:1000 --database sqlite --seconds 2
python -m benchmarks.comparison --ours-only --data cores:100
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks import answers, data, measure, servers
from benchmarks.queries import QUERIES
from benchmarks.report import Table
from benchmarks.servers import Measured

_USUAL = ["flat:1000", "flat:10000", "numa:1000", "cores:100", "sharing:1000"]


def main() -> None:
    """Run what the command line asks for and print tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="postgresql")
    parser.add_argument("--data", nargs="+", default=_USUAL, metavar="KIND:HOSTS", help=", ".join(data.KINDS))
    parser.add_argument("--seconds", type=float, default=8, help="per query and server")
    parser.add_argument("--ours-only", action="store_true", help="leave the incumbent out")
    given = parser.parse_args()
    for wanted in given.data:
        kind, _, count = wanted.partition(":")
        _compare(kind, int(count), given.database, given.seconds, ours_only=given.ours_only)


def _compare(kind: str, count: int, backend: str, seconds: float, *, ours_only: bool) -> None:
    data_set = data.KINDS[kind](count)
    with ExitStack() as stack:
        running = [stack.enter_context(servers.ours(backend))]
        if not ours_only and kind != "cores":
            running.append(stack.enter_context(servers.incumbent(backend)))
        for server in running:
            # On SQLite the incumbent answers concurrent writers with "database is locked".
            alone = backend == "sqlite" and server.name == "incumbent"
            data.build(server.url, data_set, server.name, clients=1 if alone else 8)
        peaks = {server.name: stack.enter_context(measure.PeakMemory(server)) for server in running}
        bytes_alone = stack.enter_context(servers.ready_made(measure.bodies(running[0], QUERIES[kind])))
        timings = measure.queries([*running, bytes_alone], QUERIES[kind], seconds)
        table = Table(f"{data_set.name}, {backend}")
        for name, by_server in timings.items():
            table.timing(name, by_server)
        if kind == "flat":
            _throughputs(table, running, bytes_alone, count, seconds)
        table.memory({name: peak.megabytes for name, peak in peaks.items()})
        table.print()


def _throughputs(
    table: Table, running: Sequence[Measured], bytes_alone: Measured, hosts: int, seconds: float
) -> None:
    """Measure searches and claims of several clients at once."""
    query = QUERIES["flat"]["simple limit 10"]
    found = {server.name: measure.searches(server, query, 16, seconds) for server in (*running, bytes_alone)}
    table.throughput("simple limit 10 per second, 16 clients", found)
    _while_writing(table, running, hosts, seconds)
    for clients in (1, 8):
        found = {server.name: measure.claims(server, hosts, clients, seconds) for server in running}
        table.throughput(f"PUT /allocations per second, {clients} clients", found)
        found = {server.name: measure.search_and_claim(server, query, clients, seconds) for server in running}
        table.throughput(f"candidates(limit=10) and claim per second, {clients} clients", found)
    for name, found in answers.in_one_call(running[0], seconds):
        table.throughput(name, found)


def _while_writing(table: Table, running: Sequence[Measured], hosts: int, seconds: float) -> None:
    for name in ("simple limit 10", "simple limit 1000"):
        timings: dict[str, measure.Timing] = {}
        for server in running:
            with measure.Writers(server, hosts):
                timings |= measure.queries([server], {name: QUERIES["flat"][name]}, seconds)[name]
        table.timing(f"{name}, 4 clients writing", timings)


if __name__ == "__main__":
    main()
