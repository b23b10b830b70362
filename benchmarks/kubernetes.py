"""The extender in a real Kubernetes: what its calls take, and how many pods a kube-scheduler places with it.

PLACEMENT_TEST_KUBERNETES=DIRECTORY python -m benchmarks.kubernetes                500 nodes
PLACEMENT_TEST_KUBERNETES=DIRECTORY python -m benchmarks.kubernetes --nodes 50 --pods 100

The directory has etcd, kube-apiserver, kube-scheduler and kubectl. Nodes have 64 CPUs and no kubelet: pods
are bound and never run. The service has two workers on PostgreSQL and is kept up to date by
`placement sync kubernetes`. kube-scheduler is measured twice with the same pods, which wait when it starts:
first alone, without the synchronization, then with both.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.goals import Figures, scaled
from benchmarks.measure import Timing
from benchmarks.report import LeftOut, print_table
from benchmarks.wire import Wire
from tests.faults.around_kubernetes import CLUSTER, TOKEN, Lab, lab, together
from tests.real_kubernetes import PROGRAMS, VARIABLE, programs, running_control_plane
from tests.server import database_url

ROWS = tuple((cpu, cpu // 2, cpu // 32, cpu // 32) for cpu in range(64))
ZONES = {numa: {"cpu": "32", "memory": "128Gi"} for numa in range(2)}
_CALLS = 50
_STARTS_WITHIN_SECONDS = 60
# A pod that gets a node leaves the list of those without one.
_NO_MORE = b'{"type":"DELETED"'
_FEWEST = 10
_WAITING = "/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3D"
_PODS = "/api/v1/namespaces/default/pods?gracePeriodSeconds=0"


def main() -> None:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kubernetes", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=1000, help="that wait when kube-scheduler starts")
    parser.add_argument("--seconds", type=int, default=30, help="how long it is watched at most")
    given = parser.parse_args()
    try:
        rates, calls = _measured(given.nodes, given.pods, given.seconds)
    except LeftOut as reason:
        parser.error(str(reason))
    rows = [[verb, *timing.figures()] for verb, timing in calls.items()]
    print_table(f"extender, {given.nodes} nodes by name", ["call", "p50", "p99", "longest"], rows)
    rows = [[name, f"{rate:.0f}"] for name, rate in rates.items()]
    print_table(f"kube-scheduler, {given.nodes} nodes", ["extenders", "pods per second"], rows)


def figures(scale: float) -> Figures:
    """What the calls take, and the rate of kube-scheduler with the extender against the one without."""
    rates, calls = _measured(scaled(500, scale), scaled(1000, scale), 30)
    medians = " / ".join(f"{timing.percentile(0.5):.1f}" for timing in calls.values())
    alone, asking = rates.values()
    return {"extender": f"{medians} ms", "scheduler": f"{asking / alone:.2f}, {asking:.0f} of {alone:.0f}"}


def _measured(nodes: int, pods: int, seconds: int) -> tuple[dict[str, float], dict[str, Timing]]:
    """Pods per second without the extender and with it; what the calls of the extender take."""
    with _around() as around:
        names = [f"node-{number:04}" for number in range(nodes)]
        add = partial(around.add_node, rows=ROWS, zones=ZONES, memory="256Gi")
        together([partial(add, name) for name in names])
        rates = {"none": _rate(around, [], pods, seconds)}
        around.kubernetes.call("DELETE", _PODS)
        with around.synchronized(nodes):
            calls = _calls(around, names)
            rates["placement"] = _rate(around, [around.extender()], pods, seconds)
    return rates, calls


@contextmanager
def _around() -> Iterator[Lab]:
    source = programs()
    if source is None:
        raise LeftOut(f"{VARIABLE} names no directory with {', '.join(PROGRAMS)}")
    with (
        TemporaryDirectory() as folder,
        running_control_plane(source, Path(folder)) as control_plane,
        database_url("postgresql") as connection,
        lab(control_plane, connection, Path(folder)) as around,
    ):
        yield around


def _calls(around: Lab, names: list[str]) -> dict[str, Timing]:
    """Ask and bind as kube-scheduler does, pod by pod on one connection."""
    timings = {verb: Timing() for verb in ("filter", "prioritize", "bind")}
    wire, hosts = Wire(around.url, token=TOKEN), itertools.cycle(names)
    for number in range(_CALLS):
        pod = around.create_pod(f"asked-{number}")
        who = pod["metadata"]
        binding = {
            "PodName": who["name"],
            "PodNamespace": "default",
            "PodUID": who["uid"],
            "Node": next(hosts),
        }
        asked = {"Pod": pod, "NodeNames": names}
        for verb, body in (("filter", asked), ("prioritize", asked), ("bind", binding)):
            path = f"/ext/v1/clusters/{CLUSTER}/extender/{verb}"
            took, status, content = wire.timed("POST", path, body)
            if status != 200 or (verb != "prioritize" and b'"Error":""' not in content.replace(b" ", b"")):
                raise RuntimeError(f"{verb}: {status} {content[:300]!r}")
            timings[verb].milliseconds.append(took)
    return timings


def _rate(around: Lab, extenders: list[dict[str, Any]], pods: int, seconds: int) -> float:
    """How many pods per second a kube-scheduler binds that starts when so many wait."""
    together([partial(around.create_pod, f"waits-{number}") for number in range(pods)])
    # Lists of all that wait would cost the API server more than binding some of them.
    with (
        around.kubernetes.watch(_WAITING, _STARTS_WITHIN_SECONDS + seconds) as events,
        around.kubernetes.scheduler(*extenders),
    ):
        bound = times_of(events, pods, seconds)
    return (len(bound) - 1) / (bound[-1] - bound[0])


def times_of(events: Iterable[bytes], pods: int, seconds: float) -> list[float]:
    """When pods ceased to wait: all of them, or those of so many seconds after the first."""
    times: list[float] = []
    for event in events:
        if event.startswith(_NO_MORE):
            times.append(time.perf_counter())
            if len(times) == pods or times[-1] - times[0] > seconds:
                break
    if len(times) < _FEWEST:
        raise RuntimeError(f"only {len(times)} of {pods} pods were bound")
    return times


if __name__ == "__main__":
    main()
