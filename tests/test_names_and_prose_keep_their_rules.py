"""Docstrings and documents speak of things and say them at once; a class name exists once."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NODES = [
    (f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", node)
    for path in sorted((ROOT / "placement").rglob("*.py"))
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
]
FORBIDDEN = re.compile(
    r"\b(?i:who|whom|whose|whoever|nobody|somebody|everybody|those|told|said)\b"
    r"|\A(?:The same|Likewise|As above)\b"
)
# The reference keeps the words of its sources. A release in the list of changes may be a long sentence.
GUIDES = [
    *sorted(path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"),
    *sorted((ROOT / ".github").rglob("*.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "reference"),
    *sorted((ROOT / "placement").rglob("*.md")),
]
DOCUMENTS = [ROOT / "CHANGELOG.md", *GUIDES]
MOST_WORDS = 25
# A block of code, code in a line, the target of a link, quoted text, text in italics.
_NOT_PROSE = re.compile(
    r'^ *```.*?^ *```$|`[^`]*`|(?<=\])\([^)]*\)|"[^"]*"|(?<![*\w])\*[^*\s][^*]*\*(?!\*)',
    re.MULTILINE | re.DOTALL,
)
_ITEM = re.compile(r"^ *(?:[*-]|\d+\.|#+) ", re.MULTILINE)


def sentences(text: str) -> list[str]:
    """The sentences of a document, its headings and the cells of its tables, without what is no prose."""
    prose = _ITEM.sub("\n\n", _NOT_PROSE.sub(" ", text))
    blocks = (" ".join(block.split()) for block in re.split(r"\n *\n|\|", prose))
    return [sentence for block in blocks if block for sentence in re.split(r"(?<=[.?!])[*)]* ", block)]


def too_long(text: str) -> list[str]:
    """The sentences of more than MOST_WORDS words."""
    return [each for each in sentences(text) if len(re.findall(r"\S*\w\S*", each)) > MOST_WORDS]


def test_docstrings_speak_of_things_and_say_them():
    assert [place for place, node in NODES if FORBIDDEN.search(ast.get_docstring(node) or "")] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_speak_of_things(path: Path):
    assert [sentence for sentence in sentences(path.read_text()) if FORBIDDEN.search(sentence)] == []


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_say_one_thing_at_a_time(path: Path):
    assert too_long(path.read_text()) == []


def test_a_class_name_exists_once():
    names = Counter(node.name for _, node in NODES if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("text", ["Return whose it is.", "The same for many.", "As above."])
def test_what_breaks_a_rule_is_found(text: str):
    assert FORBIDDEN.search(text)


def test_what_breaks_a_rule_is_found_in_a_document():
    text = '`who`, "who", *who* and [a link](#who).\n\n```\nwho\n```\n\n* Fine.\n* A\n  `b`, who | those'
    assert [bool(FORBIDDEN.search(each)) for each in sentences(text)] == [False, False, True, True]
    assert too_long("word " * 25 + "`code`.") == []
    assert too_long(f"Short. {'word ' * 26}`code`.") != []
