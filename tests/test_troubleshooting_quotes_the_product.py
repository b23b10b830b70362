"""The messages in docs/troubleshooting.md are texts of the product."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_MESSAGE = re.compile(r"^\| `([^`]+)`", re.MULTILINE)
_TABLE = re.compile(r"^\| message \|.*\n(?:\|.*\n)+", re.MULTILINE)


def texts() -> set[str]:
    """The texts in the code of the product; what is filled into one is an ellipsis."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "placement").rglob("*.py")]
    return {_as_quoted(node) for tree in trees for node in ast.walk(tree)} - {""}


def _as_quoted(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text.replace("`", "")
        case ast.JoinedStr(values=parts):
            return "".join(_as_quoted(part) or "…" for part in parts)
    return ""


def is_quoted(message: str, known: set[str]) -> bool:
    """Whether a text has the message, each ellipsis standing for something of any length."""
    pattern = re.compile(".*".join(re.escape(part) for part in message.split("…")), re.DOTALL)
    return any(pattern.search(text) for text in known)


def test_every_message_is_of_the_product():
    tables = _TABLE.findall((ROOT / "docs" / "troubleshooting.md").read_text())
    messages = [message for table in tables for message in _MESSAGE.findall(table)]
    assert len(messages) > 15, "hardly anything was found, so hardly anything was tried"
    known = texts()
    assert [message for message in messages if not is_quoted(message, known)] == []


@pytest.mark.parametrize(("message", "quoted"), [("… is away", True), ("it is gone", False)])
def test_a_message_of_another_program_is_found(message: str, quoted: bool):
    assert is_quoted(message, {"the … is away by now"}) is quoted
