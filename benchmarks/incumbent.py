"""PUT /allocations with 8 clients, beside the incumbent; `benchmarks.comparison` compares much more.

python -m benchmarks.incumbent
python -m benchmarks.incumbent --hosts 1000 --seconds 2

Two workers each, on PostgreSQL, in turn. The incumbent's hosts go straight into its tables, ours come
through REST.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks import data, measure, servers
from benchmarks.goals import Figures, scaled
from benchmarks.incumbent_rows import fill_with
from benchmarks.report import print_table
from tests.server import database_url

_CLIENTS = 8
_ROUNDS = 3


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.incumbent", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5, help="per round and server")
    given = parser.parse_args()
    rates = _rates(given.hosts, given.seconds)
    rows = [[name, *(f"{rate:.0f}/s" for rate in found)] for name, found in rates.items()]
    rounds = [f"round {number}" for number in range(1, _ROUNDS + 1)]
    print_table(f"PUT /allocations, {given.hosts} hosts, {_CLIENTS} clients", ["server", *rounds], rows)


def figures(scale: float) -> Figures:
    """How often as many claims per second there are."""
    found = {
        name: statistics.median(rates) for name, rates in _rates(scaled(10_000, scale), 5 * scale).items()
    }
    ratio = found["ours"] / found["incumbent"]
    return {"claims": f"{ratio:.1f}x, {found['ours']:.0f}/s of {found['incumbent']:.0f}/s"}


def _rates(hosts: int, seconds: float) -> dict[str, list[float]]:
    """Claims per second in each round, by server."""
    data_set = data.flat(hosts)
    rates: dict[str, list[float]] = {"ours": [], "incumbent": []}
    with ExitStack() as stack:
        ours = stack.enter_context(servers.ours("postgresql"))
        data.build(ours.url, data_set, ours.name)
        theirs = stack.enter_context(_filled(data_set))
        for _ in range(_ROUNDS):
            for server in (ours, theirs):
                found = measure.claims(server, hosts, _CLIENTS, seconds)
                rates[server.name].append(found.per_second)
    return rates


@contextmanager
def _filled(data_set: data.DataSet) -> Iterator[servers.Measured]:
    """The incumbent with these hosts and consumers."""
    with database_url("postgresql", migrated=False) as connection:
        servers.create_incumbent_tables(connection)
        # It writes its classes and traits when it starts.
        with servers.incumbent_at(connection):
            pass
        fill_with(connection, data_set)
        with servers.incumbent_at(connection) as server:
            yield server


if __name__ == "__main__":
    main()
