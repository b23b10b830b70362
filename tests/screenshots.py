"""Pictures of pages: `make screenshots`, or `python -m tests.screenshots`.

build/screenshots gets every page, light and dark, wide and narrow: of the demonstration, where there is no
sign-in, of a cloud of 300 hosts, of a cluster of 200 nodes, and for a signed-in administrator of a cloud of
512 hosts in 14 aggregates, of 5000 hosts, and of nothing. docs/pictures gets the pictures of the documents;
they are of the demonstration, with six hundred hosts more for the map.
"""

from __future__ import annotations

import random
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from benchmarks import cluster
from benchmarks.cloud import Cloud
from benchmarks.wire import Wire
from tests import test_questions_about_a_cloud_are_answered as of_cloud
from tests import test_questions_about_a_cluster_are_answered as of_cluster
from tests.browser import MISSING, chromium, drawn, page_of, running_browser
from tests.client import Client
from tests.server import RunningServer, database_url, running_service
from tests.service import Service
from tests.test_pages_in_a_browser import CLOUDS, PAGES, cloud

_ROOT = Path(__file__).resolve().parents[1]
_PICTURES_DIRECTORY, _ALL_DIRECTORY = _ROOT / "docs" / "pictures", _ROOT / "build" / "screenshots"
_NAMESPACE = uuid.UUID("0d9c2a1e-3c1f-5f0e-9d1c-2f7f1c9c6a11")
_LARGEST_BYTES = 200_000
_SIZE = {"width": 1280, "height": 800}
_WIDTHS, _THEMES = (1280, 390), ("light", "dark")
_SETTLED_MILLISECONDS = 300
# Words in an address that tell pages apart; manifests, queries and UUIDs are no such words.
_WORD = re.compile(r"(?![0-9a-f]{8}-[0-9a-f]{4}-)[A-Za-z0-9_-]{1,40}")
_LONGEST_NAME = 80
_NODES = 200
# File, address, theme, and the part of the page, from its top, in pixels.
_PICTURES = (
    ("overview.png", "/ui/", "light", 800),
    ("map.png", "/ui/map?by=use&class=VCPU", "dark", 740),
    ("host.png", "/ui/nodes/edge/edge-01", "light", 900),
    ("why-not.png", "/ui/why?kind=query&query=resources%3DPCPU:4,MEMORY_MB:1024&cluster=edge", "light", 1180),
    ("candidates.png", "/ui/why?kind=pod&cluster=edge&limit=5&pod={pod}", "dark", 1000),
)


def main() -> None:
    """Write all pictures. Raises SystemExit where there is no browser."""
    path = chromium()
    if path is None:
        raise SystemExit(MISSING)
    with running_browser(path) as browser:
        with (
            database_url("sqlite") as connection,
            running_service(connection, workers=1, arguments=["--demo"]) as server,
        ):
            _take_all(browser, server.url, "demonstration", [*PAGES, "/docs"])
            _fill(server)
            for name, address, theme, height in _PICTURES:
                _take(browser, server, _PICTURES_DIRECTORY / name, address, theme, height)
        with database_url("sqlite") as connection, running_service(connection, workers=1) as server:
            made = Cloud()
            made.fill(Wire(server.url).must)
            _take_all(browser, server.url, "cloud", of_cloud.pages(made))
        with database_url("sqlite") as connection, running_service(connection, workers=1) as server:
            nodes = [cluster.node(number)["node"] for number in range(_NODES)]
            cluster.fill(Wire(server.url).must, _NODES)
            _take_all(browser, server.url, "cluster", of_cluster.pages(nodes))
        for (hosts, aggregates), pages in CLOUDS.items():
            with (
                tempfile.TemporaryDirectory() as directory,
                cloud(browser, Path(directory), hosts, aggregates) as (url, session),
            ):
                _take_all(browser, url, f"{hosts}-hosts", pages, storage_state=session)
                _take_all(browser, url, f"{hosts}-hosts-signed-out", ["/ui/sign-in"])


def names(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each path with a name for its picture: its number, which is unique, and words of the path."""
    for number, path in enumerate(paths, 1):
        parts = urlsplit(path.removeprefix("/ui"))
        given = [parts.path, *(value for _, value in parse_qsl(parts.query))]
        # Of the name of a node the first label.
        words = [word.partition(".")[0] for text in given for word in text.split("/")]
        name = "-".join(word for word in words if _WORD.fullmatch(word)) or "overview"
        yield path, f"{number:02}-{name}"[:_LONGEST_NAME]


def _take_all(browser: Any, url: str, folder: str, paths: Iterable[str], **settings: Any) -> None:
    """Write whole pages in each theme and width to a folder of build/screenshots, in place of former ones."""
    named = list(names(paths))
    shutil.rmtree(_ALL_DIRECTORY / folder, ignore_errors=True)
    for theme in _THEMES:
        for width in _WIDTHS:
            size = {"width": width, "height": _SIZE["height"]}
            with page_of(browser, url, viewport=size, color_scheme=theme, **settings) as (page, complaints):
                for path, name in named:
                    drawn(page, path)
                    page.wait_for_timeout(_SETTLED_MILLISECONDS)
                    file = _ALL_DIRECTORY / folder / f"{name}-{theme}-{width}.png"
                    page.screenshot(path=str(file), full_page=True)
            assert not complaints, complaints
    print(_ALL_DIRECTORY / folder)


def _take(browser: Any, server: RunningServer, file: Path, address: str, theme: str, height: int) -> None:
    pod = (_ROOT / "etc" / "examples" / "pod.yaml").read_text()
    with page_of(browser, server.url, viewport=_SIZE, color_scheme=theme) as (page, complaints):
        drawn(page, address.format(pod=quote(pod)))
        page.wait_for_timeout(_SETTLED_MILLISECONDS)
        clip = {"x": 0, "y": 0, "width": _SIZE["width"], "height": height}
        page.screenshot(path=str(file), full_page=True, clip=clip)
    size = file.stat().st_size
    assert not complaints, complaints
    assert size < _LARGEST_BYTES, f"{file} has {size} bytes"
    print(f"{file}: {size} bytes")


def _fill(server: RunningServer) -> None:
    """Hosts in three aggregates, used as chance has it."""
    chance, call = random.Random(11), Service(server.url).must
    for number in range(600):
        host, zone = str(uuid.uuid5(_NAMESPACE, f"host-{number}")), number // 250
        call("POST", "/resource_providers", {"name": f"compute-{number:03}", "uuid": host})
        inventories = {"VCPU": {"total": 64, "allocation_ratio": 2.0}, "MEMORY_MB": {"total": 262144}}
        body = {"resource_provider_generation": 0, "inventories": inventories}
        call("PUT", f"/resource_providers/{host}/inventories", body)
        aggregates = [str(uuid.uuid5(_NAMESPACE, f"zone-{zone}"))]
        body = {"resource_provider_generation": 1, "aggregates": aggregates}
        call("PUT", f"/resource_providers/{host}/aggregates", body)
        used = min(128, max(0, int(chance.gauss(60 + 25 * zone, 30))))
        if used:
            held = {host: {"VCPU": used, "MEMORY_MB": 1024 * used}}
            claim = Client.allocations(held, project_id="cloud", user_id="nova")
            call("PUT", f"/allocations/{uuid.uuid5(_NAMESPACE, f'guest-{number}')}", claim)


if __name__ == "__main__":
    main()
