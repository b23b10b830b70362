"""Each backend has all that the protocol says, as the protocol says it, and nothing else in public."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import pytest

from placement.storage.backends.backend import Backend
from placement.storage.backends.postgresql import PostgreSQL
from placement.storage.backends.sqlite import SQLite

BACKENDS = (PostgreSQL, SQLite)


def members(kind: type) -> dict[str, str]:
    """What a class offers: facts by type, functions by parameters."""
    facts = {name: str(type_) for name, type_ in typing.get_type_hints(kind).items()}
    offered = {name: inspect.getattr_static(kind, name) for name in dir(kind) if name not in facts}
    return {
        name: described
        for name, described in {**facts, **{name: form(value) for name, value in offered.items()}}.items()
        if not name.startswith("_")
    }


def form(value: Any) -> str:
    """How a member is called."""
    if isinstance(value, property):
        return "property"
    if isinstance(value, staticmethod):
        return f"static {parameters(value.__func__)}"
    return parameters(value) if callable(value) else "fact"


def parameters(function: Any) -> str:
    found = inspect.signature(function).parameters.values()
    return ", ".join(f"{one.kind.name} {one.name}: {one.annotation} = {one.default}" for one in found)


def differences(kind: type, protocol: type) -> dict[str, tuple[str | None, str | None]]:
    """What is not the same in both, as each has it."""
    one, other = members(kind), members(protocol)
    names = {*one, *other}
    return {
        name: (one.get(name), other.get(name)) for name in sorted(names) if one.get(name) != other.get(name)
    }


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_backend_offers_what_the_protocol_says(kind: type):
    assert differences(kind, Backend) == {}


@pytest.mark.parametrize("kind", BACKENDS)
def test_its_facts_are_there(kind: type):
    facts = {name for name, type_ in typing.get_type_hints(Backend).items() if "ClassVar" in str(type_)}
    assert facts
    for name in facts:
        assert getattr(kind, name) is not None
