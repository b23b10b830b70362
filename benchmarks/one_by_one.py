"""Groups claimed as one, and one by one by a client that keeps the rules itself, on a nearly full cluster.

python -m benchmarks.one_by_one                          200 hosts, 30 groups of each kind, three clusters
python -m benchmarks.one_by_one --hosts 100 --seeds 1    a quick look

The client asks for candidates, leaves out what the rules forbid, claims the first of the others, and gives
everything back when a member finds no place. Once it takes members as they come, and once big ones first.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from threading import local
from typing import Any
from uuid import uuid4

from benchmarks import bulk
from benchmarks.data import DataSet, Provider, identifier
from benchmarks.measure import Timing
from benchmarks.report import print_table
from benchmarks.wire import Wire
from tests.server import database_url, running_service

_OWNER = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
_ZONES = [identifier(f"part-{number}") for number in range(4)]
_TOTAL = {"VCPU": 64, "MEMORY_MB": 262144}
_GIB_PER_VCPU = (2, 3, 4)
# What hosts have left, in VCPU: the first two zones are fuller than the others.
_LEFT = ((0, 1, 2, 2, 3, 4), (0, 2, 2, 4, 4, 8), (0, 2, 4, 4, 6, 9), (0, 2, 4, 6, 8, 10))
_SMALL, _MEDIUM, _BIG = (f"resources=VCPU:{vcpu},MEMORY_MB:{vcpu * 2048}" for vcpu in (2, 4, 8))
_CLIENTS = (1, 8)
# So often a client asks again when somebody else was faster.
_TRIES = 10


@dataclass(frozen=True)
class _Kind:
    """Groups of the same members, in the order in which they come; at most so many per host and zone."""

    name: str
    queries: Sequence[str]
    per_host: int | None = None
    per_zone: int | None = None

    @property
    def rules(self) -> list[dict[str, Any]]:
        """The rules of a claim for the group."""
        rules: list[dict[str, Any]] = []
        if self.per_host is not None:
            rules.append({"kind": "at_most", "count": self.per_host})
        if self.per_zone is not None:
            rules.append(
                {"kind": "at_most", "per": "aggregate", "count": self.per_zone, "aggregates": _ZONES}
            )
        return rules


_KINDS = (
    _Kind("different hosts", [_MEDIUM] * 6, per_host=1),
    _Kind("at most 2 per zone", [_MEDIUM] * 6, per_zone=2),
    _Kind("big and small, both rules", [_SMALL] * 5 + [_BIG] * 3, per_host=1, per_zone=2),
)


_Claim = Callable[[Wire], list[str]]
"""Claims for a group; its consumers, none if it was not placed whole."""


@dataclass
class _Outcome:
    """What became of the groups of one kind."""

    groups: int = 0
    whole: int = 0
    members: int = 0
    timing: Timing = field(default_factory=Timing)
    seconds: float = 0.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_by_one", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--groups", type=int, default=30, help="of each kind (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="so many clusters (default %(default)s)")
    given = parser.parse_args()
    zone_of = {identifier(_host(number)): _zone(number) for number in range(given.hosts)}
    outcomes: dict[tuple[str, int, str], _Outcome] = {}
    for seed in range(given.seeds):
        with database_url("postgresql") as connection:
            bulk.fill(connection, _nearly_full(given.hosts, seed))
            with running_service(connection, workers=1) as server:
                for kind, clients in product(_KINDS, _CLIENTS):
                    for way, claim in _ways(kind, zone_of).items():
                        outcome = outcomes.setdefault((kind.name, clients, way), _Outcome())
                        _run(server.url, claim, clients, given.groups, outcome)
    columns = ["groups", "clients", "claimed", "placed whole", "members", "p50 ms", "p95 ms", "seconds"]
    rows = [[name, str(clients), way, *_told(each)] for (name, clients, way), each in outcomes.items()]
    print_table(f"{given.seeds} times {given.hosts} hosts", columns, rows)


def _nearly_full(hosts: int, seed: int) -> DataSet:
    """Flat hosts in four zones, with little left."""
    chance = random.Random(seed)
    inventories = {name: {"total": total, "max_unit": total} for name, total in _TOTAL.items()}
    trees, consumers = [], []
    for number in range(hosts):
        left = chance.choice(_LEFT[number % len(_LEFT)])
        used = {
            "VCPU": _TOTAL["VCPU"] - left,
            "MEMORY_MB": _TOTAL["MEMORY_MB"] - left * 1024 * chance.choice(_GIB_PER_VCPU),
        }
        name = _host(number)
        trees.append([Provider(name, None, inventories, aggregates=[_zone(number)])])
        consumers.append({name: used})
    return DataSet(f"nearly full {seed}", trees, consumers)


def _host(number: int) -> str:
    return f"nearly-full-{number}"


def _zone(number: int) -> str:
    return _ZONES[number % len(_ZONES)]


def _run(url: str, claim: _Claim, clients: int, groups: int, outcome: _Outcome) -> None:
    """Claim for so many groups, and release everything at the end."""
    mine = local()

    def one(_: int) -> tuple[float, list[str]]:
        if not hasattr(mine, "wire"):
            mine.wire = Wire(url)
        began = time.perf_counter()
        consumers = claim(mine.wire)
        return (time.perf_counter() - began) * 1000, consumers

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(one, range(groups)))
    outcome.seconds += time.perf_counter() - began
    outcome.groups += groups
    outcome.timing.milliseconds += [took for took, _ in found]
    outcome.whole += sum(bool(consumers) for _, consumers in found)
    outcome.members += sum(len(consumers) for _, consumers in found)
    for _, consumers in found:
        _give_back(Wire(url), consumers)


def _as_one(wire: Wire, kind: _Kind) -> list[str]:
    """The consumers of a group, claimed together; none if they were refused."""
    members = [{"count": count, "query": query} for query, count in Counter(kind.queries).items()]
    body = {**_OWNER, "atomic": True, "members": members, "rules": kind.rules}
    status, content = wire.call("POST", "/ext/v1/claims", body)
    if status not in (200, 409):
        raise RuntimeError(f"{status} {content[:500]!r}")
    return [each["consumer_uuid"] for each in json.loads(content)["members"]] if status == 200 else []


class _OneByOne:
    """A client that claims for the members of a group one after another, and keeps the rules itself."""

    def __init__(self, wire: Wire, kind: _Kind, zone_of: Mapping[str, str]) -> None:
        self._wire, self._kind, self._zone_of = wire, kind, zone_of
        self._hosts: Counter[str] = Counter()

    def claim(self, queries: Sequence[str]) -> list[str]:
        """The consumers; none if one of them found no place."""
        consumers: list[str] = []
        for query in queries:
            consumer = str(uuid4())
            if not self._placed(query, consumer):
                _give_back(self._wire, consumers)
                return []
            consumers.append(consumer)
        return consumers

    def _placed(self, query: str, consumer: str) -> bool:
        for _ in range(_TRIES):
            allocations = self._first_allowed(query)
            if allocations is None:
                return False
            body = {**_OWNER, "consumer_generation": None, "allocations": allocations}
            status, content = self._wire.call("PUT", f"/allocations/{consumer}", body)
            if status == 204:
                self._hosts.update(allocations.keys())
                return True
            if status != 409:
                raise RuntimeError(f"{status} {content[:500]!r}")
        return False

    def _first_allowed(self, query: str) -> dict[str, Any] | None:
        """The first candidate that the rules allow beside the members that have a place."""
        kind = self._kind
        # Each host is one candidate: of so many, one is not among those that have a member.
        path = f"/allocation_candidates?{query}&limit={len(self._hosts) + 1}"
        if kind.per_zone is not None:
            zones = Counter(self._zone_of[host] for host in self._hosts.elements())
            path += f"&member_of=in:{','.join(zone for zone in _ZONES if zones[zone] < kind.per_zone)}"
        for candidate in json.loads(self._wire.must("GET", path))["allocation_requests"]:
            (host,) = candidate["allocations"]
            if kind.per_host is None or self._hosts[host] < kind.per_host:
                allocations: dict[str, Any] = candidate["allocations"]
                return allocations
        return None


def _ways(kind: _Kind, zone_of: Mapping[str, str]) -> dict[str, _Claim]:
    ways: dict[str, _Claim] = {
        "as one group": lambda wire: _as_one(wire, kind),
        "one by one, as they come": lambda wire: _OneByOne(wire, kind, zone_of).claim(kind.queries),
    }
    if len(set(kind.queries)) > 1:
        big_first = sorted(kind.queries, key=(_BIG, _SMALL).index)
        ways["one by one, big first"] = lambda wire: _OneByOne(wire, kind, zone_of).claim(big_first)
    return ways


def _give_back(wire: Wire, consumers: Sequence[str]) -> None:
    if consumers:
        empty = {**_OWNER, "allocations": {}, "consumer_generation": 1}
        wire.must("POST", "/allocations", dict.fromkeys(consumers, empty))


def _told(outcome: _Outcome) -> list[str]:
    timing = outcome.timing
    return [
        f"{outcome.whole} of {outcome.groups} ({outcome.whole / outcome.groups:.0%})",
        str(outcome.members),
        f"{timing.percentile(0.5):.0f}",
        f"{timing.percentile(0.95):.0f}",
        f"{outcome.seconds:.1f}",
    ]


if __name__ == "__main__":
    main()
