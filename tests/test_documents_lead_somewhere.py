"""Links in the documents lead to files and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *(ROOT / "placement").rglob("*.md")]

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
