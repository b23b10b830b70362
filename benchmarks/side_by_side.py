"""Another checkout of this project beside this one, request by request in turn.

python -m benchmarks.side_by_side ../before                          flat:10000 and numa:1000
python -m benchmarks.side_by_side ../before --data cores:100 --seconds 10
python -m benchmarks.side_by_side ../before --data pods:2000         pods on so many nodes of 128 CPUs
python -m benchmarks.side_by_side ../before --database sqlite
python -m benchmarks.side_by_side --audit                            what it costs to write records of changes

Each is a service with one worker on a database of its own (PostgreSQL) with the same data. Both run under
the interpreter that runs this, with its packages. They are measured once both are ready, in blocks of ten
requests in turn. A ratio above 1 says that this checkout is faster, or takes less processor time. That of the
worker and of its sessions in PostgreSQL is printed for a request, as the tenth percentile of blocks, which a
busy machine disturbs least. Two processes of one commit differ by up to a tenth: each of the --rounds starts
both anew, and medians over all are printed.
With --audit the other is this checkout, too, without audit records, and only what writes is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import bulk
from benchmarks.data import KINDS, build, claim_body, identifier
from benchmarks.measure import Timing
from benchmarks.pods import Task, fill_nodes, fill_pods, tasks
from benchmarks.processor_time import ProcessorTime
from benchmarks.queries import QUERIES
from benchmarks.report import print_table
from benchmarks.servers import await_ready
from benchmarks.wire import Wire

_HERE = Path(__file__).resolve().parents[1]
_CLAIMS = 150
_PODS = 200
_BLOCK = 10
_HEADINGS = [
    "work",
    "waited, p50",
    "ratio",
    "of the rounds",
    "worker",
    "ratio",
    "PostgreSQL",
    "ratio",
    "runs",
]

Ask = Callable[[Wire], float]
"""A request, and how many milliseconds its client waited."""

# Runs in the other checkout, with its benchmarks, tests and service.
_SERVE = """
import json, os, sys
root, kind, count, database, workers = sys.argv[1:]
os.chdir(root)
sys.path.insert(0, root)
from benchmarks import bulk, data
from tests.server import database_url, running_service
with database_url(database) as connection:
    if kind != "pods" and database == "postgresql":
        bulk.fill(connection, data.KINDS[kind](int(count)))
    with running_service(connection, workers=int(workers)) as server:
        print(json.dumps([server.url, server.process.pid, connection]), flush=True)
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
    parser.add_argument("--rounds", type=int, default=3, help="how often both are started")
    parser.add_argument("--seconds", type=float, default=4, help="per query and checkout")
    given = parser.parse_args()
    if given.other is None and not given.audit:
        parser.error("name the other checkout, or --audit")
    for wanted in given.data:
        rounds = [_measured(given, *wanted.split(":")) for _ in range(given.rounds)]
        rows = [[name, *_figures([each[name] for each in rounds])] for name in rounds[0]]
        print_table(f"{wanted} on {given.database}, the other / this one, ms", _HEADINGS, rows)


class Service:
    """A running service: its URL, its connection, and what its processes have computed."""

    def __init__(self, url: str, master: int, connection: str) -> None:
        self.url, self.master, self.connection = url, master, connection
        self.wire, self.processor_time = Wire(url), ProcessorTime(master, connection)


@dataclass
class Costs:
    """Milliseconds of waiting for each request, and of processor time for a request of each block."""

    waited: Timing = field(default_factory=Timing)
    workers: Timing = field(default_factory=Timing)
    sessions: Timing = field(default_factory=Timing)

    def add(self, service: Service, block: Sequence[Ask]) -> None:
        """Make the requests of a block."""
        before = service.processor_time.taken()
        self.waited.milliseconds += [ask(service.wire) for ask in block]
        after = service.processor_time.taken()
        self.workers.milliseconds.append((after.workers - before.workers) / len(block))
        self.sessions.milliseconds.append((after.sessions - before.sessions) / len(block))


def _in_turn(services: Sequence[Service], blocks: Iterable[Sequence[Ask]]) -> list[Costs]:
    """Return what the same blocks cost each service."""
    costs = [Costs() for _ in services]
    both = list(zip(services, costs, strict=True))
    for block in blocks:
        # The second finds the machine warm.
        both.reverse()
        for service, cost in both:
            cost.add(service, block)
    return costs


def _measured(given: argparse.Namespace, kind: str, count: str) -> dict[str, list[Costs]]:
    """Return what each work cost in the other checkout and in this one."""
    with ExitStack() as stack:
        data = [kind, count, given.database]
        other = served((given.other or _HERE).resolve(), data, audits=not given.audit)
        services = [stack.enter_context(each) for each in (other, served(_HERE, data))]
        _fill(services, kind, int(count), given.database)
        for service in services:
            bulk.tidy(service.connection)
            await_ready(service.url)
        if kind == "pods":
            return dict(_pods(services, int(count), only_writes=given.audit))
        searches = {} if given.audit else dict(_searches(services, kind, given.seconds))
        return {**searches, **_claims(services, kind, int(count), given.claims)}


def _fill(services: Sequence[Service], kind: str, count: int, database: str) -> None:
    """Bring in through REST what is not written straight into the database."""
    if kind == "pods":
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda service: fill_nodes(service.url, count), services))
        for service in services:
            fill_pods(service.url, random.Random(2), range(1, _PODS))
    elif database == "sqlite":
        for service in services:
            build(service.url, KINDS[kind](count), service.url)


@contextmanager
def served(root: Path, data: list[str], *, workers: int = 1, audits: bool = True) -> Iterator[Service]:
    """A service of that checkout with `data`: kind, number of hosts and database."""
    command = [sys.executable, "-c", _SERVE, str(root), *data, str(workers)]
    pipe = subprocess.PIPE
    environment = os.environ if audits else {**os.environ, "OS_AUDIT__ENABLED": "false"}
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        printed = process.stdout.readline()
        if not printed:
            raise SystemExit(f"{root} does not serve")
        yield Service(*json.loads(printed))
    finally:
        process.stdin.close()
        process.wait()


def _searches(services: Sequence[Service], kind: str, seconds: float) -> Iterator[tuple[str, list[Costs]]]:
    for name, query in QUERIES[kind].items():
        path = f"/allocation_candidates?{query}"
        if len({len(service.wire.must("GET", path)) for service in services}) > 1:
            print(f"{name}: the answers differ in length", file=sys.stderr)
        yield name, _in_turn(services, _repeated(_asking("GET", path), seconds * len(services)))


def _repeated(ask: Ask, seconds: float) -> Iterator[list[Ask]]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield [ask] * _BLOCK


def _claims(services: Sequence[Service], kind: str, hosts: int, count: int) -> dict[str, list[Costs]]:
    if kind not in ("flat", "numa"):
        return {}
    names = [f"{kind}-{number % hosts}{'-n0' if kind == 'numa' else ''}" for number in range(count)]
    bodies = {f"/allocations/{uuid.uuid4()}": claim_body({identifier(name): {"VCPU": 1}}) for name in names}
    puts = (_asking("PUT", path, body) for path, body in bodies.items())
    deletes = (_asking("DELETE", path) for path in bodies)
    return {
        "PUT allocations": _in_turn(services, _blocks(puts)),
        "DELETE allocations": _in_turn(services, _blocks(deletes)),
    }


def _pods(services: Sequence[Service], nodes: int, *, only_writes: bool) -> Iterator[tuple[str, list[Costs]]]:
    """The same pods for the same nodes."""
    for task in tasks(random.Random(3), nodes, _PODS):
        if only_writes and not task.name.startswith("place"):
            continue
        yield task.name, _in_turn(services, _blocks(_placing(task, body) for body in task.bodies))


def _placing(task: Task, body: dict[str, Any]) -> Ask:
    def ask(wire: Wire) -> float:
        took, status = task.call(wire, body)
        return _succeeded(task.name, took, status)

    return ask


def _asking(method: str, path: str, body: Any = None) -> Ask:
    def ask(wire: Wire) -> float:
        took, status, _ = wire.timed(method, path, body)
        return _succeeded(f"{method} {path}", took, status)

    return ask


def _succeeded(what: str, took: float, status: int) -> float:
    if status >= 300:
        raise SystemExit(f"{what}: {status}")
    return took


def _blocks(asks: Iterable[Ask]) -> Iterator[list[Ask]]:
    remaining = iter(asks)
    while block := list(islice(remaining, _BLOCK)):
        yield block


def _figures(rounds: list[list[Costs]]) -> list[str]:
    """Return the cells of a row: of what was waited the median, of processor time the tenth percentile."""
    waited = [[cost.waited.percentile(0.5) for cost in costs] for costs in rounds]
    workers = [[cost.workers.percentile(0.1) for cost in costs] for costs in rounds]
    sessions = [[cost.sessions.percentile(0.1) for cost in costs] for costs in rounds]
    ratios = [_ratio(*pair) for pair in waited]
    runs = sum(len(costs[0].waited.milliseconds) for costs in rounds)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return [*_beside(waited), spread, *_beside(workers), *_beside(sessions), str(runs)]


def _beside(rounds: list[list[float]]) -> list[str]:
    other, this = (statistics.median(column) for column in zip(*rounds, strict=True))
    return [f"{other:.2f} / {this:.2f}", f"{statistics.median(_ratio(*pair) for pair in rounds):.2f}"]


def _ratio(other: float, this: float) -> float:
    # SQLite takes no time beside the worker.
    return other / this if this else 1.0


if __name__ == "__main__":
    main()
