"""Memory, files, threads, tables and p99 of the service while clients make calls of all kinds for hours.

python -m benchmarks.soak                                two hours
python -m benchmarks.soak --minutes 10 --warm-up 3       a first look
python -m benchmarks.soak --kinds pods nodes             calls of these kinds only

A line is printed each minute; the last lines say of each figure whether it is flat, and the exit code is 1 if
one grows or a worker ends. Clients delete what they have made (benchmarks.mixed_calls), so that only history
and names stay: those tables are counted apart. p99 is that of all calls of a minute.
Resident memory is the proportional set size of Linux: a page that n processes share counts 1/n.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from benchmarks.measure import Timing
from benchmarks.mixed_calls import KINDS, Client
from placement.server import demonstration
from placement.storage import tables
from placement.storage.database import Database
from tests.server import BACKENDS, RunningServer, database_url, running_service

# 0.2 MiB a minute: a worker of 150 MiB would take a month of such calls to fill 10 GiB.
MOST_GROWTH = 12.0
# Calls in work have some at a time; one that is left by each thousandth call would be hundreds.
_MOST_FILES, _MOST_THREADS, _MOST_ROWS = 30.0, 30.0, 600.0
MOST_SLOWER = 1.5
_CLIENTS = 3
# A line through fewer points says little.
_FEWEST = 5
_SIZE = {
    "postgresql": "SELECT pg_database_size(current_database())",
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
}
_HEADINGS = ["minute", "calls", "p99 ms", "MiB by worker: PSS/RSS", "PSS", "files", "sockets", "threads"]
_HEADINGS += ["MiB of tables", "more rows"]
# They stay in any deployment.
_HISTORY = frozenset({"audit_records", "changes", "projects", "use_samples", "users"})

Points = list[tuple[float, float]]
"""Minutes since the start, and a figure then."""


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


def verdict(
    points: Sequence[tuple[float, float]], warm_up: float, most: float = MOST_GROWTH, unit: str = "MiB"
) -> tuple[str, bool]:
    """Return what became of a figure, of its (minutes, amount), and whether it grows after the warm-up.

    It grows if that is more than `most` units per hour.
    """
    warm = [point for point in points if point[0] >= warm_up]
    if len(warm) < _FEWEST:
        return _too_short(warm, warm_up), False
    grown = slope(warm)
    word = "GROWING" if grown > most else "flat"
    return f"{grown:+.1f} {unit} per hour after {warm_up:g} minutes, {word} (bound {most:g})", grown > most


def slower(points: Sequence[tuple[float, float]], warm_up: float) -> tuple[str, bool]:
    """Return what became of a time, of its (minutes, milliseconds), and whether it grows after the warm-up.

    Medians of the first and the last third are compared: a minute in which the machine did something else
    would tilt a line.
    """
    warm = [amount for minute, amount in points if minute >= warm_up]
    if len(warm) < _FEWEST:
        return _too_short(warm, warm_up), False
    third = max(1, len(warm) // 3)
    first, last = statistics.median(warm[:third]), statistics.median(warm[-third:])
    is_slower = last > MOST_SLOWER * first
    word = "GROWING" if is_slower else "flat"
    return f"{first:.1f} ms at first, {last:.1f} at last, {word} (bound {MOST_SLOWER:g} times)", is_slower


def _too_short(warm: Sequence[object], warm_up: float) -> str:
    return f"too short to tell, {len(warm)} of {_FEWEST} lines after {warm_up:g} minutes"


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
    clients = [Client(server.url, number) for number in range(_CLIENTS)]
    stop = threading.Event()
    database = Database(connection)
    watch = Watch(server, clients, database)
    with ThreadPoolExecutor(_CLIENTS) as pool:
        running = [pool.submit(client.run, kinds, stop) for client in clients]
        try:
            watch.follow(running, minutes)
        finally:
            stop.set()
    database.dispose()
    for one in running:
        one.result()
    print(f"answers by status: {dict(sorted(_answers(clients).items()))}")
    found = watch.verdicts(warm_up)
    print("\n".join(f"{name}: {sentence}" for name, (sentence, _) in found.items()))
    return int(watch.has_changed() or any(growing for _, growing in found.values()))


class Watch:
    """The figures of a service over time."""

    def __init__(self, server: RunningServer, clients: Sequence[Client], database: Database) -> None:
        self._server, self._clients, self._database = server, clients, database
        self._workers = server.workers()
        self._at_first = _rows(database)
        self._memory: dict[int, Points] = {pid: [] for pid in self._workers}
        self._files: Points = []
        self._threads: Points = []
        self._rows: Points = []
        self._p99: Points = []

    def has_changed(self) -> bool:
        """Return whether a worker has ended."""
        return self._server.workers() != self._workers

    def follow(self, running: Sequence[Future[None]], minutes: float) -> None:
        """Print a line each minute, until a worker or a client ends."""
        started = time.monotonic()
        print(f"| {' | '.join(_HEADINGS)} |\n{'|---' * len(_HEADINGS)}|")
        while (minute := (time.monotonic() - started) / 60) < minutes:
            time.sleep(60 * min(1, minutes / _FEWEST, minutes - minute))
            if self.has_changed() or any(one.done() for one in running):
                print("A worker or a client has ended.")
                break
            self._look((time.monotonic() - started) / 60)

    def verdicts(self, warm_up: float) -> dict[str, tuple[str, bool]]:
        """Return of each figure what became of it, and whether it grows."""
        memory = {f"worker {pid}": verdict(points, warm_up) for pid, points in self._memory.items()}
        return {
            **memory,
            "files": verdict(self._files, warm_up, _MOST_FILES, "files"),
            "threads": verdict(self._threads, warm_up, _MOST_THREADS, "threads"),
            "rows but history": verdict(self._rows, warm_up, _MOST_ROWS, "rows"),
            "p99": slower(self._p99, warm_up),
        }

    def _look(self, minute: float) -> None:
        used = [usage_of(pid) for pid in self._workers]
        more = _rows(self._database) - self._at_first
        waited = Timing([each for client in self._clients for each in client.waited()])
        p99 = waited.percentile(0.99) if waited.milliseconds else 0.0
        for points, usage in zip(self._memory.values(), used, strict=True):
            points.append((minute, usage.proportional))
        self._files.append((minute, sum(usage.files for usage in used)))
        self._threads.append((minute, sum(usage.threads for usage in used)))
        self._rows.append((minute, sum(count for name, count in more.items() if name not in _HISTORY)))
        self._p99.append((minute, p99))
        sums = zip(*((usage.files, usage.sockets, usage.threads) for usage in used), strict=True)
        cells = [
            f"{minute:.1f}",
            f"{_answers(self._clients).total():,}",
            f"{p99:.1f}",
            " ".join(f"{one.proportional:.1f}/{one.resident:.1f}" for one in used),
            f"{sum(one.proportional for one in used):.1f}",
            *(f"{sum(values)}" for values in sums),
            f"{_mebibytes(self._database):.1f}",
            ", ".join(f"{name} +{number}" for name, number in more.items()),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


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


def _mebibytes(database: Database) -> float:
    """How much room all tables take, with their indexes and with what is no longer used of them."""
    statement = _SIZE[database.backend.name]
    with database.read() as connection:
        return float(connection.scalar(sa.text(statement))) / 2**20


def _answers(clients: Sequence[Client]) -> Counter[int]:
    return sum((client.answers for client in clients), Counter())


if __name__ == "__main__":
    main()
