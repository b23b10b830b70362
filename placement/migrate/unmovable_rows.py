"""Rows of the incumbent that refer to nothing, which no table here can hold.

The incumbent's own statements join such rows away, so they are not seen there. They are listed with the SQL
that corrects them, or left out of an import with a record of each.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, TextIO

import sqlalchemy as sa

from placement.engine.domain.portions import portions
from placement.migrate import providers
from placement.migrate.endpoint import AT_ONCE, Endpoint
from placement.migrate.names import canonical, is_odd

_SHOWN = 5
_READ_AT_ONCE = 1000
# Tables, their columns that refer to a table, and that table.
_OF_ALLOCATIONS = (
    ("allocations", "resource_provider_id", "providers"),
    ("allocations", "resource_class_id", "resource_classes"),
)
_REFERENCES = (
    ("inventories", "resource_provider_id", "providers"),
    ("inventories", "resource_class_id", "resource_classes"),
    ("provider_traits", "resource_provider_id", "providers"),
    ("provider_traits", "trait_id", "traits"),
    ("provider_aggregates", "resource_provider_id", "providers"),
    ("provider_aggregates", "aggregate_id", "aggregates"),
    *_OF_ALLOCATIONS,
    ("consumers", "project_id", "projects"),
    ("consumers", "user_id", "users"),
)
# Columns that may be empty; rows are brought in without what they name.
_OPTIONAL = (
    ("providers", "parent_provider_id", "providers"),
    ("providers", "root_provider_id", "providers"),
    ("consumers", "consumer_type_id", "consumer_types"),
)
_HOLDING = ("consumer_id", "resource_provider_id", "resource_class_id")


@dataclass(frozen=True)
class UnmovableRows:
    """Rows of a table that cannot be moved as they are, why, and the SQL that corrects them there.

    `condition` finds them in the table of that key. `is_left_out`: whether an import that skips rows leaves
    them out; otherwise it brings them in without what they refer to. `is_final`: it can do neither.
    """

    table: str
    sentence: str
    # The column with the values that people are shown.
    shown: str
    condition: sa.ColumnElement[bool]
    statements: Sequence[str] = ()
    is_left_out: bool = True
    is_final: bool = False

    def described(self, source: Endpoint) -> str | None:
        """Return how many rows there are, why, and the first of them; None if there are none."""
        table = getattr(source.tables, self.table)
        count = source.rows(sa.select(sa.func.count()).select_from(table).where(self.condition))[0][0]
        if not count:
            return None
        query = sa.select(table.c[self.shown]).where(self.condition).distinct().order_by(table.c[self.shown])
        found = [str(row[0]) for row in source.rows(query.limit(_SHOWN + 1))]
        more = ", ..." if len(found) > _SHOWN else ""
        rows = f"{count} row{'s' if count > 1 else ''}"
        return f"rows of {table.name} {self.sentence}: {', '.join(found[:_SHOWN])}{more} ({rows})"


@dataclass(frozen=True)
class FoundRows:
    """Kinds of rows that cannot be moved and are there, each with a sentence."""

    kinds: Sequence[tuple[UnmovableRows, str]]

    @property
    def sentences(self) -> list[str]:
        """Return a sentence for each kind."""
        return [sentence for _, sentence in self.kinds]

    @property
    def final(self) -> list[str]:
        """Return the sentences about rows without which nothing can be moved."""
        return [sentence for kind, sentence in self.kinds if kind.is_final]

    @property
    def statements(self) -> list[str]:
        """Return the SQL that corrects them, in an order in which it can be run."""
        return [statement for kind, _ in self.kinds for statement in kind.statements]

    def movable(self, tables: ModuleType | SimpleNamespace) -> SimpleNamespace:
        """Return the tables without the rows that are left out."""
        conditions: dict[str, list[sa.ColumnElement[bool]]] = defaultdict(list)
        for kind, _ in self.kinds:
            if kind.is_left_out:
                conditions[kind.table].append(sa.not_(kind.condition))
        movable = SimpleNamespace(**vars(tables))
        for name, wanted in conditions.items():
            table = getattr(tables, name)
            setattr(movable, name, sa.select(table).where(*wanted).subquery(table.name))
        return movable

    def write(self, source: Endpoint, file: TextIO) -> int:
        """Write each row as a line of JSON with table, reason and columns; return how many there are."""
        count = 0
        for kind, _ in self.kinds:
            table = getattr(source.tables, kind.table)
            result = source.connection.execute(sa.select(table).where(kind.condition))
            for row in result.mappings().yield_per(_READ_AT_ONCE):
                values = {name: _plain(value) for name, value in row.items()}
                line = {"table": table.name, "reason": kind.sentence, "row": values}
                print(json.dumps(line, ensure_ascii=False), file=file)
                count += 1
        return count


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float | str) else str(value)


def find(source: Endpoint) -> FoundRows:
    """Return the kinds of rows that cannot be moved as they are, for which there are rows."""
    found = []
    for kind in _kinds(source):
        sentence = kind.described(source)
        if sentence is not None:
            found.append((kind, sentence))
    return FoundRows(found)


def _kinds(source: Endpoint) -> Iterator[UnmovableRows]:
    for table, column, referred in _REFERENCES:
        yield _dangling(source, table, column, referred)
    for table, column, referred in _OPTIONAL:
        yield _dangling_optional(source, table, column, referred)
    named, aggregates = source.tables.providers, source.tables.aggregates
    yield UnmovableRows(
        "providers",
        "have no name; their id",
        "id",
        named.c.name.is_(None),
        [f"UPDATE {named.name} SET name = uuid WHERE name IS NULL;"],
        is_left_out=False,
    )
    yield UnmovableRows(
        "aggregates",
        "have no uuid; their id",
        "id",
        aggregates.c.uuid.is_(None),
        [f"DELETE FROM {aggregates.name} WHERE uuid IS NULL;"],
    )
    yield _without_inventory(source)
    yield _repeated(source)
    yield from _spelled_twice(source)


def _refers_to_nothing(
    source: Endpoint, table: str, column: str, referred: str
) -> tuple[sa.ColumnElement[bool], str]:
    """Return the condition for such rows, and the query for what there is to refer to."""
    own, other = getattr(source.tables, table), getattr(source.tables, referred)
    alias = other.alias("other")
    there, ids = alias.c.id == own.c[column], f"SELECT id FROM {other.name}"
    if referred == "aggregates":
        # One without a uuid is left out itself.
        there, ids = sa.and_(there, alias.c.uuid.is_not(None)), f"{ids} WHERE uuid IS NOT NULL"
    exists = sa.exists(sa.select(alias.c.id).where(there).correlate(own))
    return sa.and_(own.c[column].is_not(None), ~exists), ids


def _dangling(source: Endpoint, table: str, column: str, referred: str) -> UnmovableRows:
    condition, ids = _refers_to_nothing(source, table, column, referred)
    name = getattr(source.tables, table).name
    statement = f"DELETE FROM {name} WHERE {column} NOT IN ({ids});"
    return UnmovableRows(table, f"have a {column} that does not exist", column, condition, [statement])


def _dangling_optional(source: Endpoint, table: str, column: str, referred: str) -> UnmovableRows:
    condition, ids = _refers_to_nothing(source, table, column, referred)
    own = getattr(source.tables, table)
    if table == referred:
        statements = list(_replaced(source, column, condition))
    else:
        statements = [f"UPDATE {own.name} SET {column} = NULL WHERE {column} NOT IN ({ids});"]
    sentence = f"have a {column} that does not exist"
    return UnmovableRows(table, sentence, column, condition, statements, is_left_out=False)


def _replaced(source: Endpoint, column: str, condition: sa.ColumnElement[bool]) -> Iterator[str]:
    """Yield a statement for each provider below nothing: MySQL reads no table that it is changing."""
    table = source.tables.providers
    rows = source.rows(sa.select(table.c.id, table.c.parent_provider_id))
    parents = providers.present_parents({row.id: row.parent_provider_id for row in rows})
    for (id_,) in source.rows(sa.select(table.c.id).where(condition).order_by(table.c.id)):
        value = providers.top(id_, parents) if column == "root_provider_id" else "NULL"
        yield f"UPDATE {table.name} SET {column} = {value} WHERE id = {id_};"


def _without_inventory(source: Endpoint) -> UnmovableRows:
    """Return the allocations of what their provider does not offer, which refer to something otherwise."""
    held, offered = source.tables.allocations, source.tables.inventories
    alike = [offered.c[name] == held.c[name] for name in _HOLDING[1:]]
    text = " AND ".join(f"{offered.name}.{name} = {held.name}.{name}" for name in _HOLDING[1:])
    dangling = (
        _refers_to_nothing(source, "allocations", column, referred) for _, column, referred in _OF_ALLOCATIONS
    )
    return UnmovableRows(
        "allocations",
        "are of a resource class that their provider has no inventory of",
        "consumer_id",
        sa.and_(~sa.exists().where(*alike), *(~condition for condition, _ in dangling)),
        [f"DELETE FROM {held.name} WHERE NOT EXISTS (SELECT 1 FROM {offered.name} WHERE {text});"],
    )


def _repeated(source: Endpoint) -> UnmovableRows:
    """Return the rows that a newer one repeats, of which the incumbent shows one and counts all."""
    table = source.tables.allocations
    other = table.alias("other")
    latest = sa.select(sa.func.max(other.c.id)).group_by(*(other.c[name] for name in _HOLDING))
    newest = f"SELECT MAX(id) AS id FROM {table.name} GROUP BY {', '.join(_HOLDING)}"
    return UnmovableRows(
        "allocations",
        "stand beside a newer one, as consumers hold one resource class of one provider in several rows",
        "consumer_id",
        table.c.id.not_in(latest),
        [f"DELETE FROM {table.name} WHERE id NOT IN (SELECT id FROM ({newest}) AS newest);"],
    )


def _spelled_twice(source: Endpoint) -> Iterator[UnmovableRows]:
    """Yield providers, consumers and allocations of which another row has the same uuid in other letters."""
    tables = source.tables
    again = _others_of_one(source, tables.providers, "uuid")
    if again:
        condition = _is_one_of(tables.providers, again)
        sentence = "are one provider in two spellings of its uuid; all but one of"
        yield UnmovableRows("providers", sentence, "uuid", condition, is_left_out=False, is_final=True)
    # The owner of what is held counts.
    holds = sa.exists().where(tables.allocations.c.consumer_id == tables.consumers.c.uuid)
    again = _others_of_one(source, tables.consumers, "uuid", preferred=holds)
    if again:
        condition = _is_one_of(tables.consumers, again)
        spellings = source.rows(sa.select(tables.consumers.c.uuid, tables.consumers.c.id).where(condition))
        statements = [
            *(_respelled(tables.allocations, uuid, again[id_]) for uuid, id_ in spellings),
            _deleted(tables.consumers, again),
        ]
        sentence = "are one consumer in two spellings of its uuid; all but one of"
        yield UnmovableRows("consumers", sentence, "uuid", condition, statements)
    again = _others_of_one(source, tables.allocations, *_HOLDING)
    if again:
        condition = _is_one_of(tables.allocations, again)
        sentence = "stand beside a newer one of the same consumer in another spelling"
        statements = [_deleted(tables.allocations, again)]
        yield UnmovableRows("allocations", sentence, "consumer_id", condition, statements)


def _respelled(table: sa.Table, old: str, new: str) -> str:
    return f"UPDATE {table.name} SET consumer_id = '{new}' WHERE consumer_id = '{old}';"


def _deleted(table: sa.Table, ids: Iterable[int]) -> str:
    return f"DELETE FROM {table.name} WHERE id IN ({', '.join(map(str, ids))});"


def _is_one_of(table: sa.FromClause, ids: Iterable[int]) -> sa.ColumnElement[bool]:
    # Written into the statement, as databases limit the number of parameters.
    return table.c.id.in_(
        sa.bindparam("spelled_again", list(ids), expanding=True, literal_execute=True, unique=True)
    )


def _others_of_one(
    source: Endpoint,
    table: sa.FromClause,
    uuid: str,
    *others: str,
    preferred: sa.ColumnElement[bool] | None = None,
) -> dict[int, str]:
    """Return the ids of rows with the uuid of another row in another spelling, without the newest of each.

    Each comes with the uuid of that newest row. `others` are columns that have to be equal as well. Preferred
    rows count as the newest, and of these the one with a canonical uuid.
    """
    column = table.c[uuid]
    preference = sa.literal(1) if preferred is None else preferred
    columns = [table.c.id, column, preference.label("preference"), *(table.c[name] for name in others)]
    odd = source.rows(sa.select(*columns).where(is_odd(column)))
    wanted = sorted({canonical(row[1]) for row in odd})
    rows = list(odd)
    for some in portions(wanted, AT_ONCE):
        rows += source.rows(sa.select(*columns).where(column.in_(some)))
    alike: dict[tuple[Any, ...], set[tuple[bool, bool, int, str]]] = defaultdict(set)
    for id_, given, is_preferred, *rest in rows:
        alike[canonical(given), *rest].add((bool(is_preferred), given == canonical(given), id_, given))
    found = {}
    for group in alike.values():
        *older, newest = sorted(group)
        found.update({id_: newest[-1] for _, _, id_, _ in older})
    return dict(sorted(found.items()))
