"""Decisions about pods: the accumulator on 128 CPUs, and pods on a cluster of many such nodes.

python -m benchmarks.pods                       5,000 nodes
python -m benchmarks.pods --nodes 500 --pods 500
python -m benchmarks.pods --clients 8           pods placed per second, too, by so many clients

The cluster is filled through REST; the service is the real one on PostgreSQL, with one worker, or with two
where clients place pods at the same time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import sqlalchemy as sa
from tqdm import tqdm

from benchmarks.measure import Timing, many
from benchmarks.report import print_table
from benchmarks.servers import Measured
from benchmarks.wire import Wire
from placement.numa.accumulator.accumulator import take_cpus
from placement.numa.cpus import CpuTopology, LogicalCpu, layout_of
from placement.numa.cpuset import mask_of
from placement.numa.demand import BindPolicy, CpuDemand, Distribution, ExclusiveLevel, PickRules
from placement.numa.ledger import CpuUse
from placement.numa.refusal import Refused
from tests.kubernetes import NUMA_POLICY, node_manifests, pod_manifest
from tests.server import database_url, running_service

_CPUS = 128
_CLUSTER = "/ext/v1/clusters/large"
_ROUNDS = 100
_NODES_AT_ONCE = 100
_CREATED = 201
_WARM_UP_SECONDS = 10


def main() -> None:
    """Measure both and print two tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pods", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=2000, help="placed before anything is measured")
    parser.add_argument("--clients", type=int, default=0, help="how many place pods at the same time at last")
    parser.add_argument("--seconds", type=float, default=20, help="how long they do")
    given = parser.parse_args()
    print_table("accumulator, 128 CPUs", ["host", "runs", "p50", "p99", "longest"], list(_accumulator()))
    title = f"{given.nodes} nodes of {_CPUS} CPUs"
    with database_url("postgresql") as connection:
        with running_service(connection, workers=1) as server:
            rows = list(_cluster(connection, server.url, given.nodes, given.pods))
            held = Measured("ours", server.url, server.process.pid).largest_worker_megabytes()
        print_table(title, ["work", "p50", "p99", "longest", "answers"], rows)
        print(f"memory of the worker: {held:.0f} MiB")
        if given.clients:
            with running_service(connection, workers=2) as server:
                _together(server.url, given.clients, given.seconds)


# -- the accumulator ----------------------------------------------------------------------------------


def _topology(numa_nodes: int, threads: int) -> CpuTopology:
    """Two sockets; siblings are as far apart as the host has cores."""
    cores = _CPUS // threads
    return CpuTopology(
        tuple(
            LogicalCpu(
                core + thread * cores,
                core,
                core * numa_nodes // cores,
                core * numa_nodes // cores // (numa_nodes // 2),
            )
            for core in range(cores)
            for thread in range(threads)
        )
    )


def _accumulator() -> Iterator[list[str]]:
    """Every policy, level and strategy on hosts filled to various degrees, for pods of all sizes."""
    for numa_nodes, threads in ((2, 2), (4, 2), (8, 2), (2, 1)):
        layout = layout_of(_topology(numa_nodes, threads))
        chance, timing = random.Random(1), Timing()
        for used, bind, level, fullest, distribution in itertools.product(
            (0, 32, 64, 96), BindPolicy, ExclusiveLevel, (True, False), Distribution
        ):
            held = mask_of(chance.sample(range(_CPUS), used))
            use = CpuUse().plus(held, chance.choice(list(ExclusiveLevel)))
            rules = PickRules(fullest_first=fullest, distribution=distribution, downgrades=True)
            for need in (1, 2, 8, 25, 64, 70):
                demand = CpuDemand(need, bind, False, level)
                spent = []
                # The quickest of three: the others only tell who else wanted the processor.
                for _ in range(3):
                    started = time.perf_counter()
                    with suppress(Refused):
                        take_cpus(layout, use, layout.cpus & ~held, demand, rules)
                    spent.append((time.perf_counter() - started) * 1000)
                timing.milliseconds.append(min(spent))
        name = f"{numa_nodes} NUMA nodes, {threads} threads per core"
        yield [name, str(len(timing.milliseconds)), *_figures(timing)]


# -- a cluster ----------------------------------------------------------------------------------------


def _cluster(connection: str, url: str, nodes: int, pods: int) -> Iterator[list[str]]:
    fill_nodes(url, nodes)
    _settle(connection)
    chance = random.Random(2)
    yield _timed(url, Task("the first pod, on a process that knows no node", [_pod(chance, 0)]))
    fill_pods(url, chance, pods)
    for task in tasks(chance, nodes, pods):
        yield _timed(url, task)


def _settle(connection: str) -> None:
    """Have the database tidy up after so many new rows, as autovacuum does within a minute or so."""
    engine = sa.create_engine(connection, isolation_level="AUTOCOMMIT")
    with engine.connect() as session:
        session.exec_driver_sql("VACUUM ANALYZE")
    engine.dispose()


def fill_nodes(url: str, count: int) -> None:
    """Make the cluster with so many nodes of 128 CPUs on four NUMA nodes."""
    Wire(url).must("PUT", _CLUSTER, {})
    rows = tuple((cpu.cpu, cpu.core, cpu.numa, cpu.socket) for cpu in _topology(4, 2).rows)
    zones = {numa: {"cpu": "32", "memory": "128Gi"} for numa in range(4)}

    def manifests(number: int) -> dict[str, Any]:
        labels = {NUMA_POLICY: "SingleNUMANode"} if number % 5 == 0 else {}
        return node_manifests(f"node-{number}", rows=rows, zones=zones, labels=labels, memory="512Gi")

    wire = Wire(url)
    for start in tqdm(range(0, count, _NODES_AT_ONCE), desc="nodes", unit="batch"):
        some = map(manifests, range(start, min(count, start + _NODES_AT_ONCE)))
        body = {"kind": "List", "items": [item for each in some for item in each.values()]}
        outcomes = json.loads(wire.must("POST", f"{_CLUSTER}/nodes", body))["nodes"]
        if any(each["status"] != _CREATED for each in outcomes):
            raise RuntimeError(f"nodes were refused: {outcomes[0]}")


def fill_pods(url: str, chance: random.Random, count: int) -> None:
    """Place the pods 1 to `count` - 1."""
    _all(url, "pods", [(f"pods/default/p-{n}", _pod(chance, n)) for n in range(1, count)])


class Task(NamedTuple):
    """Something to ask for with each of the bodies; pods have paths of their own."""

    name: str
    bodies: list[dict[str, Any]]
    method: str = "PUT"
    path: str = ""

    def call(self, wire: Wire, body: dict[str, Any]) -> tuple[float, int]:
        """Milliseconds and status."""
        where = self.path or f"pods/default/{body['metadata']['name']}"
        took, status, _ = wire.timed(self.method, f"{_CLUSTER}/{where}", body)
        return took, status


def tasks(chance: random.Random, nodes: int, pods: int) -> Iterator[Task]:
    """What is asked of a cluster on which there are so many pods."""
    shapes = {
        "LSR, 4 CPUs, whole cores": {"qos": "LSR", "cpu": "4"},
        "LSE, 8 CPUs, spread": {"qos": "LSE", "cpu": "8", "bind": "SpreadByPCPUs"},
        "LS, 500m": {"qos": "LS", "cpu": "500m"},
    }
    numbers = itertools.count(pods)
    for name, shape in shapes.items():
        yield Task(f"place: {name}", [_pod(chance, next(numbers), **shape) for _ in range(_ROUNDS)])
    yield Task(
        "place: pods of sizes that nobody asked for before",
        [_pod(chance, next(numbers), qos="LSR", cpu=str(2 + n % 60), memory=f"{n + 1}Mi") for n in range(60)],
    )
    preview = {"pod": _pod(chance, 0, qos="LSR", cpu="6"), "limit": 10}
    yield Task("preview of all nodes, ten best shown", [preview] * 20, "POST", "pods/preview")
    waiting = _pod(chance, 0, qos="LSR", cpu="6")
    waiting["metadata"] |= {"namespace": "default", "uid": str(uuid.UUID(int=chance.getrandbits(128)))}
    asked = {"Pod": waiting, "NodeNames": [f"node-{number}" for number in range(nodes)]}
    for verb in ("filter", "prioritize"):
        yield Task(f"extender: {verb}, all nodes by name", [asked] * 20, "POST", f"extender/{verb}")


def _pod(
    chance: random.Random, number: int, qos: str = "", cpu: str = "", bind: str = "", memory: str = "1Gi"
) -> dict[str, Any]:
    chosen = qos or chance.choice(["LSE", "LSR", "LS"])
    amount = cpu or (chance.choice(["2", "4", "8", "16"]) if chosen != "LS" else "1500m")
    spec = {"preferredCPUBindPolicy": bind} if bind else None
    manifest = pod_manifest(amount, memory, qos=chosen, spec=spec)
    manifest["metadata"]["name"] = f"p-{number}"
    return manifest


def _all(url: str, title: str, work: list[tuple[str, dict[str, Any]]]) -> None:
    bar = tqdm(total=len(work), desc=title, unit="")

    def run(mine: list[tuple[str, dict[str, Any]]]) -> None:
        wire = Wire(url)
        for path, body in mine:
            wire.must("PUT", f"{_CLUSTER}/{path}", body)
            bar.update()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, [work[n::4] for n in range(4)]))
    bar.close()


def _timed(url: str, task: Task) -> list[str]:
    wire, timing, answers = Wire(url), Timing(), set()
    for body in task.bodies:
        took, status = task.call(wire, body)
        timing.milliseconds.append(took)
        answers.add(status)
    return [task.name, *_figures(timing), ", ".join(map(str, sorted(answers)))]


def _together(url: str, clients: int, seconds: float) -> None:
    """Print how many pods several clients place per second."""
    numbers = itertools.count(10**7)

    def place(wire: Wire, chance: random.Random) -> bool:
        number = next(numbers)
        _, status, _ = wire.timed("PUT", f"{_CLUSTER}/pods/default/p-{number}", _pod(chance, number))
        return status == _CREATED

    # The workers have to read all nodes first.
    many(url, clients, _WARM_UP_SECONDS, place)
    placed = many(url, clients, seconds, place)
    load = os.getloadavg()[0]
    print(
        f"{clients} clients, 2 workers: {placed.per_second:.0f} pods per second, "
        f"{placed.failed} refused, load {load:.1f}"
    )


def _figures(timing: Timing) -> list[str]:
    shares = (timing.percentile(0.5), timing.percentile(0.99), max(timing.milliseconds))
    return [f"{milliseconds:.2f} ms" for milliseconds in shares]


if __name__ == "__main__":
    main()
