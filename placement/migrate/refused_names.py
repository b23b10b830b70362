"""Names that the target cannot hold, found before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from placement.common.mysql_names import called_one
from placement.common.texts import printable
from placement.engine.domain.errors import Conflict
from placement.migrate.endpoint import Endpoint
from placement.migrate.names import owners
from placement.migrate.providers import KnownProviders

_LISTED = 100
# What the incumbent's tables hold of a name, where the database heeds it.
_LONGEST = 200
_OWNERS = {"projects": "project", "users": "user"}


def refuse(source: Endpoint, target: Endpoint, wanted_providers: KnownProviders) -> None:
    """Raise Conflict with the list of names of the source that the target cannot hold, if there are any."""
    named_owners = {kind: owners(source, kind) for kind in _OWNERS}
    found: list[str] = []
    if target.refuses_nul:
        found += _with_nul(wanted_providers, named_owners)
    if not target.is_ours and target.heeds_lengths:
        found += _too_long(wanted_providers)
    if not target.is_ours and _ignores_case(target):
        found += _called_one(target, wanted_providers, named_owners)
    if found:
        more = [f"and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
        lines = ["the target cannot hold these names; nothing was written:", *found[:_LISTED], *more]
        raise Conflict("\n  ".join(lines))


def _with_nul(wanted_providers: KnownProviders, named_owners: dict[str, list[str]]) -> Iterator[str]:
    """Yield the names with a character that PostgreSQL holds in no text."""
    for uuid, provider in wanted_providers.rows.items():
        if "\0" in provider.name:
            name = printable(provider.name)
            yield f"provider {uuid} ({name}): PostgreSQL holds no NUL character; rename it in the source"
    for kind, names in named_owners.items():
        for name in names:
            if "\0" in name:
                yield f"{_OWNERS[kind]} {printable(name)}: PostgreSQL holds no NUL character"


def _too_long(wanted_providers: KnownProviders) -> Iterator[str]:
    for uuid, provider in wanted_providers.rows.items():
        if len(provider.name) > _LONGEST:
            name = printable(provider.name)
            yield f"provider {uuid} ({name}): its name has {len(provider.name)} characters, {_LONGEST} fit"


def _ignores_case(target: Endpoint) -> bool:
    """Return whether names of providers in the target are compared without case, as MySQL does by default.

    The first query of the two decides how the column of both is compared.
    """
    table = target.tables.providers
    given = sa.literal("a", literal_execute=True)
    names: Any = sa.union_all(sa.select(table.c.name).where(sa.false()), sa.select(given)).subquery("given")
    return bool(target.rows(sa.select(names.c.name).where(names.c.name == "A")))


def _called_one(
    target: Endpoint, wanted_providers: KnownProviders, named_owners: dict[str, list[str]]
) -> Iterator[str]:
    uuids = {provider.name: uuid for uuid, provider in wanted_providers.rows.items()}
    for group in called_one(uuids):
        listed = ", ".join(f"{_quoted(name)} ({uuids[name]})" for name in group)
        yield f"providers {listed}: one name there; rename all but one of them here"
    for kind, names in named_owners.items():
        table = getattr(target.tables, kind)
        present = [row[0] for row in target.rows(sa.select(table.c.external_id))]
        for group in called_one({*names, *present}):
            listed = ", ".join(map(_quoted, group))
            yield f"{kind} {listed}: one name there; give the consumers to one of them"


def _quoted(name: str) -> str:
    return f"'{printable(name)}'"
