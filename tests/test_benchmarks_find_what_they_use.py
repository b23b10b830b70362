"""Benchmarks are not run here, but what they take from the product and from the tests is there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
# Not those of the environments that benchmarks install for themselves.
_FILES = sorted(file for file in (_ROOT / "benchmarks").rglob("*.py") if "site-packages" not in file.parts)


@pytest.mark.parametrize("file", _FILES, ids=lambda file: str(file.relative_to(_ROOT)))
def test_every_name_that_a_benchmark_imports_exists(file: Path):
    """By reading the file: packages that only benchmarks need may be missing."""
    taken = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    for node in taken:
        if (node.module or "").partition(".")[0] in ("placement", "tests"):
            exec(compile(ast.Module([node], []), str(file), "exec"), {})
