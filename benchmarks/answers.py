"""Searches and claims on 10,000 flat hosts, beside a route that sends the same bytes, made beforehand.

python -m benchmarks.answers
python -m benchmarks.answers --hosts 1000 --seconds 2

Two workers each. The hosts go straight into PostgreSQL.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks import bulk, data, measure, servers
from benchmarks.goals import Figures, scaled
from benchmarks.measure import Throughput, Timing
from benchmarks.queries import QUERIES
from benchmarks.report import Table
from tests.server import database_url, running_service

_QUERIES = {name: QUERIES["flat"][name] for name in ("simple limit 10", "simple limit 1000")}
_SEARCHES = "simple limit 10 per second, 16 clients"
# A claim that a host has room for many times.
_SMALL = "resources=VCPU:1,MEMORY_MB:64,DISK_GB:1"
_MEMBERS = 1000
_BULK = f"consumers per second, {_MEMBERS} in one call"
_ONE_CALL = "candidates and claim in one call per second"

Rates = dict[str, dict[str, Throughput]]


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=8, help="per row and server")
    given = parser.parse_args()
    timings, rates = _measured(given.hosts, given.seconds)
    table = Table(f"flat {given.hosts}, postgresql")
    for name, timing in timings.items():
        table.timing(name, timing)
    for name, rate in rates.items():
        table.throughput(name, rate)
    table.print()


def figures(scale: float) -> Figures:
    """How searches stand to the ready-made route, and claims per second."""
    timings, rates = _measured(scaled(10_000, scale), 5 * scale)
    thousand = {name: each.percentile(0.5) for name, each in timings["simple limit 1000"].items()}
    searches = {name: each.per_second for name, each in rates[_SEARCHES].items()}
    claims = {name: by["ours"].per_second for name, by in rates.items() if name != _SEARCHES}
    return {
        "thousand": "{:.1f}x, {ours:.2f} ms of {ready-made:.2f} ms".format(
            thousand["ours"] / thousand["ready-made"], **thousand
        ),
        "searches": "{:.2f}, {ours:.0f} of {ready-made:.0f}".format(
            searches["ours"] / searches["ready-made"], **searches
        ),
        "one call": f"{claims[f'{_ONE_CALL}, 8 clients']:.0f}",
        "bulk": f"{max(rate for name, rate in claims.items() if name.startswith(_BULK)):.0f}",
    }


def _measured(hosts: int, seconds: float) -> tuple[dict[str, dict[str, Timing]], Rates]:
    """Times of searches and rates, by what is done and by server."""
    with ExitStack() as stack:
        connection = stack.enter_context(database_url("postgresql"))
        bulk.fill(connection, data.flat(hosts))
        service = stack.enter_context(running_service(connection, workers=2))
        ours = servers.Measured("ours", service.url, service.process.pid)
        both = [ours, stack.enter_context(servers.ready_made(measure.bodies(ours, _QUERIES)))]
        timings = measure.queries(both, _QUERIES, seconds)
        rates = {
            _SEARCHES: {
                server.name: measure.searches(server, _QUERIES["simple limit 10"], 16, seconds)
                for server in both
            }
        }
        return timings, {**rates, **dict(in_one_call(ours, seconds))}


def in_one_call(ours: servers.Measured, seconds: float) -> Iterator[tuple[str, dict[str, Throughput]]]:
    """Claims that search as well, which only this service can do: their rates, by what is done."""
    for clients in (1, 8):
        found = measure.claim_in_one_call(ours, _SMALL, clients, seconds)
        yield f"{_ONE_CALL}, {clients} clients", {ours.name: found}
    for clients in (1, 2):
        for atomic in (False, True):
            kind = "all or none" if atomic else "each by itself"
            found = measure.claims_in_bulk(ours, _SMALL, _MEMBERS, clients, seconds, atomic=atomic)
            yield f"{_BULK}, {kind}, {clients} clients", {ours.name: found}


if __name__ == "__main__":
    main()
