"""Moving over from a real OpenStack Placement, and back; and how fast.

python -m benchmarks.moving                            flat:300 and numa:60 on every database that is here
python -m benchmarks.moving --database mariadb --data flat:10000 --queries 1000
python -m benchmarks.moving --speed 100000             so many providers with ten allocations each

Without --speed the incumbent, installed in an environment of its own, makes its tables and is filled over
its REST API; more than 1,000 hosts without children are written into its tables. Its database is imported,
both services are asked the same queries; then it is written to, imported once more, and ours is exported
into other tables of the incumbent, which serves them. Ends with 1 if any two answers differ.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from tqdm import tqdm

from benchmarks import data, mariadb, servers
from benchmarks.incumbent_rows import fill, fill_with
from benchmarks.wire import Wire
from tests.server import database_url, postgresql_server, running_service

_DATABASES = ("sqlite", "postgresql", "mariadb")
_ROOT = Path(__file__).resolve().parents[1]
# Where /proc/PID/stat has the time of children, counted behind the name.
_OF_CHILDREN = (13, 14)
_FAILED = 500
# More hosts are written into the incumbent's tables; through its REST API they would take an hour.
_THROUGH_REST = 1000
# Of how many providers everything is read from both services.
_SAMPLE = 200
_PARTS = ("inventories", "usages", "traits", "aggregates", "allocations")


def main() -> int:
    """Do what the command line asks for; 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.moving", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--database", nargs="+", choices=_DATABASES, default=list(_DATABASES))
    parser.add_argument("--data", nargs="+", default=["flat:300", "numa:60"], metavar="KIND:HOSTS")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--speed", type=int, metavar="PROVIDERS")
    parser.add_argument("--into", choices=("sqlite", "postgresql"), default="postgresql", help="our database")
    given = parser.parse_args()
    differences = 0
    for kind in given.database:
        if kind == "mariadb" and not mariadb.is_installed():
            print("mariadb: NOT RUN, there is no mariadbd, or no PyMySQL")
        elif given.speed:
            _speed(kind, given.into, given.speed)
        else:
            differences += _there_and_back(kind, given.into, given.data, given.queries)
    return 1 if differences else 0


@contextmanager
def _empty(kind: str) -> Iterator[str]:
    """The URL of an empty database in which the incumbent has made its tables."""
    with mariadb.running() if kind == "mariadb" else database_url(kind, migrated=False) as url:
        servers.create_incumbent_tables(url)
        yield url


def _speed(kind: str, into: str, providers: int) -> None:
    with _empty(kind) as there, database_url(into) as here:
        rows = fill(there, providers)
        print(f"{kind} to {into}: {rows}")
        for title, more in (("dry run", ["--dry-run"]), ("import", []), ("import again", [])):
            started, before = time.perf_counter(), _processor_seconds()
            _placement("import", there, "--database", here, *more)
            took, used = time.perf_counter() - started, _processor_seconds() - before
            load = os.getloadavg()[0]
            print(
                f"  {title}: {took:.0f} s, {used:.0f} s of CPU with that of PostgreSQL, load {load:.1f}",
                flush=True,
            )


def _processor_seconds() -> float:
    """Processor time of the commands that have ended, and of the sessions of PostgreSQL that have."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    engine = sa.create_engine(postgresql_server(), poolclass=sa.NullPool)
    with engine.connect() as connection:
        directory = connection.exec_driver_sql("SHOW data_directory").scalar_one()
    server = (Path(directory) / "postmaster.pid").read_text().split()[0]
    fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    ended = sum(int(fields[place]) for place in _OF_CHILDREN) / os.sysconf("SC_CLK_TCK")
    return used.ru_utime + used.ru_stime + ended


def _there_and_back(kind: str, into: str, data_sets: list[str], queries: int) -> int:
    with ExitStack() as stack:
        there, here = stack.enter_context(_empty(kind)), stack.enter_context(database_url(into))
        incumbent = stack.enter_context(servers.incumbent_at(there))
        sets = [
            data.KINDS[name](int(count)) for name, _, count in (wanted.partition(":") for wanted in data_sets)
        ]
        for data_set in sets:
            if len(data_set.hosts) > _THROUGH_REST and all(len(host) == 1 for host in data_set.hosts):
                fill_with(there, data_set)
            else:
                data.build(incumbent.url, data_set, kind, clients=1 if kind == "sqlite" else 8)
        _odd_ones(incumbent.url)
        print(_placement("import", there, "--database", here))
        ours = stack.enter_context(running_service(here, workers=2))
        found = _compare(kind, incumbent.url, ours.url, queries)
        _odd_ones(incumbent.url)
        _release_some(incumbent.url, sets)
        print(_placement("import", there, "--database", here, "--remove"))
        found += _compare(f"{kind}, again", incumbent.url, ours.url, queries)
        back = stack.enter_context(_empty(kind))
        print(_placement("export", back, "--database", here))
        again = stack.enter_context(servers.incumbent_at(back))
        found += _compare(f"{kind}, and back", incumbent.url, again.url, queries)
    return found


def _placement(*arguments: str) -> str:
    command = [sys.executable, "-m", "placement.client", *arguments]
    finished = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"{' '.join(arguments)}: exit status {finished.returncode}\n{finished.stdout}")
    return finished.stdout


def _odd_ones(url: str) -> None:
    """What the data sets lack: other kinds of consumers and owners, classes and traits of one's own."""
    wire = Wire(url)
    number = uuid.uuid4()
    wire.must("PUT", f"/resource_classes/CUSTOM_{number.hex.upper()}")
    wire.must("PUT", f"/traits/CUSTOM_{number.hex.upper()}")
    wire.must("POST", "/resource_providers", {"name": f"Häuschen {number}", "uuid": str(number)})
    inventories = {f"CUSTOM_{number.hex.upper()}": {"total": 7, "allocation_ratio": 1.23456}}
    body = {"resource_provider_generation": 0, "inventories": inventories}
    wire.must("PUT", f"/resource_providers/{number}/inventories", body)
    for kind in ("INSTANCE", "MIGRATION", f"ODD_{number.hex.upper()}"):
        claim = data.claim_body({str(number): {f"CUSTOM_{number.hex.upper()}": 1}})
        claim |= {"consumer_type": kind, "project_id": kind.lower(), "user_id": str(number)}
        wire.must("PUT", f"/allocations/{uuid.uuid4()}", claim)


def _release_some(url: str, sets: list[data.DataSet]) -> None:
    wire = Wire(url)
    for data_set in sets:
        for at in range(0, len(data_set.consumers), 10):
            wire.must("DELETE", f"/allocations/{data.identifier(f'{data_set.name}-{at}')}")


def _compare(title: str, one: str, other: str, count: int) -> int:
    """How many answers of two services differ, and what differs between what they hold of some providers.

    Queries at which the incumbent fails, as at GET /usages on PostgreSQL, compare nothing and are counted.
    """
    chance = random.Random(title)
    wires = Wire(one), Wire(other)
    listed = json.loads(wires[0].must("GET", "/resource_providers"))["resource_providers"]
    providers = [entry["uuid"] for entry in listed]
    different = failed = 0
    started = time.perf_counter()
    for query in tqdm([_query(chance, providers) for _ in range(count)], desc=title, unit="", mininterval=10):
        answers = [_answer(wire, query) for wire in wires]
        if answers[0][0] >= _FAILED:
            failed += 1
        elif answers[0] != answers[1]:
            different += 1
            print(f"  {query}", *(f"    {str(answer)[:300]}" for answer in answers), sep="\n")
    command = [sys.executable, "-m", "placement.client", "verify", one, other, "--sample", str(_SAMPLE)]
    verified = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=False)
    took, load = time.perf_counter() - started, os.getloadavg()[0]
    told = f"{title}: {count} queries, {different} answers differ, {failed} failed in the incumbent"
    print(f"{told}, {took:.0f} s, load {load:.1f}")
    print(f"{title}: verify: {verified.stdout.splitlines()[-1]}", flush=True)
    return different + verified.returncode


def _answer(wire: Wire, query: str) -> tuple[int, Any]:
    status, body = wire.call("GET", query)
    return status, _sorted(json.loads(body))


def _query(chance: random.Random, providers: list[str]) -> str:
    provider = chance.choice(providers)
    kind = chance.randrange(5)
    if kind == 0:
        return f"/resource_providers/{provider}/{chance.choice(_PARTS)}"
    if kind == 1:
        return f"/resource_providers?in_tree={provider}"
    if kind == 2:
        return f"/usages?project_id={chance.choice(['benchmark', 'migration', 'nobody'])}"
    amounts = f"VCPU:{chance.choice([1, 4, 90])},MEMORY_MB:{chance.choice([512, 40000, 90000])}"
    if kind == 3:
        trait = chance.choice(["CUSTOM_GOLD", "!CUSTOM_GOLD", "HW_CPU_X86_AVX", "!COMPUTE_NODE"])
        return f"/resource_providers?resources={amounts}&required={trait}&member_of={_aggregate(chance)}"
    group = chance.choice(["", "1"])
    where = chance.choice([f"&in_tree{group}={provider}", f"&member_of{group}={_aggregate(chance)}"])
    return f"/allocation_candidates?resources{group}={amounts}{where}"


def _aggregate(chance: random.Random) -> str:
    return data.identifier(f"rack-{chance.randrange(3)}")


def _sorted(value: Any) -> Any:
    """The answer with its lists in one order; that of the rows of a table is nobody's promise."""
    if isinstance(value, dict):
        return {key: _sorted(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True))
    return value


if __name__ == "__main__":
    sys.exit(main())
