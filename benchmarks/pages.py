"""What pages cost: the numbers of the map, drawing and panning in a browser, and pages beside the API.

python -m benchmarks.pages                        flat:10000 and flat:100000, and the demonstration
python -m benchmarks.pages --hosts 1000           one size
python -m benchmarks.pages --hosts                only the demonstration: each page beside the calls it shows

The data goes straight into PostgreSQL; the service is the real one with one worker, the browser is Chromium
without a graphics card.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks import bulk, data
from benchmarks.processor_time import milliseconds_of
from benchmarks.report import print_table
from benchmarks.wire import Wire
from tests.browser import chromium, page_of, running_browser
from tests.kubernetes import pod_manifest
from tests.server import RunningServer, database_url, running_service

_ROUNDS = 60
_PAN_SECONDS = 3
_MAP = "/ui/map/data?by=use&class=VCPU"
_QUERY = "resources=PCPU:2&cluster=edge"
_HOST_LIST = "/ext/v1/resource_providers?include=inventories,usages"
# A page, and the calls whose answers it shows; the first has the most of them.
_PAIRS = {
    "host with NUMA": (
        "/ui/hosts/{host}",
        ["/ext/v1/clusters/edge/nodes/edge-01", "/resource_providers/{host}/allocations"],
    ),
    "host of a cloud": (
        "/ui/hosts/{tree}",
        [f"{_HOST_LIST},traits&limit=37", "/resource_providers/{tree}/allocations"],
    ),
    "history of a host": ("/ui/changes?target={host}", ["/ext/v1/audit?target={host}&limit=50"]),
    "why not, a query": (
        "/ui/why?kind=query&query=resources%3DPCPU:2&cluster=edge&limit=20",
        [
            f"/ext/v1/allocation_candidates?{_QUERY}&limit=20&explain=1",
            "/ext/v1/resource_providers?cluster=edge&limit=20",
        ],
    ),
    "how much fits": (
        "/ui/room?kind=query&query=resources%3DPCPU:4",
        ["/ext/v1/capacity?resources=PCPU:4&by=cluster,aggregate,host"],
    ),
    "consumers": ("/ui/consumers", ["/ext/v1/allocations?limit=50"]),
    "consumer": (
        "/ui/consumers/{consumer}",
        [
            "/ext/v1/clusters/edge/nodes/edge-01",
            "/resource_providers/{host}/allocations",
            "/ext/v1/allocations?consumer_uuid={consumer}",
            "/ext/v1/audit?consumer_uuid={consumer}&limit=20",
        ],
    ),
    "changes": ("/ui/changes", ["/ext/v1/audit?limit=50"]),
    "pods": ("/ui/pods?cluster=edge", ["/ext/v1/clusters/edge/pods?limit=50"]),
    "overview": ("/ui/", ["/metrics", "/ext/v1/clusters", "/ext/v1/audit?limit=8"]),
    "hosts by use": ("/ui/hosts?by=use&class=PCPU", [f"{_HOST_LIST}&limit=24"]),
}
# Pans to and fro, and tells how long each frame took.
_PAN = """(seconds) => new Promise((done) => {
  const map = document.querySelector("[data-map]").fleetMap, frames = [];
  map.zoom(2.5);
  let last = performance.now();
  const end = last + 1000 * seconds;
  const step = (now) => {
    frames.push(now - last); last = now;
    map.pan(Math.sin(now / 300) * 12, Math.cos(now / 300) * 8);
    map.drawNow();
    now < end ? requestAnimationFrame(step) : done(frames.slice(1));
  };
  requestAnimationFrame(step);
})"""
_DRAW = """() => { const map = document.querySelector("[data-map]").fleetMap, times = [];
  for (let round = 0; round < 40; round++) {
    const from = performance.now(); map.drawNow(); times.push(performance.now() - from);
  }
  return times; }"""


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--hosts", nargs="*", type=int, default=[10_000, 100_000])
    given = parser.parse_args()
    print(f"load of the machine (1, 5, 15 minutes) before: {os.getloadavg()}")
    for hosts in given.hosts:
        with database_url("postgresql") as connection:
            bulk.fill(connection, data.KINDS["flat"](hosts))
            with running_service(connection, workers=1) as server:
                _map(server, hosts)
    with (
        database_url("postgresql") as connection,
        running_service(connection, workers=1, arguments=["--demo"]) as server,
    ):
        _pages(server)
    print(f"load of the machine (1, 5, 15 minutes) after: {os.getloadavg()}")


def _map(server: RunningServer, hosts: int) -> None:
    wire = Wire(server.url)
    while wire.call("GET", "/ui/hosts?by=use&class=VCPU")[0] == 503:
        time.sleep(1)
    size = len(wire.must("GET", _MAP))
    rows = [
        ["numbers of all hosts", f"{size:,} bytes"],
        ["the same, median", f"{_median(wire, _MAP):.1f} ms"],
        ["page of the map", f"{_median(wire, '/ui/map?by=use&class=VCPU'):.1f} ms"],
        ["overview", f"{_median(wire, '/ui/'):.1f} ms"],
        ["first page of the table", f"{_median(wire, '/ui/hosts?by=use&class=VCPU'):.1f} ms"],
    ]
    print_table(f"flat:{hosts}", ["what", "figure"], [*rows, *_in_browser(server)])


def _in_browser(server: RunningServer) -> list[list[str]]:
    path = chromium()
    if path is None:
        return [["in a browser", "not measured: no Chromium"]]
    with (
        running_browser(path) as browser,
        page_of(browser, server.url, viewport={"width": 1280, "height": 800}) as (page, _),
    ):
        shown = []
        for _ in range(5):
            begin = time.monotonic()
            page.goto("/ui/map?by=use&class=VCPU")
            page.wait_for_selector("[data-drawn]")
            shown.append(1000 * (time.monotonic() - begin))
        frames: list[float] = page.evaluate(_PAN, _PAN_SECONDS)
        drawing: list[float] = page.evaluate(_DRAW)
    slow = sum(frame > 1000 / 55 for frame in frames)
    return [
        ["from asking for the page to all hosts drawn, median of 5", f"{statistics.median(shown):.0f} ms"],
        ["frames a second while panning", f"{1000 * len(frames) / sum(frames):.1f}"],
        ["longest frame", f"{max(frames):.1f} ms, {slow} of {len(frames)} above 18 ms"],
        ["script of one frame, median", f"{statistics.median(drawing):.2f} ms"],
    ]


def _pages(server: RunningServer) -> None:
    wire = Wire(server.url)
    places = _places(wire)
    wire.must("POST", "/ext/v1/clusters/edge/pods", {"kind": "List", "items": _pods()})
    rows = []
    for name, (page, calls) in _PAIRS.items():
        paths = [path.format(**places) for path in (page, *calls)]
        costs = _costs(server, wire, paths)
        own, first = costs[0], costs[1]
        behind = Cost(sum(each.cpu for each in costs[1:]), sum(each.wall for each in costs[1:]))
        rows.append(
            [
                name,
                f"{own.cpu:.1f}, {own.wall:.1f} ms",
                f"{behind.cpu:.1f}, {behind.wall:.1f} ms",
                f"{own.cpu / behind.cpu:.2f}, {own.wall / behind.wall:.2f}",
                f"{own.cpu / first.cpu:.2f}" if len(calls) > 1 else "",
                ", ".join(calls),
            ]
        )
    heads = ["page", "its CPU, wall", "calls: CPU, wall", "ratios", "CPU, first call", "calls"]
    print_table("demonstration, medians", heads, rows)


def _places(wire: Wire) -> dict[str, str]:
    """What the addresses of pages name: a node, a tree of a cloud, and a consumer on a node."""
    nodes = json.loads(wire.must("GET", "/ext/v1/clusters/edge/nodes"))["nodes"]
    host = next(each["resource_provider"] for each in nodes if each["name"] == "edge-01")
    listed = json.loads(wire.must("GET", "/ext/v1/resource_providers"))["resource_providers"]
    tree = next(each["uuid"] for each in listed if each["name"] == "cloud/compute-01")
    held = json.loads(wire.must("GET", f"/resource_providers/{host}/allocations"))["allocations"]
    return {"host": host, "tree": tree, "consumer": min(held)}


def _pods() -> list[dict[str, Any]]:
    """As many pods as a page of them has."""
    pods = []
    for number in range(50):
        pod = pod_manifest("100m", qos="LS")
        pod["metadata"].update(name=f"pod-{number}", uid=f"uid-{number}")
        pods.append(pod)
    return pods


class Cost(NamedTuple):
    """Of a request, in milliseconds: what the worker computed, and how long the answer took."""

    cpu: float
    wall: float


def _costs(server: RunningServer, wire: Wire, paths: Sequence[str]) -> list[Cost]:
    """The medians of each path; they take turns, so that what else the machine does concerns all alike."""
    found: dict[str, list[Cost]] = {path: [] for path in paths}
    for _ in range(_ROUNDS):
        for path, costs in found.items():
            before = milliseconds_of(server.workers())
            wall = wire.timed("GET", path)[0]
            costs.append(Cost(milliseconds_of(server.workers()) - before, wall))
    return [
        Cost(statistics.median(each.cpu for each in costs), statistics.median(each.wall for each in costs))
        for costs in found.values()
    ]


def _median(wire: Wire, path: str) -> float:
    wire.must("GET", path)
    return statistics.median(wire.timed("GET", path)[0] for _ in range(_ROUNDS))


if __name__ == "__main__":
    main()
