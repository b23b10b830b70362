"""Each backend has all that the protocol says, and nobody else asks which database it is."""

import ast
import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import placement
from placement.storage.backends.backend import Backend
from placement.storage.backends.postgresql import PostgreSQL
from placement.storage.backends.sqlite import SQLite


def members(kind: type) -> dict[str, str]:
    """What a class offers: facts by type, functions by parameters."""
    facts = {name: str(type_) for name, type_ in typing.get_type_hints(kind).items()}
    forms = {name: form(inspect.getattr_static(kind, name)) for name in dir(kind) if name not in facts}
    return {name: shown for name, shown in {**facts, **forms}.items() if not name.startswith("_")}


def form(value: Any) -> str:
    """How a member is called."""
    if isinstance(value, property):
        return "property"
    if isinstance(value, staticmethod):
        return f"static {form(value.__func__)}"
    if not callable(value):
        return "fact"
    found = inspect.signature(value).parameters.values()
    return ", ".join(f"{one.kind.name} {one.name}: {one.annotation} = {one.default}" for one in found)


@pytest.mark.parametrize("kind", [PostgreSQL, SQLite])
def test_a_backend_offers_what_the_protocol_says_and_has_its_facts(kind: type):
    one, other = members(kind), members(Backend)
    assert {
        name: (one.get(name), other.get(name)) for name in {*one, *other} if one.get(name) != other.get(name)
    } == {}
    facts = {name for name, type_ in typing.get_type_hints(Backend).items() if "ClassVar" in str(type_)}
    assert facts
    assert all(getattr(kind, name) is not None for name in facts)


PACKAGE = Path(placement.__file__).parent
BACKENDS = PACKAGE / "storage" / "backends"
_QUESTIONS = {"is_sqlite", "is_postgresql", "get_backend_name", "get_dialect", "drivername", "dialect_name"}
_NAMES = {"sqlite", "postgresql", "postgres", "psycopg2"}
_DRIVERS = ("psycopg2", "sqlite3", "sqlalchemy.dialects")
_ONE_BACKEND = ("placement.storage.backends.postgresql", "placement.storage.backends.sqlite")
_BACKENDS = (f"{_ONE_BACKEND[0]}.PostgreSQL", f"{_ONE_BACKEND[1]}.SQLite")
# Types are compiled for each database; databases of the incumbent are of three kinds, and none is ours.
_ALLOWED = {"storage/tables.py", "migrate/incumbent.py", "migrate/endpoint.py"}
_OWN_WORDS = ("pg_", "PRAGMA", "xmin", "json_each", "unnest(", "BEGIN ")


def imported(node: ast.AST) -> list[str]:
    """The modules, and what is taken from them, that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def asks(node: ast.AST) -> bool:
    """Whether this part of a program asks which database it is, or says what only one understands."""
    if isinstance(node, ast.Attribute):
        of_dialect = node.attr == "name" and ast.unparse(node.value).endswith("dialect")
        return node.attr in _QUESTIONS or of_dialect or node.attr.startswith("pg_")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value in _NAMES
    return any(name.startswith((*_DRIVERS, *_ONE_BACKEND)) for name in imported(node))


def questions(source: str, *, is_storage: bool = True) -> Iterator[int]:
    """The lines of a program that ask; others have no SQL, and words of their own."""
    tree = ast.parse(source)
    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    for_people = {id(value) for value in strings if isinstance(value, ast.Constant)}
    for node in ast.walk(tree):
        if id(node) in for_people:
            continue
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if asks(node) or (is_storage and any(word in text for word in _OWN_WORDS)):
            yield getattr(node, "lineno", 0)


def test_nobody_else_asks():
    found = {
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not path.is_relative_to(BACKENDS) and str(path.relative_to(PACKAGE)) not in _ALLOWED
        for line in questions(path.read_text(), is_storage=path.is_relative_to(PACKAGE / "storage"))
    }
    body = ast.parse((PACKAGE / "storage" / "database.py").read_text()).body
    (choice,) = (node for node in body if isinstance(node, ast.FunctionDef) and node.name == "backend_of")
    choosing = range(choice.lineno, (choice.end_lineno or 0) + 1)
    imports = [node.lineno for node in body if any(name in _BACKENDS for name in imported(node))]
    assert found <= {f"storage/database.py:{line}" for line in [*imports, *choosing]}
    assert len(imports) == 2


def test_backends_do_know():
    """Were they found empty, this would look at the wrong places."""
    asking = {path.stem for path in BACKENDS.glob("*.py") if list(questions(path.read_text()))}
    assert {"urls", "postgresql", "postgresql_driver", "sqlite"} <= asking
