"""Memory, files, threads and rows of the service while clients make calls of all kinds for hours.

python -m benchmarks.soak                                two hours
python -m benchmarks.soak --minutes 10 --warm-up 3       a first look
python -m benchmarks.soak --kinds pods nodes             calls of these kinds only

A line is printed each minute; the last lines are the verdict, and the exit code is 1 if a worker grows or
ends. Clients delete what they have made (benchmarks.mixed_calls), so that only history and names stay.
Resident memory is the proportional set size of Linux: a page that n processes share counts 1/n.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from benchmarks.mixed_calls import KINDS, Client
from placement.server import demonstration
from placement.storage import tables
from placement.storage.database import Database
from tests.server import BACKENDS, RunningServer, database_url, running_service

# 0.2 MiB a minute: a worker of 150 MiB would take a month of such calls to fill 10 GiB.
MOST_GROWTH = 12.0
_CLIENTS = 3
# A line through fewer points says little.
_FEWEST = 5


@dataclass(frozen=True)
class Usage:
    """What a process uses: MiB resident in proportion and in all, open files, sockets, threads."""

    proportional: float
    resident: float
    files: int
    sockets: int
    threads: int


def usage_of(pid: int) -> Usage:
    """Read what a process uses now."""
    kept = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, size, *_ = line.split()
        kept[name] = int(size) / 1024
    targets = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            targets.append(str(file.readlink()))
        except FileNotFoundError:
            continue
    sockets = sum(target.startswith("socket:") for target in targets)
    threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    return Usage(kept["Pss:"], kept["Rss:"], len(targets), sockets, threads)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the growth per hour by least squares, of (minutes, MiB) at two moments at least."""
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    along = sum((x - mean_x) ** 2 for x, _ in points)
    return float(60 * sum((x - mean_x) * (y - mean_y) for x, y in points) / along)


def verdict(points: Sequence[tuple[float, float]], warm_up: float) -> tuple[str, bool]:
    """Return what became of a worker, of its (minutes, MiB), and whether it grows after the warm-up."""
    warm = [point for point in points if point[0] >= warm_up]
    if len(warm) < _FEWEST:
        return f"too short to tell, {len(warm)} of {_FEWEST} lines after {warm_up:g} minutes", False
    grown = slope(warm)
    growing = grown > MOST_GROWTH
    word = "GROWING" if growing else "flat"
    return f"{grown:+.1f} MiB per hour after {warm_up:g} minutes, {word} (bound {MOST_GROWTH:g})", growing


def main() -> None:
    """Run the calls, print a line each minute and the verdict."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--warm-up", type=float, default=10, metavar="MINUTES", help="left out of the slope")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--database", choices=BACKENDS, default="postgresql")
    given = parser.parse_args()
    with database_url(given.database) as connection:
        demonstration.load_into_empty(connection)
        with running_service(connection) as server:
            sys.exit(_soak(server, connection, given.kinds, given.minutes, given.warm_up))


def _soak(
    server: RunningServer, connection: str, kinds: Sequence[str], minutes: float, warm_up: float
) -> int:
    """Return the exit code."""
    workers = server.workers()
    clients = [Client(server.url, number) for number in range(_CLIENTS)]
    stop = threading.Event()
    database = Database(connection)
    at_first = _rows(database)
    with ThreadPoolExecutor(_CLIENTS) as pool:
        running = [pool.submit(client.run, kinds, stop) for client in clients]
        try:
            points = _watched(server, clients, running, database, at_first, minutes)
        finally:
            stop.set()
    database.dispose()
    for one in running:
        one.result()
    print(f"answers by status: {dict(sorted(_answers(clients).items()))}")
    found = {pid: verdict(seen, warm_up) for pid, seen in points.items()}
    print("\n".join(f"worker {pid}: {sentence}" for pid, (sentence, _) in found.items()))
    return int(server.workers() != workers or any(growing for _, growing in found.values()))


def _watched(
    server: RunningServer,
    clients: Sequence[Client],
    running: Sequence[Future[None]],
    database: Database,
    at_first: Counter[str],
    minutes: float,
) -> dict[int, list[tuple[float, float]]]:
    """Print a line each minute; return the (minutes, MiB) of each worker, until one or a client ends."""
    workers = server.workers()
    points: dict[int, list[tuple[float, float]]] = {pid: [] for pid in workers}
    started = time.monotonic()
    print("| minute | calls | MiB by worker: PSS/RSS | PSS | files | sockets | threads | more rows |")
    print("|---|---|---|---|---|---|---|---|")
    while (minute := (time.monotonic() - started) / 60) < minutes:
        time.sleep(60 * min(1, minutes / _FEWEST, minutes - minute))
        minute = (time.monotonic() - started) / 60
        if server.workers() != workers or any(one.done() for one in running):
            print("A worker or a client has ended.")
            break
        used = [usage_of(pid) for pid in workers]
        for pid, usage in zip(workers, used, strict=True):
            points[pid].append((minute, usage.proportional))
        _print(minute, clients, used, _rows(database) - at_first)
    return points


def _rows(database: Database) -> Counter[str]:
    """How many rows each table has."""
    count = sa.select(sa.func.count())
    with database.read() as connection:
        return Counter(
            {
                table.name: connection.scalar(count.select_from(table))
                for table in tables.metadata.sorted_tables
            }
        )


def _answers(clients: Sequence[Client]) -> Counter[int]:
    return sum((client.answers for client in clients), Counter())


def _print(minute: float, clients: Sequence[Client], used: Sequence[Usage], more: Counter[str]) -> None:
    cells = [
        f"{minute:.1f}",
        f"{_answers(clients).total():,}",
        " ".join(f"{one.proportional:.1f}/{one.resident:.1f}" for one in used),
        f"{sum(one.proportional for one in used):.1f}",
        *(f"{sum(values)}" for values in zip(*((u.files, u.sockets, u.threads) for u in used), strict=True)),
        ", ".join(f"{name} +{number}" for name, number in more.items()),
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
