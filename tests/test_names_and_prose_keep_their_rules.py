"""Docstrings of placement/ speak of things and say them at once; a class name exists once."""

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
    r"\b(?:who|whom|whose|whoever|nobody|somebody|everybody|those|told|said)\b"
    r"|\A(?:The same|Likewise|As above)\b",
    re.IGNORECASE,
)


def test_docstrings_speak_of_things_and_say_them():
    assert [place for place, node in NODES if FORBIDDEN.search(ast.get_docstring(node) or "")] == []


def test_a_class_name_exists_once():
    names = Counter(node.name for _, node in NODES if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("text", ["Return whose it is.", "The same for many.", "As above."])
def test_what_breaks_a_rule_is_found(text: str):
    assert FORBIDDEN.search(text)
