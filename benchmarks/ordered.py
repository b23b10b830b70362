"""What an order costs: the same search with and without one, in turn on the same server.

python -m benchmarks.ordered --hosts 10000 --limit 1000

One worker on PostgreSQL. `even` hosts are used to one of nine degrees, `varied` ones all differently. The
last row of each is /allocation_candidates of a second service whose default order is `pack`.
"""

from __future__ import annotations

import argparse
from urllib.parse import quote

from tqdm import tqdm

from benchmarks.fleet import EVEN, VARIED, fill
from benchmarks.measure import Timing
from benchmarks.wire import Wire
from tests.server import database_url, running_service

_QUERY = "resources=VCPU:2,MEMORY_MB:4096,DISK_GB:20&limit={limit}"
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
    for name, used in (("even", EVEN), ("varied", VARIED)):
        with database_url("postgresql") as connection:
            fill(connection, given.hosts, used)
            _measure(name, connection, given)


def _measure(name: str, connection: str, given: argparse.Namespace) -> None:
    query = _QUERY.format(limit=given.limit)
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
        pair = _in_turn((Wire(plain.url), theirs), (Wire(ordered.url), theirs), given.rounds)
        _print(f"{given.hosts} {name}", "default order pack", *pair)


def _in_turn(one: Search, other: Search, rounds: int) -> tuple[Timing, Timing]:
    timings = Timing(), Timing()
    for turn in tqdm(range(_WARM_UP + rounds), unit="round", leave=False):
        for timing, (wire, path) in zip(timings, (one, other), strict=True):
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
