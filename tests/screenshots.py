"""The pictures of pages in the documents: `make screenshots`, or `python -m tests.screenshots [DIRECTORY]`.

They are of the demonstration, with six hundred hosts more for the map.
"""

from __future__ import annotations

import random
import sys
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.browser import MISSING, chromium, drawn, page_of, running_browser
from tests.client import Client
from tests.server import RunningServer, database_url, running_service
from tests.service import Service

_DIRECTORY = Path(__file__).resolve().parents[1] / "docs" / "pictures"
_NAMESPACE = uuid.UUID("0d9c2a1e-3c1f-5f0e-9d1c-2f7f1c9c6a11")
_LARGEST_BYTES = 200_000
_SIZE = {"width": 1280, "height": 800}
# File, address, theme, and the part of the page, from its top, in pixels.
_PICTURES = (
    ("overview.png", "/ui/", "light", 800),
    ("map.png", "/ui/map?by=use&class=VCPU", "dark", 740),
    ("host.png", "/ui/nodes/edge/edge-01", "light", 660),
    ("why-not.png", "/ui/why?kind=query&query=resources%3DPCPU:4,MEMORY_MB:1024&cluster=edge", "light", 1180),
    ("candidates.png", "/ui/why?kind=pod&cluster=edge&limit=5&pod={pod}", "dark", 1000),
)


def main(directory: Path) -> None:
    """Write all pictures. Raises SystemExit where there is no browser."""
    path = chromium()
    if path is None:
        raise SystemExit(MISSING)
    directory.mkdir(parents=True, exist_ok=True)
    with (
        database_url("sqlite") as connection,
        running_service(connection, workers=1, arguments=["--demo"]) as server,
        running_browser(path) as browser,
    ):
        _fill(server)
        for name, address, theme, height in _PICTURES:
            _take(browser, server, directory / name, address, theme, height)


def _take(browser: Any, server: RunningServer, file: Path, address: str, theme: str, height: int) -> None:
    pod = (Path(__file__).resolve().parents[1] / "etc" / "examples" / "pod.yaml").read_text()
    with page_of(browser, server.url, viewport=_SIZE, color_scheme=theme) as (page, complaints):
        drawn(page, address.format(pod=quote(pod)))
        page.wait_for_timeout(300)
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
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else _DIRECTORY)
