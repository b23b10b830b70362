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
# Routes, pages, and what is around them; readers and schemas take version and words as arguments.
REQUEST = (
    "*/routes.py", "*/*_routes.py", "web/*", "app.py",
    "http/context.py", "http/bodies.py", "http/answers.py", "http/errors.py", "http/registry.py",
    "http/suggestions.py",
    "http/gate.py", "http/targets.py", "http/policy.py", "http/middleware.py",
    "http/openapi.py", "http/strategies/*",
)  # fmt: skip
_GLOBALS = {"g", "request", "current_app", "has_request_context"}
_GLOBALS |= {"context", "current", "version", "is_own", "offers", "service", "component"}
# A use case with the only statements of its kind has them beside it.
SQL = (
    "storage/**", "migrate/*", "sessions.py", "*/statements/*", "pods/store/statements.py",
    "audit/events.py", "audit/service.py", "planning/consumers.py", "pods/services/finder.py",
    "pods/services/stored_names.py",
    "providers/use_history.py", "server/invariants/*", "server/online_migrations.py",
)  # fmt: skip
COLUMNS = (
    "engine/forest/*", "engine/scoring/*", "engine/search/**", "planning/pod_capacity.py",
    "pods/decide/adjustments.py", "pods/decide/column_*.py", "pods/decide/explanation.py",
    "pods/decide/ranking.py", "pods/decide/rules/*", "pods/state/columns.py", "pods/state/snapshot.py",
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


def test_only_what_is_about_the_request_at_hand_asks_flask_for_it():
    admitted = {path for pattern in REQUEST for path in PACKAGE.glob(_all_below(pattern))}
    users = {path for path in PACKAGE.rglob("*.py") if _GLOBALS & set(_names_of_flask(path))}
    assert users
    assert sorted(str(path.relative_to(PACKAGE)) for path in users - admitted) == []


def _names_of_flask(path: Path) -> Iterator[str]:
    """Yield what a module imports of Flask, and of the module that hands its globals on."""
    handed_on = {"flask", "placement.http", "placement.http.context"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in handed_on:
            yield from (alias.name for alias in node.names)


def _all_below(pattern: str) -> str:
    return f"{pattern}/*.py" if pattern.endswith("**") else pattern


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
