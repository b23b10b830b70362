"""What an order costs: the same search with and without one, in turn on the same server.

python -m benchmarks.ordered --hosts 10000 --limit 1000

One worker on PostgreSQL. `even` hosts are used to one of nine degrees, `varied` ones all differently.
Trees keep their scores for the next search of the same amounts; "new amounts" never asks for any twice, and
"after a claim" changes a host before each search. The last row of each is /allocation_candidates of a second
service whose default order is `pack`.
"""

from __future__ import annotations

import argparse
import random
import uuid
from collections.abc import Callable
from urllib.parse import quote

from tqdm import tqdm

from benchmarks import bulk
from benchmarks.data import DataSet, claim_body, flat, identifier
from benchmarks.measure import Timing
from benchmarks.wire import Wire
from tests.server import database_url, running_service

_QUERY = "resources=VCPU:2,MEMORY_MB:{memory},DISK_GB:20&limit={limit}"
_MEMORY = 4096
_OURS, _THEIRS = "/ext/v1/allocation_candidates", "/allocation_candidates"
_ORDERS = {
    "pack": "pack",
    "spread": "spread",
    "MostAllocated": "MostAllocated",
    "LeastAllocated": "LeastAllocated",
    "BalancedAllocation": "BalancedAllocation",
    "two strategies": '[{"type":"MostAllocated","weight":2},{"type":"BalancedAllocation"}]',
}
_WARM_UP = 5

Search = tuple[Wire, str]


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ordered", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200, help="how often each search is made")
    given = parser.parse_args()
    print("| hosts | search | unordered p50 | ordered p50 | ratio |")
    print("|---|---|---|---|---|")
    for name in ("even", "varied"):
        with database_url("postgresql") as connection:
            bulk.fill(connection, _used(given.hosts, name))
            _measure(name, connection, given)


def _used(hosts: int, name: str) -> DataSet:
    """Flat hosts, used as `even` or `varied` ones are."""
    chance = random.Random(hosts)
    consumers = []
    for number, (host,) in enumerate(whole := flat(hosts).hosts):
        held = {}
        for resource, record in host.inventories.items():
            degree = number % 9 / 10 if name == "even" else 0.9 * chance.random()
            held[resource] = int(record["total"] * record.get("allocation_ratio", 1.0) * degree)
        consumers.append({host.name: held})
    return DataSet(f"{name} {hosts}", whole, consumers)


def _measure(name: str, connection: str, given: argparse.Namespace) -> None:
    query = _QUERY.format(memory=_MEMORY, limit=given.limit)
    packing = {"OS_SCORING__ORDER_BY": "pack"}
    with (
        running_service(connection, workers=1) as plain,
        running_service(connection, workers=1, environment=packing) as ordered,
    ):
        ours, theirs = f"{_OURS}?{query}", f"{_THEIRS}?{query}"
        for label, order_by in _ORDERS.items():
            wire = Wire(plain.url)
            pair = _in_turn((wire, ours), (wire, f"{ours}&order_by={quote(order_by)}"), given.rounds)
            _print(f"{given.hosts} {name}", f"order_by {label}", *pair)
        hosts = [identifier(host.name) for (host,) in flat(given.hosts).hosts]
        pack = wire, f"{ours}&order_by=pack"

        def claimed(turn: int) -> None:
            wire.must("PUT", f"/allocations/{uuid.uuid4()}", claim_body({hosts[turn]: {"VCPU": 1}}))

        pair = _in_turn((wire, ours), pack, given.rounds, claimed)
        _print(f"{given.hosts} {name}", "order_by pack, after a claim", *pair)
        pair = _in_turn((wire, ours), pack, given.rounds, new_amounts=True)
        _print(f"{given.hosts} {name}", "order_by pack, new amounts", *pair)
        pair = _in_turn((Wire(plain.url), theirs), (Wire(ordered.url), theirs), given.rounds)
        _print(f"{given.hosts} {name}", "default order pack", *pair)


def _in_turn(
    one: Search,
    other: Search,
    rounds: int,
    before: Callable[[int], None] = lambda turn: None,
    *,
    new_amounts: bool = False,
) -> tuple[Timing, Timing]:
    timings = Timing(), Timing()
    for turn in tqdm(range(_WARM_UP + rounds), unit="round", leave=False):
        for timing, (wire, path) in zip(timings, (one, other), strict=True):
            before(turn)
            if new_amounts:
                path = path.replace(f"MEMORY_MB:{_MEMORY}", f"MEMORY_MB:{_MEMORY + 1 + turn}")
            took, status, content = wire.timed("GET", path)
            if status != 200:
                raise RuntimeError(f"{path}: {status} {content[:200]!r}")
            if turn >= _WARM_UP:
                timing.milliseconds.append(took)
    return timings


def _print(hosts: str, search: str, unordered: Timing, ordered: Timing) -> None:
    first, second = unordered.percentile(0.5), ordered.percentile(0.5)
    print(f"| {hosts} | {search} | {first:.2f} ms | {second:.2f} ms | {second / first:.2f}x |", flush=True)


if __name__ == "__main__":
    main()
