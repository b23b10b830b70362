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
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import quote

from tqdm import tqdm

from benchmarks import bulk
from benchmarks.data import DataSet, claim_body, flat, identifier
from benchmarks.goals import Figures, scaled
from benchmarks.measure import Timing
from benchmarks.report import print_table
from benchmarks.wire import Wire
from tests.server import database_url, running_service

_QUERY = "resources=VCPU:2,MEMORY_MB:{memory},DISK_GB:20&limit={limit}"
_MEMORY = 4096
_OURS, _THEIRS = "/ext/v1/allocation_candidates", "/allocation_candidates"
_TWO, _NEW = "two strategies", "order_by pack, new amounts"
_KINDS = ("even", "varied")
_ORDERS = {
    "pack": "pack",
    "spread": "spread",
    "MostAllocated": "MostAllocated",
    "LeastAllocated": "LeastAllocated",
    "BalancedAllocation": "BalancedAllocation",
    _TWO: '[{"type":"MostAllocated","weight":2},{"type":"BalancedAllocation"}]',
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
    rows = []
    for name in _KINDS:
        for search, unordered, ordered in _measured(name, given.hosts, given.limit, given.rounds):
            first, second = unordered.percentile(0.5), ordered.percentile(0.5)
            rows.append([name, search, f"{first:.2f} ms", f"{second:.2f} ms", f"{second / first:.2f}x"])
    title = f"{given.hosts} hosts, limit={given.limit}"
    print_table(title, ["hosts", "search", "unordered p50", "ordered p50", "ratio"], rows)


def figures(scale: float) -> Figures:
    """What two strategies cost, and amounts never asked for: the dearer of both kinds of hosts."""
    hosts, limit, rounds = scaled(10_000, scale), scaled(1000, scale), scaled(100, scale)
    ratios: dict[str, float] = {}
    for name in _KINDS:
        for search, unordered, ordered in _measured(name, hosts, limit, rounds):
            ratio = ordered.percentile(0.5) / unordered.percentile(0.5)
            ratios[search] = max(ratio, ratios.get(search, 0))
    return {"ordered": f"{ratios[f'order_by {_TWO}']:.2f}x / {ratios[_NEW]:.2f}x"}


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


def _measured(name: str, hosts: int, limit: int, rounds: int) -> Iterator[tuple[str, Timing, Timing]]:
    """Each search, unordered and ordered, on hosts that are used in this way."""
    query = _QUERY.format(memory=_MEMORY, limit=limit)
    packing = {"OS_SCORING__ORDER_BY": "pack"}
    with ExitStack() as stack:
        connection = stack.enter_context(database_url("postgresql"))
        bulk.fill(connection, _used(hosts, name))
        plain = stack.enter_context(running_service(connection, workers=1))
        packed = stack.enter_context(running_service(connection, workers=1, environment=packing))
        ours, theirs = f"{_OURS}?{query}", f"{_THEIRS}?{query}"
        wire = Wire(plain.url)
        for label, order_by in _ORDERS.items():
            ordered = wire, f"{ours}&order_by={quote(order_by)}"
            yield f"order_by {label}", *_in_turn((wire, ours), ordered, rounds)
        uuids = [identifier(host.name) for (host,) in flat(hosts).hosts]
        pack = wire, f"{ours}&order_by=pack"

        def claimed(turn: int) -> None:
            body = claim_body({uuids[turn % hosts]: {"VCPU": 1}})
            wire.must("PUT", f"/allocations/{uuid.uuid4()}", body)

        yield "order_by pack, after a claim", *_in_turn((wire, ours), pack, rounds, claimed)
        yield _NEW, *_in_turn((wire, ours), pack, rounds, new_amounts=True)
        yield "default order pack", *_in_turn((wire, theirs), (Wire(packed.url), theirs), rounds)


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


if __name__ == "__main__":
    main()
