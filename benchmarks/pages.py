"""What pages cost: the numbers of the map, drawing and panning in a browser, and pages beside the API.

python -m benchmarks.pages                        flat:10000 and flat:100000, and the demonstration
python -m benchmarks.pages --hosts 1000           one size

The data goes straight into PostgreSQL; the service is the real one with one worker, the browser is Chromium
without a graphics card.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

from benchmarks import bulk, data
from benchmarks.report import print_table
from benchmarks.wire import Wire
from tests.browser import chromium, page_of, running_browser
from tests.server import RunningServer, database_url, running_service

_ROUNDS = 30
_PAN_SECONDS = 3
_MAP = "/ui/map/data?by=use&class=VCPU"
_QUERY = "resources=PCPU:2&cluster=edge"
# A page, and the calls whose answers it shows.
_PAIRS = {
    "host": ("/ui/hosts/{host}", ["/ext/v1/clusters/edge/nodes/edge-01"]),
    "why not, a query": (
        "/ui/why?kind=query&query=resources%3DPCPU:2&cluster=edge&limit=20",
        [f"/ext/v1/allocation_candidates?{_QUERY}&limit=20&explain=1"],
    ),
    "consumers": ("/ui/consumers", ["/ext/v1/allocations?limit=50"]),
    "changes": ("/ui/changes", ["/ext/v1/audit?limit=50"]),
    "pods": ("/ui/pods?cluster=edge", ["/ext/v1/clusters/edge/pods?limit=50"]),
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
    parser.add_argument("--hosts", nargs="+", type=int, default=[10_000, 100_000])
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
    nodes = json.loads(wire.must("GET", "/ext/v1/clusters/edge/nodes"))["nodes"]
    host = next(each["resource_provider"] for each in nodes if each["name"] == "edge-01")
    rows = []
    for name, (page, calls) in _PAIRS.items():
        own = _median(wire, page.format(host=host))
        behind = sum(_median(wire, call) for call in calls)
        rows.append([name, f"{own:.1f} ms", f"{behind:.1f} ms", f"{own / behind:.2f}"])
    print_table("demonstration", ["page", "page, median", "call behind it, median", "ratio"], rows)


def _median(wire: Wire, path: str) -> float:
    wire.must("GET", path)
    return statistics.median(wire.timed("GET", path)[0] for _ in range(_ROUNDS))


if __name__ == "__main__":
    main()
