"""Questions that people ask of a service, by commands and by pages, with the steps that an answer took."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import unescape
from typing import Any

from tests.browser import drawn, findings, page_of
from tests.commands import run

_MOST_STEPS = 2
_OK = 200
_THEMES_AND_WIDTHS = (("light", 1280), ("dark", 390))


@dataclass
class Question:
    """Steps towards one answer: commands that were typed and pages that were opened."""

    url: str
    steps: list[str] = field(default_factory=list)

    def typed(self, *words: str, succeeds: bool = True) -> str:
        """Return what a command prints. A command that fails, or a third step, fails the test."""
        self._count(" ".join(words))
        ended = run(*words, PLACEMENT_URL=self.url, COLUMNS="160")
        assert ended.returncode == 0 or not succeeds, ended
        return ended.stdout

    def typed_json(self, *words: str, succeeds: bool = True) -> Any:
        """Return the JSON that a command prints for programs."""
        return json.loads(self.typed(*words, "-o", "json", succeeds=succeeds))

    def opened(self, path: str) -> str:
        """Return the words of a page. A page that fails, or a third step, fails the test."""
        self._count(path)
        with urllib.request.urlopen(self.url + path) as answer:
            return words(answer.read().decode())

    def _count(self, step: str) -> None:
        self.steps.append(step)
        assert len(self.steps) <= _MOST_STEPS, self.steps


def words(page: str) -> str:
    """Return the words of the main part of a page, with single blanks between them."""
    found = re.search(r"<main.*</main>", page, re.DOTALL)
    assert found is not None
    shown = re.sub(r"<(script|style|svg|template)\b.*?</\1>", " ", found.group(), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", shown)).split())


def assert_readable(browser: Any, url: str, paths: Iterable[str]) -> None:
    """Open pages in a browser: wide and narrow, each is drawn, fits, complains of nothing and can be read.

    Whether it can be read takes seconds: it is asked of the first page at each address, light and wide or
    dark and narrow in turn.
    """
    seen = set[str]()
    for path in paths:
        address = path.partition("?")[0]
        asked_in = None if address in seen else len(seen) % len(_THEMES_AND_WIDTHS)
        seen.add(address)
        with page_of(browser, url) as (page, complaints):
            for turn, (theme, width) in enumerate(_THEMES_AND_WIDTHS):
                page.emulate_media(color_scheme=theme)
                page.set_viewport_size({"width": width, "height": 800})
                assert drawn(page, path) == _OK, path
                assert page.evaluate("document.documentElement.scrollWidth") <= width, path
                if turn == asked_in:
                    assert findings(page) == [], path
            assert complaints == [], path
