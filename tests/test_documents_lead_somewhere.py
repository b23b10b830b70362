"""Links in the documents lead to files and headings that exist, and the files that they name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BESIDE_CODE = sorted((ROOT / "placement").rglob("*.md"))
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / ".github").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *BESIDE_CODE,
]

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """The headings of a document as links name them."""
    headings = _HEADING.findall(document.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path, text: str) -> list[str]:
    """The links of a text in this document that lead nowhere; addresses of other hosts are not followed."""
    broken = []
    for link in _LINK.findall(text):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    assert broken_links(document, document.read_text()) == []


@pytest.mark.parametrize("link", ["nowhere.md", "words.md#no-such-heading", "#no-such-heading"])
def test_a_link_that_leads_nowhere_is_found(link: str) -> None:
    assert broken_links(ROOT / "docs" / "words.md", f"See [this]({link}).") == [link]


# A path in code style, with at least one directory: `engine/search/solver.py`, `docs/operating.md`.
NAMED = re.compile(r"`((?:[a-z_0-9.-]+/)+[a-z_0-9.-]+\.(?:py|md|yaml|sample))`")
# A file of the folder that a document beside the code is about, also in its figures.
BESIDE = re.compile(r"(?<![\w/.-])([a-z_]+\.py)\b")


# The list of changes names files as they were called then.
@pytest.mark.parametrize(
    "document",
    [path for path in DOCUMENTS if path.name != "CHANGELOG.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_named_files_exist(document: Path):
    places = (ROOT, ROOT / "placement", document.parent)
    missing = [
        name
        for name in NAMED.findall(document.read_text())
        if not any((place / name).exists() for place in places)
    ]
    assert missing == []


@pytest.mark.parametrize("document", BESIDE_CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_beside_a_document_exist(document: Path):
    names = set(BESIDE.findall(document.read_text()))
    assert names, "nothing was found, so nothing was tried"
    assert [name for name in names if not (document.parent / name).exists()] == []


def test_the_design_is_ideas_and_few_files():
    """A list of modules belongs to `python -m benchmarks.journeys`, which traces them."""
    named = set(NAMED.findall((ROOT / "docs" / "design.md").read_text()))
    assert 0 < len(named) <= 10
