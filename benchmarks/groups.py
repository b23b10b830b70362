"""How long claims of many under rules take over HTTP, on one worker of the real service.

python -m benchmarks.groups                            1,000 members on 10,000 hosts
python -m benchmarks.groups --scale 0.1 --rounds 3     a quick look

Every claim finds room for all, and is given back before the next. Beside them, what clients do without rules:
one after another, each leaving out the hosts that have one already. benchmarks.one_by_one compares what is
placed where there is little room.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from benchmarks import bulk, data
from benchmarks.measure import Timing
from benchmarks.report import print_table
from benchmarks.wire import Wire
from tests.server import database_url, running_service

_PATH = "/ext/v1/claims"
_OWNER = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
_QUERY = "resources=VCPU:2,MEMORY_MB:4096,DISK_GB:20"
_ZONES = 4
_APART = {"kind": "at_most"}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.groups", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of hosts and members")
    parser.add_argument("--rounds", type=int, default=10, help="of each claim")
    given = parser.parse_args()
    hosts, members = round(10_000 * given.scale), round(1_000 * given.scale)
    rows = []
    with database_url("postgresql") as connection:
        bulk.fill(connection, data.flat(hosts))
        with running_service(connection, workers=1) as server:
            wire = Wire(server.url)
            zones = _zones(wire, hosts)
            for what, extra in _claims(members, zones):
                rows.append([what, *_measured(wire, members, extra, given.rounds)])
            rows.append(["one by one, apart", *_one_by_one(wire, min(members, 100))])
    columns = ["claim", "members", "placed", "least ms", "p50 ms", "p95 ms"]
    print_table(f"groups on {hosts:,} flat hosts", columns, rows)


def _claims(members: int, zones: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    spread = {"kind": "spread", "per": "aggregate", "aggregates": zones}
    yield "no rules, all or none", {"atomic": True}
    yield "different hosts", {"atomic": True, "rules": [_APART]}
    yield "different hosts, spread over zones", {"atomic": True, "rules": [_APART, spread]}
    yield (
        "at most 2 per host, soft",
        {"atomic": True, "rules": [{"kind": "at_most", "count": 2, "weight": 1}]},
    )
    yield (
        "same zone",
        {"atomic": True, "rules": [{"kind": "together", "per": "aggregate", "aggregates": zones}]},
    )
    yield (
        "different hosts, ordered",
        {"atomic": True, "rules": [_APART], "query": f"{_QUERY}&order_by=spread"},
    )
    into = {"atomic": True, "group": "grown", "rules": [{**_APART, "groups": ["grown"]}]}
    yield "into a group, apart from it", into
    yield "dry run, different hosts", {"dry_run": True, "rules": [_APART]}


def _zones(wire: Wire, hosts: int) -> list[str]:
    """Aggregates, a tenth of the hosts spread over them."""
    zones = [str(uuid4()) for _ in range(_ZONES)]
    providers = json.loads(wire.must("GET", "/resource_providers"))["resource_providers"]
    for number, provider in enumerate(providers[: hosts // 4]):
        body = {
            "aggregates": [zones[number % _ZONES]],
            "resource_provider_generation": provider["generation"],
        }
        wire.must("PUT", f"/resource_providers/{provider['uuid']}/aggregates", body)
    return zones


def _measured(wire: Wire, members: int, extra: dict[str, Any], rounds: int) -> list[str]:
    timing, placed = Timing(), 0
    for _ in range(rounds):
        body = {**_OWNER, "query": _QUERY, "members": [{"count": members}], **extra}
        took, status, content = wire.timed("POST", _PATH, body)
        if status != 200:
            raise RuntimeError(f"{status} {content[:500]!r}")
        timing.milliseconds.append(took)
        answer = json.loads(content)["members"]
        placed = sum("allocations" in each for each in answer)
        if not extra.get("dry_run"):
            _release(wire, [each["consumer_uuid"] for each in answer])
    return [f"{members:,}", f"{placed:,}", *_shares(timing)]


def _one_by_one(wire: Wire, members: int) -> list[str]:
    """Candidates and a claim for one after another, each on a host that has none."""
    began = time.perf_counter()
    taken: set[str] = set()
    consumers: list[str] = []
    for _ in range(members):
        path = f"/allocation_candidates?{_QUERY}&limit={len(taken) + 1}"
        found = json.loads(wire.must("GET", path))["allocation_requests"]
        free = [each for each in found if not each["allocations"].keys() & taken]
        consumers.append(str(uuid4()))
        body = {**_OWNER, "consumer_generation": None, "allocations": free[0]["allocations"]}
        wire.must("PUT", f"/allocations/{consumers[-1]}", body)
        taken |= free[0]["allocations"].keys()
    took = (time.perf_counter() - began) * 1000
    _release(wire, consumers)
    return [f"{members:,}", f"{len(taken):,}", *[f"{took:.0f}"] * 3]


def _release(wire: Wire, consumers: list[str]) -> None:
    empty = {"allocations": {}, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    for start in range(0, len(consumers), 500):
        some = consumers[start : start + 500]
        wire.must("POST", "/allocations", {uuid: {**empty, "consumer_generation": 1} for uuid in some})


def _shares(timing: Timing) -> list[str]:
    return [f"{timing.percentile(part):.0f}" for part in (0, 0.5, 0.95)]


if __name__ == "__main__":
    main()
