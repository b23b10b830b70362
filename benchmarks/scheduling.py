"""Pods a second and processor time a pod, by what schedules them in a real Kubernetes.

PLACEMENT_TEST_KUBERNETES=DIRECTORY python -m benchmarks.scheduling              200 nodes, 1,000 pods
PLACEMENT_TEST_KUBERNETES=DIRECTORY python -m benchmarks.scheduling --nodes 500 --rounds 3

The directory has etcd, kube-apiserver, kube-scheduler and kubectl. Nodes have 64 CPUs and no kubelet. All
pods wait when the scheduler starts. They are scheduled by `alone`, kube-scheduler without this service; by
`extender`, kube-scheduler that asks it; by `loop`, which is `placement schedule kubernetes` on nodes of its
own, or `shared`; and by `gate`, the loop with kube-scheduler behind it. The ways take turns, round by
round, on one Kubernetes. The service has two workers on PostgreSQL. Time is that of all processes together,
of etcd to the loop.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import sqlalchemy as sa

from benchmarks.kubernetes import ROWS, ZONES, times_of
from benchmarks.report import LeftOut, print_table
from benchmarks.servers import children_of
from placement.common.manifest import CHOOSE_GATE, LOOP_NODE
from tests.faults.around_kubernetes import Lab, lab, together
from tests.patience import eventually
from tests.real_kubernetes import PROGRAMS, VARIABLE, releases, running_control_plane
from tests.server import database_url

_WAITING = "/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3D"
_PODS = "/api/v1/namespaces/default/pods?gracePeriodSeconds=0"
_STARTS_WITHIN_SECONDS = 120
_TICK = os.sysconf("SC_CLK_TCK")
WAYS = ("alone", "extender", "loop", "shared", "gate")
_GATES = [{"name": CHOOSE_GATE}]


class Run(NamedTuple):
    """Pods that were bound in the seconds from the first to the last, and the processor time by process."""

    pods: int
    seconds: float
    milliseconds: dict[str, float]

    @property
    def rate(self) -> float:
        return (self.pods - 1) / self.seconds

    @property
    def each(self) -> float:
        """Return the milliseconds of all processes for a pod."""
        return sum(self.milliseconds.values()) / self.pods


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scheduling", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pods", type=int, default=1000, help="that wait when the scheduler starts")
    parser.add_argument("--cpus", type=int, default=2, help="of each pod, of class LSR")
    parser.add_argument("--seconds", type=int, default=120, help="how long a round is watched at most")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--version", help="folder of a release, such as v1.36 (default: the newest)")
    given = parser.parse_args()
    found: dict[str, list[Run]] = {way: [] for way in given.ways}
    try:
        with _around(given.version) as (around, connection):
            postmaster = _postmaster(connection)
            names = [f"node-{number:04}" for number in range(given.nodes)]
            add = partial(around.add_node, rows=ROWS, zones=ZONES, memory="256Gi")
            together([partial(add, name) for name in names])
            for _ in range(given.rounds):
                for way in given.ways:
                    run = _measured(around, way, names, given.pods, given.cpus, given.seconds, postmaster)
                    found[way].append(run)
                    load = os.getloadavg()[0]
                    print(
                        f"{way}: {run.pods} pods, {run.rate:.0f}/s, {run.each:.1f} ms, load {load:.1f}",
                        flush=True,
                    )
    except LeftOut as reason:
        parser.error(str(reason))
    processes = sorted({name for runs in found.values() for run in runs for name in run.milliseconds})
    rows = []
    for way, runs in found.items():
        middle = sorted(runs, key=lambda run: run.rate)[len(runs) // 2]
        each = [f"{middle.milliseconds.get(name, 0) / middle.pods:.1f}" for name in processes]
        rate = statistics.median(run.rate for run in runs)
        rows.append([way, str(middle.pods), f"{rate:.0f}", f"{middle.each:.1f}", *each])
    title = f"{given.nodes} nodes, {given.pods} pods of {given.cpus} CPUs, milliseconds a pod"
    print_table(title, ["way", "pods", "a second", "all", *processes], rows)


@contextmanager
def _around(version: str | None) -> Iterator[tuple[Lab, str]]:
    folders = [each for each in releases() if version in (None, each.name)]
    if not folders:
        raise LeftOut(f"{VARIABLE} names no directory with {', '.join(PROGRAMS)} of that version")
    with (
        TemporaryDirectory() as folder,
        running_control_plane(folders[-1], Path(folder)) as control_plane,
        database_url("postgresql") as connection,
        lab(control_plane, connection, Path(folder)) as around,
    ):
        yield around, connection


def _measured(
    around: Lab, way: str, names: list[str], pods: int, cpus: int, seconds: int, postmaster: int
) -> Run:
    """Let so many pods wait, then start their scheduler."""
    kubernetes = around.kubernetes
    around.service("PUT", "", {"loopNodes": "marked" if way == "loop" else "all"})
    marked = way == "loop"
    together([partial(_mark, around, name, marked=marked) for name in names])
    options: dict[str, Any] = {"schedulerName": "placement"} if way in ("loop", "shared") else {}
    if way == "gate":
        options["schedulingGates"] = _GATES
    together([partial(around.create_pod, f"waits-{n}", cpus, **options) for n in range(pods)])
    with ExitStack() as stack:
        if way == "extender":
            stack.enter_context(around.synchronized(len(names)))
        events = stack.enter_context(kubernetes.watch(_WAITING, _STARTS_WITHIN_SECONDS + seconds))
        if way == "gate":
            stack.enter_context(kubernetes.scheduler())
        before = _processor_time(around, postmaster)
        if way in ("loop", "shared", "gate"):
            stack.enter_context(around.scheduled(len(names)))
        else:
            stack.enter_context(kubernetes.scheduler(*([around.extender()] if way == "extender" else [])))
        bound = times_of(events, pods, seconds)
        if way != "alone":
            # Reports of what was bound are part of the work.
            eventually(set(), lambda: around.bound() - around.claims().keys())
        after = _processor_time(around, postmaster)
        taken = {name: after[name] - before.get(name, 0.0) for name in after}
    kubernetes.call("DELETE", _PODS)
    with around.synchronized(len(names)):
        eventually({}, around.claims)
    return Run(len(bound), bound[-1] - bound[0], taken)


def _mark(around: Lab, name: str, *, marked: bool) -> None:
    """Make a node the loop's own, or give it back."""
    patch = {
        "metadata": {"labels": {LOOP_NODE: "true" if marked else None}},
        "spec": {"taints": [{"key": LOOP_NODE, "effect": "NoSchedule"}] if marked else None},
    }
    around.kubernetes.call("PATCH", f"/api/v1/nodes/{name}", patch, "application/merge-patch+json")


def _processor_time(around: Lab, postmaster: int) -> dict[str, float]:
    """Return the milliseconds that each process has computed so far, with its children."""
    found = {"postgresql": sum(map(_milliseconds, _family(postmaster)))}
    for pid in children_of(os.getpid()):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        program = Path(words[0]).name
        if pid == around.server.process.pid:
            name = "service"
        elif program in ("etcd", "kube-apiserver", "kube-scheduler"):
            name = program
        elif "kubernetes" in words:
            name = "loop" if "schedule" in words else "sync"
        else:
            continue
        found[name] = found.get(name, 0.0) + sum(map(_milliseconds, _family(pid)))
    return found


def _postmaster(connection: str) -> int:
    """Return the first process of a PostgreSQL on this machine."""
    with sa.create_engine(connection).connect() as session:
        directory = session.scalar(sa.text("SHOW data_directory"))
    return int(Path(str(directory), "postmaster.pid").read_text().split()[0])


def _family(pid: int) -> list[int]:
    return [pid, *(each for child in children_of(pid) for each in _family(child))]


def _milliseconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    # With the time of children that have ended.
    return sum(map(int, fields[11:15])) * 1000 / _TICK


if __name__ == "__main__":
    main()
