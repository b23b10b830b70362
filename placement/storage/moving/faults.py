"""Rows of the incumbent that refer to nothing, which no table here can hold.

The incumbent's own statements join such rows away, so nobody sees them there; they cannot be moved, and are
told rather than dropped.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from placement.storage.moving.side import Side

_SHOWN = 5
# Which column of which table refers to which other table.
_REFERENCES = (
    ("providers", "root_provider_id", "providers"),
    ("providers", "parent_provider_id", "providers"),
    ("inventories", "resource_provider_id", "providers"),
    ("inventories", "resource_class_id", "resource_classes"),
    ("provider_traits", "resource_provider_id", "providers"),
    ("provider_traits", "trait_id", "traits"),
    ("provider_aggregates", "resource_provider_id", "providers"),
    ("provider_aggregates", "aggregate_id", "aggregates"),
    ("allocations", "resource_provider_id", "providers"),
    ("allocations", "resource_class_id", "resource_classes"),
    ("consumers", "project_id", "projects"),
    ("consumers", "user_id", "users"),
    ("consumers", "consumer_type_id", "consumer_types"),
)
_NAMED = (("providers", "name"), ("aggregates", "uuid"))


def find(source: Side) -> list[str]:
    """A sentence for each kind of rows that cannot be moved, with the first of them."""
    return [*_dangling(source), *_nameless(source), *_twice(source)]


def _dangling(source: Side) -> Iterator[str]:
    for name, column, referred in _REFERENCES:
        table, other = getattr(source.tables, name), getattr(source.tables, referred).alias("other")
        query = (
            sa.select(table.c[column])
            .outerjoin(other, other.c.id == table.c[column])
            .where(table.c[column].is_not(None), other.c.id.is_(None))
        )
        yield from _told(
            source, query.distinct(), f"rows of {table.name} have a {column} that does not exist"
        )


def _nameless(source: Side) -> Iterator[str]:
    for name, column in _NAMED:
        table = getattr(source.tables, name)
        query = sa.select(table.c.id).where(table.c[column].is_(None))
        yield from _told(source, query, f"rows of {table.name} have no {column}; their id")


def _twice(source: Side) -> Iterator[str]:
    table = source.tables.allocations
    query = (
        sa.select(table.c.consumer_id)
        .group_by(table.c.consumer_id, table.c.resource_provider_id, table.c.resource_class_id)
        .having(sa.func.count() > 1)
    )
    yield from _told(source, query, "consumers hold one resource class of one provider in several rows")


def _told(source: Side, query: sa.Select[tuple[object]], sentence: str) -> Iterator[str]:
    found = [str(row[0]) for row in source.rows(query.limit(_SHOWN + 1))]
    if found:
        more = ", ..." if len(found) > _SHOWN else ""
        yield f"{sentence}: {', '.join(found[:_SHOWN])}{more}"
