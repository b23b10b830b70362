"""Files that the documents name are there: a walk through the house would lead nowhere otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "placement").rglob("*.md")])
# A path in code style, with at least one directory: `engine/search/solver.py`, `docs/operating.md`.
NAMED = re.compile(r"`((?:[a-z_0-9.-]+/)+[a-z_0-9.-]+\.(?:py|md|yaml|sample))`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(document: Path):
    places = (ROOT, ROOT / "placement", document.parent)
    missing = [
        name
        for name in NAMED.findall(document.read_text())
        if not any((place / name).exists() for place in places)
    ]
    assert missing == []


def test_a_walk_names_many_files():
    assert len(set(NAMED.findall((ROOT / "docs" / "design.md").read_text()))) > 40
