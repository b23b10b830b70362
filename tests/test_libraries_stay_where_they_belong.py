"""Flask, SQLAlchemy and numpy are known to the modules that are about HTTP, SQL and columns only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import placement

PACKAGE = Path(placement.__file__).parent
# Patterns of paths below the package.
HTTP = (
    "http/**", "web/**", "wsgi/*", "app.py", "*/routes.py", "*/*_routes.py", "*/schemas.py", "*/*_schemas.py",
)  # fmt: skip
# A use case with the only statements of its kind has them beside it.
SQL = (
    "storage/**", "migrate/*", "*/statements/*", "*/statements.py",
    "audit/service.py", "planning/consumers.py", "pods/views.py", "providers/use_history.py",
    "server/checks.py", "server/online_migrations.py",
)  # fmt: skip
COLUMNS = (
    "engine/forest/*", "engine/scoring/*", "engine/search/**", "planning/room.py",
    "pods/column_*.py", "pods/columns.py", "pods/cycle.py", "pods/ranking.py",
    "pods/rules/*", "pods/snapshot.py",
)  # fmt: skip


@pytest.mark.parametrize(
    ("libraries", "patterns"),
    [
        ({"flask", "werkzeug", "marshmallow"}, HTTP),
        ({"sqlalchemy", "psycopg2", "alembic"}, SQL),
        ({"numpy"}, COLUMNS),
    ],
)
def test_no_other_module_imports(libraries: set[str], patterns: tuple[str, ...]):
    admitted = {path for pattern in patterns for path in PACKAGE.glob(_all_below(pattern))}
    users = {path for path in PACKAGE.rglob("*.py") if libraries & set(_imported(path))}
    assert users
    assert sorted(str(path.relative_to(PACKAGE)) for path in users - admitted) == []


def _all_below(pattern: str) -> str:
    return f"{pattern}/*.py" if pattern.endswith("**") else pattern


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
