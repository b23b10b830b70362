"""The next search after many providers changed at once.

python -m benchmarks.changed                             10,000 of 100,000 flat hosts
python -m benchmarks.changed --hosts 10000 --changed 1000

The data goes straight into PostgreSQL; the service is the real one with one worker. A transaction of this
process changes the hosts, as those of other workers do: what is in use of them, as claims stamp it, or more
than that for all that the stamps tell. The search that comes next is held against one that finds nothing new.
"""

from __future__ import annotations

import argparse
import random

import sqlalchemy as sa

from benchmarks import bulk, data
from benchmarks.goals import Figures, scaled
from benchmarks.measure import Timing
from benchmarks.report import print_table
from benchmarks.wire import Wire
from placement.providers.statements import providers
from placement.storage import tables
from placement.storage.database import Database
from tests.server import database_url, running_service

_ROUNDS = 10
_SEARCH = "/allocation_candidates?resources=VCPU:2,MEMORY_MB:4096,DISK_GB:20&limit=10"


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.changed", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--changed", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    given = parser.parse_args()
    timings = _searches(given.hosts, given.changed, given.rounds)
    names = ["nothing", f"use of {given.changed:,} hosts", f"{given.changed:,} hosts"]
    rows = [[name, *timing.figures()] for name, timing in zip(names, timings, strict=True)]
    print_table(f"{given.hosts:,} hosts, limit=10", ["changed before", "p50", "p99", "longest"], rows)


def figures(scale: float) -> Figures:
    """The next search after 10,000 of 100,000 hosts changed."""
    quiet, used, changed = (
        timing.percentile(0.5) for timing in _searches(scaled(100_000, scale), scaled(10_000, scale), _ROUNDS)
    )
    return {
        "changed": f"{used:.0f} ms, {changed:.0f} ms if more than their use may have, "
        f"{quiet:.1f} ms if nothing changed"
    }


def _searches(hosts: int, count: int, rounds: int) -> tuple[Timing, Timing, Timing]:
    """Searches after nothing changed, the use of so many hosts, or more of them; the limit of each is 10."""
    chance, timings = random.Random(1), (Timing(), Timing(), Timing())
    with database_url("postgresql") as connection:
        bulk.fill(connection, data.flat(hosts))
        database = Database(connection)
        with database.engine.connect() as read:
            ids = read.execute(sa.select(tables.providers.c.id)).scalars().all()
        with running_service(connection, workers=1) as server:
            wire = Wire(server.url)
            wire.must("GET", _SEARCH)
            for _ in range(rounds):
                timings[0].milliseconds.append(_search(wire))
                for timing, is_usage in zip(timings[1:], (True, False), strict=True):
                    _change(database, chance.sample(ids, count), is_usage=is_usage)
                    timing.milliseconds.append(_search(wire))
        database.dispose()
    return timings


def _search(wire: Wire) -> float:
    took, status, content = wire.timed("GET", _SEARCH)
    if status != 200:
        raise RuntimeError(f"{status} {content[:200]!r}")
    return took


def _change(database: Database, ids: list[int], *, is_usage: bool) -> None:
    """Use one more of everything that these providers have, in one transaction, stamped as that or as any."""
    inventories = tables.inventories
    used = sa.update(inventories).where(inventories.c.resource_provider_id.in_(ids))
    with database.write() as transaction:
        if is_usage:
            providers.lock_and_stamp(transaction, (), ids)
        else:
            providers.touch(transaction, ids)
        transaction.execute(used.values(used=inventories.c.used + 1))


if __name__ == "__main__":
    main()
