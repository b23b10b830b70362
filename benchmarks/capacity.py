"""How long it takes to tell what there is room for, over HTTP, on one worker of the real service.

python -m benchmarks.capacity                            100,000 flat hosts, 10,000 of each other kind
python -m benchmarks.capacity --scale 0.1 --rounds 5     a quick look
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from benchmarks import bulk, data
from benchmarks.measure import Timing
from benchmarks.report import print_table
from benchmarks.wire import Wire
from tests.server import database_url, running_service

_PATH = "/ext/v1/capacity"
_SHARED = {"": {"resources": {"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 20}}}
_DISK = {"": {"resources": {"DISK_GB": 20}}}


def _numa(vcpu: int, pcpu: int, memory: int) -> dict[str, Any]:
    amounts = {"VCPU": vcpu, "PCPU": pcpu, "MEMORY_MB": memory}
    return {"resources": amounts, "required": ["HW_NUMA_ROOT"]}


def _cell(pcpu: int, memory: int) -> dict[str, Any]:
    return {"resources": {"PCPU": pcpu, "MEMORY_MB": memory}, "split": ["PCPU"]}


_ONE_BY_ONE = {f"_core{number}": {"resources": {"PCPU": 1}} for number in range(4)}
_QUESTIONS: dict[str, tuple[int, dict[str, dict[str, Any]]]] = {
    "flat": (100_000, {"a flavor": {"groups": _SHARED}}),
    "numa": (
        10_000,
        {
            "a flavor": {"groups": _SHARED},
            "two equal cells": {
                "groups": {**_DISK, "_0": _numa(2, 2, 4096), "_1": _numa(2, 2, 4096)},
                "group_policy": "isolate",
            },
            "two different cells": {
                "groups": {**_DISK, "_0": _numa(3, 2, 4096), "_1": _numa(1, 3, 2048)},
                "group_policy": "isolate",
            },
            "a cell and a port of its NUMA node": {
                "groups": {
                    **_DISK,
                    "_0": _numa(3, 1, 4096),
                    "_port": {"resources": {"SRIOV_NET_VF": 1}},
                },
                "same_subtree": [["_0", "_port"]],
                "group_policy": "none",
            },
        },
    ),
    "cores": (
        10_000,
        {
            "two equal cells": {
                "groups": {**_DISK, "_0": _cell(4, 4096), "_1": _cell(4, 4096)},
                "group_policy": "isolate",
            },
            "two different cells": {
                "groups": {**_DISK, "_0": _cell(4, 4096), "_1": _cell(2, 4096)},
                "group_policy": "isolate",
            },
            "four cores, each a group": {
                "groups": {**_DISK, "_node": {"resources": {"MEMORY_MB": 16384}}, **_ONE_BY_ONE},
                "same_subtree": [["_node", *_ONE_BY_ONE]],
                "group_policy": "isolate",
            },
        },
    ),
    "sharing": (10_000, {"a flavor": {"groups": _SHARED}}),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capacity", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of hosts")
    parser.add_argument("--rounds", type=int, default=20, help="of each question")
    parser.add_argument("--data", nargs="+", choices=_QUESTIONS, default=list(_QUESTIONS))
    given = parser.parse_args()
    rows = []
    for name in given.data:
        count, questions = _QUESTIONS[name]
        hosts = round(count * given.scale)
        with database_url("postgresql") as connection:
            bulk.fill(connection, data.KINDS[name](hosts))
            with running_service(connection, workers=1) as server:
                wire = Wire(server.url)
                for what, query in questions.items():
                    rows.append([f"{hosts:,} {name}", what, *_measured(wire, query, given.rounds)])
    columns = ["hosts", "question", "room", "fragmentation", "least ms", "p50 ms", "p95 ms"]
    print_table("how many more there is room for", columns, rows)


def _measured(wire: Wire, query: dict[str, Any], rounds: int) -> list[str]:
    timing = Timing()
    body = {"kinds": {"it": {"query": query}}}
    # The first one waits until the process has loaded its forest.
    total = json.loads(wire.must("POST", _PATH, body))["kinds"]["it"]["total"]
    for _ in range(rounds):
        took, status, content = wire.timed("POST", _PATH, body)
        if status != 200:
            raise RuntimeError(f"{status} {content[:300]!r}")
        timing.milliseconds.append(took)
    room = f"{total['lower']:,}" if total["exact"] else f"{total['lower']:,} to {total['upper']:,}"
    shares = [f"{timing.percentile(part):.0f}" for part in (0, 0.5, 0.95)]
    return [room, f"{total['fragmentation']:.2f}", *shares]


if __name__ == "__main__":
    main()
