"""Requests on their way through the house: every module they pass, in the order of the first call.

python -m benchmarks.journeys              all: a candidate query, a claim, a pod (LSR, 4 CPUs), and more
python -m benchmarks.journeys query pod    some of them; an unknown name lists all
python -m benchmarks.journeys --functions  every function instead of the first of each module
python -m benchmarks.journeys --database sqlite

Each is made a few times before it is traced, as in a process that has been running for a while. The
application is called without a server: the server's own modules do not depend on the request.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from benchmarks.report import print_table
from tests.journeys import Journey, stops_of, traced, world
from tests.server import BACKENDS


def main() -> None:
    """Trace what the command line asks for and print a table for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.journeys", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "journeys", nargs="*", metavar="JOURNEY", help="such as query, claim, pod; all without"
    )
    parser.add_argument("--functions", action="store_true")
    parser.add_argument("--database", choices=BACKENDS, default="postgresql")
    given = parser.parse_args()
    with world(given.database) as known:
        unknown = [name for name in given.journeys if name not in known]
        if unknown:
            parser.error(f"unknown journeys: {', '.join(unknown)} (known: {', '.join(known)})")
        for name in given.journeys or known:
            _print(name, traced(known[name]), functions=given.functions)


def _print(name: str, journey: Journey, *, functions: bool) -> None:
    stops = stops_of(journey)
    calls = sum(journey.calls.values())
    title = f"{name}: {calls} calls of {len(journey.calls)} functions in {len(stops)} modules"
    rows = []
    for module, codes in stops.items():
        if functions:
            rows += [[module, code.co_qualname, str(journey.calls[code])] for code in codes]
        else:
            rows.append([module, codes[0].co_qualname, _promise(module)])
    print_table(title, ["module", "function", "calls" if functions else "what for"], rows)


def _promise(module: str) -> str:
    """The first line of the module's docstring."""
    text = import_module(f"placement.{module}").__doc__ or ""
    return text.strip().partition("\n")[0]


if __name__ == "__main__":
    main()
