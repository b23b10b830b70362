"""Several queries as one statement: one round trip, and all of them see one state of the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

_COLUMN_TYPES: tuple[type[sa.types.TypeEngine[Any]], ...] = (
    sa.BigInteger,
    sa.String,
    sa.Float,
    sa.DateTime,
    sa.JSON,
)


class UnionQuery:
    """A union of queries: the number of the query, then as many columns of each type as any of them needs."""

    def __init__(self, *queries: sa.Select[Any]) -> None:
        """Take the queries, each of two or more columns of integers, texts, floats, times and JSON."""
        kinds = [_column_types(query) for query in queries]
        union = [kind for kind in _COLUMN_TYPES for _ in range(max(row.count(kind) for row in kinds))]
        # The column of the union for each column of a query: the next one of its type.
        all_places = [
            [1 + union.index(kind) + row[:at].count(kind) for at, kind in enumerate(row)] for row in kinds
        ]
        self.statement = sa.union_all(
            *(
                _padded(number, query, places, union)
                for number, (query, places) in enumerate(zip(queries, all_places, strict=True))
            )
        )
        self._parts = [itemgetter(*places) for places in all_places]

    def parted(self, rows: Iterable[Sequence[Any]]) -> list[list[tuple[Any, ...]]]:
        """Return the rows of each query, in no order, from the rows of the statement."""
        found: list[list[tuple[Any, ...]]] = [[] for _ in self._parts]
        for row in rows:
            number = row[0]
            found[number].append(self._parts[number](row))
        return found


def _column_types(query: sa.Select[Any]) -> list[type[sa.types.TypeEngine[Any]]]:
    """Return the type that each column of a query has in a union."""
    columns = map(_long, query.selected_columns)
    return [next(kind for kind in _COLUMN_TYPES if isinstance(column.type, kind)) for column in columns]


def _padded(
    number: int, query: sa.Select[Any], places: Sequence[int], union: Sequence[type[sa.types.TypeEngine[Any]]]
) -> sa.Select[Any]:
    """Return a query with its number and all columns of the union; its own stand at these places."""
    columns: list[sa.ColumnElement[Any]] = [sa.literal_column(str(number), sa.Integer)]
    columns += [sa.cast(sa.null(), kind) for kind in union]
    for place, column in zip(places, query.selected_columns, strict=True):
        columns[place] = _long(column)
    return query.with_only_columns(*(column.label(f"c{place}") for place, column in enumerate(columns)))


def _long(column: Any) -> sa.ColumnElement[Any]:
    return sa.cast(column, sa.BigInteger) if isinstance(column.type, sa.Integer) else column
