"""A real browser for tests: Debian's Chromium, driven by playwright, one for each test process.

`python -m tests.browser` says whether there is one; without it the tests of pages in a browser do not run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_SECONDS

VARIABLE = "PLACEMENT_TEST_CHROMIUM"
MISSING = (
    "NOT RUN: the pages are tried in no browser, for there is no Chromium here: apt-get install chromium, or "
    f"name it in {VARIABLE}"
)
# As root, and in containers without much shared memory, it starts only so.
_ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage"]


def chromium() -> Path | None:
    """The browser, None if there is none."""
    found = os.environ.get(VARIABLE) or shutil.which("chromium") or shutil.which("chromium-browser")
    return Path(found) if found else None


@contextmanager
def running_browser(path: Path) -> Iterator[Any]:
    """The browser, ended after the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(path), args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_of(browser: Any, url: str, **settings: Any) -> Iterator[tuple[Any, list[str]]]:
    """A page of a fresh session, and the complaints of the browser, which grow as it finds more.

    Complaints are errors on the console, violations of the Content-Security-Policy, failures of scripts, and
    requests to other origins than `url`.
    """
    context = browser.new_context(base_url=url, **settings)
    context.set_default_timeout(1000 * PATIENCE_SECONDS)
    page = context.new_page()
    complaints: list[str] = []

    def on_console(message: Any) -> None:
        # That an answer was an error is no error of the page.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            complaints.append(f"{page.url}: {message.text}")

    def on_request(request: Any) -> None:
        if not request.url.startswith((url, "data:", "blob:")):
            complaints.append(f"{page.url}: asked for {request.url}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
    page.on("request", on_request)
    try:
        yield page, complaints
    finally:
        context.close()


def findings(page: Any) -> list[str]:
    """What axe-core finds wrong with the page for people who cannot see or point, by rule and place."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [f"{page.url}: {each['id']} at {node['target']}" for each in found for node in each["nodes"]]


def drawn(page: Any, path: str) -> int:
    """Open a page, wait until its map, if it has one, is drawn, and return the status of the answer."""
    answer = page.goto(path)
    if page.query_selector("[data-map]"):
        page.wait_for_selector("[data-drawn]")
    status: int = answer.status
    return status


if __name__ == "__main__":
    print(f"Pages are tried in {chromium()}." if chromium() else MISSING)
