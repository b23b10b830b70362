"""The navigation of the site has every document once and nothing else; its colours are those of the pages.

`make docs` builds the site, with every link checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")


class _Site(yaml.SafeLoader):
    """A loader that knows the one tag of mkdocs.yml, which names a function of Python."""


_Site.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def entries(navigation: Any) -> Iterator[str]:
    """The files of a navigation, in their order."""
    if isinstance(navigation, str):
        yield navigation
    else:
        for each in navigation.values() if isinstance(navigation, dict) else navigation:
            yield from entries(each)


def test_every_document_is_in_the_navigation_once():
    beside_code = [path.relative_to(ROOT) for path in (ROOT / "placement").rglob("*.md")]
    documents = [path.relative_to(DOCS) for path in DOCS.rglob("*.md")]
    written = [*documents, *beside_code, Path("CHANGELOG.md")]
    shown = list(entries(yaml.load((ROOT / "mkdocs.yml").read_text(), _Site)["nav"]))
    assert sorted(shown) == sorted(map(str, written))


def test_every_document_is_in_the_index():
    links = re.findall(r"\]\(([^)#]+)\)", (DOCS / "index.md").read_text())
    linked = {(DOCS / link).resolve() for link in links}
    assert {path for path in DOCS.rglob("*.md") if path.name != "index.md"} <= linked


def test_the_colours_are_those_of_the_pages():
    pages = set(_COLOUR.findall((ROOT / "placement" / "web" / "static" / "pages.css").read_text()))
    site = set(_COLOUR.findall((DOCS / "stylesheets" / "site.css").read_text()))
    assert site, "nothing was found, so nothing was tried"
    assert site <= pages
