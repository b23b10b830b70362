"""Another checkout of this project beside this one, request by request in turn.

python -m benchmarks.side_by_side ../before                          flat:10000 and numa:1000
python -m benchmarks.side_by_side ../before --data cores:100 --seconds 10
python -m benchmarks.side_by_side ../before --data pods:2000         pods on so many nodes of 128 CPUs
python -m benchmarks.side_by_side ../before --database sqlite
python -m benchmarks.side_by_side --audit                            what it costs to write records of changes

Each is a service with one worker on a database of its own (PostgreSQL) with the same data. A ratio above 1
says that this checkout is faster. Both run under the interpreter that runs this, with its packages. Two
processes of one commit differ by up to a tenth: --rounds starts both anew so often, and medians over all are
printed.
With --audit the other is this checkout, too, without audit records, and only what writes is measured.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.data import KINDS, build, claim_body, identifier
from benchmarks.measure import Timing
from benchmarks.pods import fill_nodes, fill_pods, tasks
from benchmarks.queries import QUERIES
from benchmarks.report import print_table
from benchmarks.servers import Measured
from benchmarks.wire import Wire

_HERE = Path(__file__).resolve().parents[1]
_CLAIMS = 150
_PODS = 200
_HEADINGS = ["work", "the other, p50", "this one, p50", "the other / this one", "of the rounds", "runs"]
# Runs in the other checkout, with its benchmarks, tests and service.
_SERVE = """
import os, sys
root, kind, count, database, workers = sys.argv[1:]
os.chdir(root)
sys.path.insert(0, root)
from benchmarks import bulk, data
from tests.server import database_url, running_service
with database_url(database) as connection:
    if kind != "pods" and database == "postgresql":
        bulk.fill(connection, data.KINDS[kind](int(count)))
    with running_service(connection, workers=int(workers)) as server:
        print(server.url, server.process.pid, flush=True)
        sys.stdin.read()
"""


def main() -> None:
    """Measure what the command line asks for and print a table for each data set."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.side_by_side", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("other", type=Path, nargs="?", help="the other checkout")
    parser.add_argument("--audit", action="store_true", help="the other keeps no audit records")
    parser.add_argument("--claims", type=int, default=_CLAIMS, help="how many are made")
    parser.add_argument("--data", nargs="+", default=["flat:10000", "numa:1000"], metavar="KIND:HOSTS")
    parser.add_argument("--database", choices=["postgresql", "sqlite"], default="postgresql")
    parser.add_argument("--rounds", type=int, default=1, help="how often both are started")
    parser.add_argument("--seconds", type=float, default=4, help="per query and checkout")
    given = parser.parse_args()
    if given.other is None and not given.audit:
        parser.error("name the other checkout, or --audit")
    for wanted in given.data:
        rounds = [_measured(given, *wanted.split(":")) for _ in range(given.rounds)]
        rows = [[name, *_figures([each[name] for each in rounds])] for name in rounds[0]]
        headings = [
            "work",
            "the other, p50",
            "this one, p50",
            "the other / this one",
            "of the rounds",
            "runs",
        ]
        print_table(f"{wanted} on {given.database}", headings, rows)


def _measured(given: argparse.Namespace, kind: str, count: str) -> dict[str, list[Timing]]:
    """Return what each work took in the other checkout and in this one."""
    with ExitStack() as stack:
        data = [kind, count, given.database]
        other = served((given.other or _HERE).resolve(), data, audits=not given.audit)
        urls = [stack.enter_context(each).url for each in (other, served(_HERE, data))]
        if kind == "pods":
            return dict(_pods(urls, int(count), only_writes=given.audit))
        if given.database == "sqlite":
            for url in urls:
                build(url, KINDS[kind](int(count)), url)
        searches = [] if given.audit else _searches(urls, kind, given.seconds)
        return {**dict(searches), **dict(_claims(urls, kind, given.claims))}


@contextmanager
def served(root: Path, data: list[str], *, workers: int = 1, audits: bool = True) -> Iterator[Measured]:
    """A service of that checkout with `data`: kind, number of hosts and database."""
    command = [sys.executable, "-c", _SERVE, str(root), *data, str(workers)]
    pipe = subprocess.PIPE
    environment = os.environ if audits else {**os.environ, "OS_AUDIT__ENABLED": "false"}
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline().split()
        if not line:
            raise SystemExit(f"{root} does not serve")
        yield Measured(str(root), line[0], int(line[1]))
    finally:
        process.stdin.close()
        process.wait()


def _searches(urls: list[str], kind: str, seconds: float) -> Iterator[tuple[str, list[Timing]]]:
    for name, query in QUERIES[kind].items():
        path = f"/allocation_candidates?{query}"
        wires = [Wire(url) for url in urls]
        sizes = {len(wire.must("GET", path)) for wire in wires}
        timings = [Timing() for _ in wires]
        # Both take turns, so that whatever else the machine does meets both.
        while sum(sum(timing.milliseconds) for timing in timings) < 2000 * seconds:
            for wire, timing in zip(wires, timings, strict=True):
                timing.milliseconds.append(wire.timed("GET", path)[0])
        if len(sizes) > 1:
            print(f"{name}: the answers differ in length", file=sys.stderr)
        yield name, timings


def _claims(urls: list[str], kind: str, count: int) -> Iterator[tuple[str, list[Timing]]]:
    if kind not in ("flat", "numa"):
        return
    wires = [Wire(url) for url in urls]
    host = identifier("flat-7" if kind == "flat" else "numa-7-n0")
    made, ended = [Timing() for _ in wires], [Timing() for _ in wires]
    both = list(zip(wires, made, ended, strict=True))
    for _ in range(count):
        # Whoever comes second finds the machine warm.
        both.reverse()
        for wire, put, delete in both:
            path = f"/allocations/{uuid.uuid4()}"
            took, status, body = wire.timed("PUT", path, claim_body({host: {"VCPU": 1}}))
            if status != 204:
                raise SystemExit(f"PUT {path}: {status} {body!r}")
            put.milliseconds.append(took)
            delete.milliseconds.append(wire.timed("DELETE", path)[0])
    yield "PUT allocations", made
    yield "DELETE allocations", ended


def _pods(urls: list[str], nodes: int, *, only_writes: bool) -> Iterator[tuple[str, list[Timing]]]:
    """The same pods for the same nodes."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda url: fill_nodes(url, nodes), urls))
    for url in urls:
        fill_pods(url, random.Random(2), range(1, _PODS))
    wires = [Wire(url) for url in urls]
    for task in tasks(random.Random(3), nodes, _PODS):
        if only_writes and not task.name.startswith("place"):
            continue
        timings = [Timing() for _ in wires]
        both = list(zip(wires, timings, strict=True))
        for body in task.bodies:
            # Whoever comes second finds the machine warm.
            both.reverse()
            for wire, timing in both:
                took, status = task.call(wire, body)
                if status >= 300:
                    raise SystemExit(f"{task.name}: {status}")
                timing.milliseconds.append(took)
        yield task.name, timings


def _figures(rounds: list[list[Timing]]) -> list[str]:
    medians = [[timing.percentile(0.5) for timing in timings] for timings in rounds]
    ratios = [other / this for other, this in medians]
    other, this = (statistics.median(column) for column in zip(*medians, strict=True))
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    runs = sum(len(timings[0].milliseconds) for timings in rounds)
    return [f"{other:.2f} ms", f"{this:.2f} ms", f"{statistics.median(ratios):.2f}", spread, str(runs)]


if __name__ == "__main__":
    main()
