"""Pods on a cluster of many nodes of 128 CPUs.

python -m benchmarks.pods                       5,000 nodes
python -m benchmarks.pods --nodes 500 --pods 500
python -m benchmarks.pods --clients 8           pods placed per second, too, by so many clients
python -m benchmarks.pods --more 50000          the memory of a worker that knows so many pods
python -m benchmarks.pods --nodes 500 --small 20000       the extender where nodes are full, nothing else

The cluster is filled through REST; the service is the real one on PostgreSQL, with one worker, or with two
where clients place pods at the same time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tqdm import tqdm

from benchmarks import bulk, servers
from benchmarks.accumulator import CPUS, topology
from benchmarks.goals import Figures, scaled
from benchmarks.measure import Throughput, Timing, many
from benchmarks.report import print_table
from benchmarks.wire import Wire
from tests.kubernetes import NUMA_POLICY, node_manifests, pod_manifest
from tests.server import RunningServer, database_url, running_service

_CLUSTER = "/ext/v1/clusters/large"
_ROUNDS = 100
_NODES_AT_ONCE, _PODS_AT_ONCE = 100, 500
# Medians of fewer differ by a tenth between runs.
_CALLS = 300
_OK, _CREATED = 200, 201
_VERBS = ("filter", "prioritize")
# Numbers of pods that come later than those that are counted from 0.
_TOGETHER, _MORE, _SMALL = 10**7, 2 * 10**7, 3 * 10**7
_FIRST = "the first pod, on a process that knows no node"
_KNOWN = "place: LSR, 4 CPUs, whole cores"
_NEW = "place: pods of new sizes"
_PREVIEW = "preview of all nodes, ten best shown"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pods", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=2000, help="placed before anything is measured")
    parser.add_argument("--clients", type=int, default=0, help="how many place pods at the same time at last")
    parser.add_argument("--seconds", type=float, default=20, help="how long they do")
    parser.add_argument("--more", type=int, default=0, help="pods that come at last, before memory is told")
    parser.add_argument("--small", type=int, default=0, help="pods of half a CPU that fill the nodes")
    given = parser.parse_args()
    title = f"{given.nodes} nodes of {CPUS} CPUs"
    if given.small:
        with database_url("postgresql") as connection:
            rows = [[name, *timing.figures()] for name, timing in _full(connection, given.nodes, given.small)]
        columns = ["a pod is placed, then", "p50", "p99", "longest"]
        print_table(f"{title}, {given.small} small pods", columns, rows)
        return
    with database_url("postgresql") as connection:
        rows = [
            [name, *timing.figures(), ", ".join(map(str, sorted(answers)))]
            for name, timing, answers in _cluster(connection, given.nodes, given.pods)
        ]
        print_table(title, ["work", "p50", "p99", "longest", "answers"], rows)
        if given.clients:
            placed = _together(connection, given.clients, given.seconds)
            rows = [[str(given.clients), f"{placed.per_second:.0f}", str(placed.failed)]]
            print_table(f"{title}, 2 workers", ["clients", "pods per second", "refused"], rows)
        took, held = _filled(connection, given.more)
        rows = [[str(given.more), f"{took:.0f} s", f"{held:.0f} MiB"]]
        print_table(title, ["pods more, 500 in a call", "time", "resident memory of the worker then"], rows)


def figures(scale: float) -> Figures:
    """What pods cost on 5,000 nodes."""
    with database_url("postgresql") as connection:
        measured = _cluster(connection, scaled(5000, scale), scaled(500, scale))
        if refused := [each for each in measured if each.answers - {_OK, _CREATED}]:
            raise RuntimeError(f"{refused[0].name}: {refused[0].answers}")
        found = {name: timing.percentile(0.5) for name, timing, _ in measured}
        placed = _together(connection, clients=8, seconds=10 * scale)
    return {
        "known": f"{found[_KNOWN]:.1f} ms",
        "new": f"{found[_NEW]:.1f} ms",
        "preview": f"{found[_PREVIEW]:.1f} ms",
        "first": f"{found[_FIRST] / 1000:.2f} s",
        "together": f"{placed.per_second:.0f}",
    }


def memory(scale: float) -> Figures:
    """What a worker takes that knows 5,000 nodes and 50,000 pods."""
    with database_url("postgresql") as connection:
        _bring_in_nodes(connection, scaled(5000, scale))
        took, held = _filled(connection, scaled(50_000, scale))
    return {"memory": f"{held:.0f} MiB resident; the pods came in {took:.0f} s"}


class Measured(NamedTuple):
    """What was measured, and the statuses that came."""

    name: str
    timing: Timing
    answers: set[int]


def _cluster(connection: str, nodes: int, pods: int) -> list[Measured]:
    """Fill an empty database, and do everything there once, with one client."""
    _bring_in_nodes(connection, nodes)
    with _ready_service(connection, workers=1) as server:
        chance = random.Random(2)
        found = [_timed(server.url, Task(_FIRST, [_pod(chance, 0)]))]
        fill_pods(server.url, chance, range(1, pods))
        found += [_timed(server.url, task) for task in tasks(chance, nodes, pods)]
    return found


@contextmanager
def _ready_service(connection: str, workers: int) -> Iterator[RunningServer]:
    """A service whose workers know all providers."""
    with running_service(connection, workers=workers) as server:
        servers.await_ready(server.url)
        yield server


def _bring_in_nodes(connection: str, nodes: int) -> None:
    """Fill an empty database through a process that ends then."""
    with running_service(connection, workers=1) as server:
        fill_nodes(server.url, nodes)
    bulk.tidy(connection)


def fill_nodes(url: str, count: int) -> None:
    """Make the cluster with so many nodes of 128 CPUs on four NUMA nodes."""
    Wire(url).must("PUT", _CLUSTER, {})
    rows = tuple((cpu.cpu, cpu.core, cpu.numa, cpu.socket) for cpu in topology(4, 2).logical_cpus)
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


def fill_pods(url: str, chance: random.Random, numbers: range, **shape: str) -> None:
    """Place a pod for each number, many in a call; all of that shape, if one is given."""
    wire = Wire(url)
    for start in tqdm(range(0, len(numbers), _PODS_AT_ONCE), desc="pods", unit="batch"):
        items = [
            _in_default(_pod(chance, number, **shape)) for number in numbers[start : start + _PODS_AT_ONCE]
        ]
        body = {"kind": "List", "items": items}
        outcomes = json.loads(wire.must("POST", f"{_CLUSTER}/pods", body))["pods"]
        if refused := [each for each in outcomes if each["status"] != _CREATED]:
            raise RuntimeError(f"pods were refused: {refused[0]}")


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
        _KNOWN: {"qos": "LSR", "cpu": "4"},
        "place: LSE, 8 CPUs, spread": {"qos": "LSE", "cpu": "8", "bind": "SpreadByPCPUs"},
        "place: LS, 500m": {"qos": "LS", "cpu": "500m"},
    }
    numbers = itertools.count(pods)
    for name, shape in shapes.items():
        yield Task(name, [_pod(chance, next(numbers), **shape) for _ in range(_ROUNDS)])
    yield Task(
        _NEW,
        [_pod(chance, next(numbers), qos="LSR", cpu=str(2 + n % 60), memory=f"{n + 1}Mi") for n in range(60)],
    )
    preview = {"pod": _pod(chance, 0, qos="LSR", cpu="6"), "limit": 10}
    yield Task(_PREVIEW, [preview] * _CALLS, "POST", "pods/preview")
    asked = _asked(chance, nodes)
    for verb in _VERBS:
        yield Task(f"extender: {verb}, all nodes by name", [asked] * _CALLS, "POST", f"extender/{verb}")


def _asked(chance: random.Random, nodes: int) -> dict[str, Any]:
    """What kube-scheduler asks about a pod and all nodes."""
    waiting = _in_default(_pod(chance, 0, qos="LSR", cpu="6"))
    waiting["metadata"]["uid"] = str(uuid.UUID(int=chance.getrandbits(128)))
    return {"Pod": waiting, "NodeNames": [f"node-{number}" for number in range(nodes)]}


def _full(connection: str, nodes: int, small: int) -> Iterator[tuple[str, Timing]]:
    """What the extender takes on nodes with so many small pods, one of which came just before."""
    shape = {"qos": "LS", "cpu": "500m"}
    _bring_in_nodes(connection, nodes)
    with _ready_service(connection, workers=1) as server:
        chance, wire = random.Random(5), Wire(server.url)
        fill_pods(server.url, chance, range(_SMALL, _SMALL + small), **shape)
        numbers, asked = itertools.count(_SMALL + small), _asked(chance, nodes)
        for verb in _VERBS:
            timing = Timing()
            for number in itertools.islice(numbers, _ROUNDS):
                wire.must("PUT", f"{_CLUSTER}/pods/default/p-{number}", _pod(chance, number, **shape))
                took, status, _ = wire.timed("POST", f"{_CLUSTER}/extender/{verb}", asked)
                if status != _OK:
                    raise RuntimeError(f"{verb}: {status}")
                timing.milliseconds.append(took)
            yield f"extender: {verb}", timing


def _pod(
    chance: random.Random, number: int, qos: str = "", cpu: str = "", bind: str = "", memory: str = "1Gi"
) -> dict[str, Any]:
    chosen = qos or chance.choice(["LSE", "LSR", "LS"])
    amount = cpu or (chance.choice(["2", "4", "8", "16"]) if chosen != "LS" else "1500m")
    spec = {"preferredCPUBindPolicy": bind} if bind else None
    manifest = pod_manifest(amount, memory, qos=chosen, spec=spec)
    manifest["metadata"]["name"] = f"p-{number}"
    return manifest


def _in_default(manifest: dict[str, Any]) -> dict[str, Any]:
    """The pod with its namespace, as manifests have it that come without a path."""
    manifest["metadata"]["namespace"] = "default"
    return manifest


def _timed(url: str, task: Task) -> Measured:
    wire, timing, answers = Wire(url), Timing(), set()
    for body in task.bodies:
        took, status = task.call(wire, body)
        timing.milliseconds.append(took)
        answers.add(status)
    return Measured(task.name, timing, answers)


def _together(connection: str, clients: int, seconds: float) -> Throughput:
    """How many pods several clients place per second on two workers."""
    numbers = itertools.count(_TOGETHER)

    def place(wire: Wire, chance: random.Random) -> bool:
        number = next(numbers)
        _, status, _ = wire.timed("PUT", f"{_CLUSTER}/pods/default/p-{number}", _pod(chance, number))
        return status == _CREATED

    with _ready_service(connection, workers=2) as server:
        # The workers have to read all nodes first.
        many(server.url, clients, seconds / 2, place)
        return many(server.url, clients, seconds, place)


def _filled(connection: str, count: int) -> tuple[float, float]:
    """Place so many pods more; seconds, and megabytes of a worker that knew the others before."""
    with running_service(connection, workers=1) as server:
        Wire(server.url).must(
            "POST", f"{_CLUSTER}/pods/preview", {"pod": _pod(random.Random(4), 0), "limit": 1}
        )
        started = time.perf_counter()
        fill_pods(server.url, random.Random(3), range(_MORE, _MORE + count))
        took = time.perf_counter() - started
        return took, servers.Measured("ours", server.url, server.process.pid).largest_worker_megabytes()


if __name__ == "__main__":
    main()
