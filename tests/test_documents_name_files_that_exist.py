"""Files that the documents name are there: a reader would look for others in vain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BESIDE_CODE = sorted((ROOT / "placement").rglob("*.md"))
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *BESIDE_CODE])
# A path in code style, with at least one directory: `engine/search/solver.py`, `docs/operating.md`.
NAMED = re.compile(r"`((?:[a-z_0-9.-]+/)+[a-z_0-9.-]+\.(?:py|md|yaml|sample))`")
# A file of the folder that a document beside the code is about, also in its figures.
BESIDE = re.compile(r"(?<![\w/.-])([a-z_]+\.py)\b")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
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
