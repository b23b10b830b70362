"""Fill a simulated cluster once per order and compare.

python -m benchmarks.packing                        1000 hosts, three seeds, two loads; takes hours
python -m benchmarks.packing --hosts 100 --seeds 1  a quick look
python -m benchmarks.packing --write                also puts figures and plot into docs/packing.md
"""

from __future__ import annotations

import argparse
import re
from itertools import product
from pathlib import Path

from benchmarks import bulk
from benchmarks.packing import report
from benchmarks.packing.cluster import cluster
from benchmarks.packing.orders import ORDERS
from benchmarks.packing.simulation import Run, simulate
from benchmarks.packing.stream import arrivals
from tests.server import database_url, running_service

_DOCS = Path(__file__).resolve().parents[2] / "docs"
_FIGURES = re.compile(r"(<!-- figures -->\n).*(<!-- end of figures -->)", re.DOTALL)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packing", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument(
        "--arrivals", type=float, nargs="+", default=[9, 9.5], help="requests per host (default %(default)s)"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS), metavar="ORDER")
    parser.add_argument("--write", action="store_true", help="write docs/packing.md and its plot")
    given = parser.parse_args()
    if given.write:
        # Better to miss it now than after hours.
        from benchmarks.packing.plot import draw
    hosts = cluster(given.hosts)
    runs: list[Run] = []
    with database_url("postgresql") as connection:
        # The hosts get their ids in order, the same in every run.
        bulk.fill(connection, hosts)
        with running_service(connection, workers=1) as server:
            for each, seed in product(given.arrivals, given.seeds):
                stream = arrivals(round(each * given.hosts), seed)
                runs += [simulate(server.url, hosts, order, seed, stream) for order in given.orders]
    head = f"{given.hosts} hosts, seeds {', '.join(map(str, given.seeds))}.\n"
    text = f"{head}\n{report.tables(runs)}"
    print(text)
    if given.write:
        page = _DOCS / "packing.md"
        page.write_text(_FIGURES.sub(lambda found: f"{found[1]}{text}{found[2]}", page.read_text()))
        draw(runs, _DOCS / "packing.svg")


if __name__ == "__main__":
    main()
