"""What it costs that every process keeps up with the database: processor time for each look, on both sides.

python -m benchmarks.feed
python -m benchmarks.feed --processes 1 2 4 8 --hosts 10000 --rate 20 --writes 20 --seconds 20

Processes look at a steady rate, as if so many searches came, first while nobody writes, then beside a writer
that changes providers. Processor time is counted, not elapsed time, so that a busy machine matters little.
From both phases follow the cost of a look and of a change that is followed, and what more processes take.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from benchmarks import bulk, data
from placement.providers.view import ForestKeeper
from placement.storage.database import Database
from tests.server import database_url

_NAME = "placement_follower"
_TICKS = os.sysconf("SC_CLK_TCK")
_MODELLED = (10, 30, 100)


Follower = subprocess.Popen[str]


class Phase(NamedTuple):
    """What some processes did together: looks, providers changed meanwhile, seconds of processor time."""

    looks: int
    changes: int
    own_seconds: float
    server_seconds: float


class Costs(NamedTuple):
    """Milliseconds of processor time for a look, and for a change that one process follows, on both sides."""

    own_look: float
    own_change: float
    server_look: float
    server_change: float


def main() -> None:
    """Measure, and print a table and the model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.feed", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=20, help="looks of each process in a second")
    parser.add_argument("--writes", type=float, default=20, help="changed providers in a second")
    parser.add_argument("--seconds", type=float, default=20, help="for each phase")
    parser.add_argument("--follow", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.follow:
        _follow(given.follow, given.rate, given.seconds)
        return
    with database_url("postgresql") as url:
        bulk.fill(url, data.flat(given.hosts))
        found = [_costs(url, count, given) for count in given.processes]
    print(f"milliseconds of processor time, load {os.getloadavg()[0]:.1f}")
    print("processes  look: process, server  change followed: process, server")
    for count, costs in zip(given.processes, found, strict=True):
        print(
            f"{count:9}  {costs.own_look:13.3f}  {costs.server_look:6.3f}"
            f"  {costs.own_change:24.3f}  {costs.server_change:6.3f}"
        )
    _model(found[-1])


def _costs(url: str, count: int, given: argparse.Namespace) -> Costs:
    with _followers(url, count, given) as followers:
        quiet = _phase(url, followers, writes=0)
        busy = _phase(url, followers, writes=given.writes)
    own, server = (1000 * spent / quiet.looks for spent in (quiet.own_seconds, quiet.server_seconds))
    followed = busy.changes * count
    return Costs(
        own,
        (1000 * busy.own_seconds - own * busy.looks) / followed,
        server,
        (1000 * busy.server_seconds - server * busy.looks) / followed,
    )


@contextmanager
def _followers(url: str, count: int, given: argparse.Namespace) -> Iterator[list[Follower]]:
    """Processes that have loaded all providers and wait for their phases."""
    named = (
        sa.make_url(url).update_query_dict({"application_name": _NAME}).render_as_string(hide_password=False)
    )
    command = [sys.executable, "-m", "benchmarks.feed", "--follow", named]
    command += ["--rate", str(given.rate), "--seconds", str(given.seconds)]
    pipe = subprocess.PIPE
    started = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(count)]
    for follower in started:
        assert follower.stdout is not None
        follower.stdout.readline()
    yield started
    for follower in started:
        follower.communicate()


def _phase(url: str, followers: Sequence[Follower], writes: float) -> Phase:
    database = Database(url)
    before = _server_seconds(database)
    stop, changed = threading.Event(), [0]
    writer = threading.Thread(target=_write, args=(database, writes, stop, changed), daemon=True)
    writer.start()
    for follower in followers:
        assert follower.stdin is not None
        follower.stdin.write("go\n")
        follower.stdin.flush()
    told = [json.loads(follower.stdout.readline()) for follower in followers if follower.stdout]
    stop.set()
    writer.join()
    after = _server_seconds(database)
    database.dispose()
    looks, seconds = (sum(column) for column in zip(*told, strict=True))
    return Phase(int(looks), changed[0], seconds, after - before)


def _server_seconds(database: Database) -> float:
    """The processor time that the sessions of all followers have taken."""
    with database.read() as connection:
        statement = sa.text("SELECT pid FROM pg_stat_activity WHERE application_name = :name")
        pids = connection.execute(statement, {"name": _NAME}).scalars().all()
    if not pids:
        raise LookupError(f"no session of {_NAME} is there")
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / _TICKS


def _write(database: Database, rate: float, stop: threading.Event, changed: list[int]) -> None:
    """Change providers one by one, as claims stamp them."""
    statement = sa.text("UPDATE resource_providers SET revision = pg_current_xact_id() WHERE id = :id")
    with database.read() as connection:
        ids: Sequence[int] = connection.execute(sa.text("SELECT id FROM resource_providers")).scalars().all()
    while rate and not stop.wait(1 / rate):
        with database.write() as transaction:
            transaction.execute(statement, {"id": random.choice(ids)})
        changed[0] += 1


def _follow(url: str, rate: float, seconds: float) -> None:
    """Print when all is loaded; then for each line look at a rate, and print how often and how costly."""
    keeper = ForestKeeper(Database(url))
    for _ in range(10):
        keeper.current()
    print("loaded", flush=True)
    for _ in sys.stdin:
        looks, begun, spent = 0, time.monotonic(), time.process_time()
        while time.monotonic() < begun + seconds:
            keeper.current()
            looks += 1
            time.sleep(max(0.0, begun + looks / rate - time.monotonic()))
        print(json.dumps([looks, time.process_time() - spent]), flush=True)


def _model(costs: Costs) -> None:
    """Processors of the database server that processes take which search 20 times in a second."""
    searches = 20.0
    print(
        f"\nprocessors of the database server for looks, at {searches:.0f} searches in a second and process:"
    )
    print("processes " + "".join(f"{writes:>8} claims/s" for writes in (0, 10, 100, 300)))
    for count in _MODELLED:
        taken = [
            count * (searches * costs.server_look + writes * costs.server_change) / 1000
            for writes in (0, 10, 100, 300)
        ]
        print(f"{count:9} " + "".join(f"{one:17.2f}" for one in taken))


if __name__ == "__main__":
    main()
