"""Several queries as one statement: one round trip, and all of them see one state of the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

_COLUMN_TYPES: tuple[type[sa.types.TypeEngine[Any]], ...] = (
    sa.Integer,
    sa.String,
    sa.Float,
    sa.DateTime,
    sa.JSON,
)


class Together:
    """Queries whose rows come as rows of one union, which has a column for each that any of them needs."""

    def __init__(self, *queries: sa.Select[Any]) -> None:
        """The queries; they have columns of integers, texts, floats, times and JSON."""
        kinds = [[_kind(column) for column in query.selected_columns] for query in queries]
        widths = {kind: max(row.count(kind) for row in kinds) for kind in _COLUMN_TYPES}
        first = {}
        width = 1  # the first column is the number of the query
        for kind, count in widths.items():
            first[kind] = width
            width += count
        self._places = [_places(row, first) for row in kinds]
        blanks = [sa.cast(sa.null(), _written(kind)) for kind, count in widths.items() for _ in range(count)]
        self.statement = sa.union_all(
            *(
                query.with_only_columns(*_padded(number, query, places, blanks))
                for number, (query, places) in enumerate(zip(queries, self._places, strict=True))
            )
        )

    def parted(self, rows: Iterable[Sequence[Any]]) -> list[list[list[Any]]]:
        """The rows of each query, in no order, of those of the statement."""
        found: list[list[list[Any]]] = [[] for _ in self._places]
        for row in rows:
            number = row[0]
            found[number].append([row[place] for place in self._places[number]])
        return found


def _kind(column: Any) -> type[sa.types.TypeEngine[Any]]:
    return next(kind for kind in _COLUMN_TYPES if isinstance(column.type, kind))


def _written(kind: type[sa.types.TypeEngine[Any]]) -> type[sa.types.TypeEngine[Any]]:
    return sa.BigInteger if kind is sa.Integer else kind


def _places(
    kinds: Sequence[type[sa.types.TypeEngine[Any]]], first: Mapping[type[sa.types.TypeEngine[Any]], int]
) -> list[int]:
    """The column of the union for each column of a query: the next one of its type."""
    following = dict(first)
    places = []
    for kind in kinds:
        places.append(following[kind])
        following[kind] += 1
    return places


def _padded(
    number: int, query: sa.Select[Any], places: Sequence[int], blanks: Sequence[Any]
) -> list[sa.ColumnElement[Any]]:
    """The columns of a query as the union has them."""
    columns = [sa.literal_column(str(number), sa.Integer), *blanks]
    for place, column in zip(places, query.selected_columns, strict=True):
        is_number = isinstance(column.type, sa.Integer)
        columns[place] = sa.cast(column, sa.BigInteger) if is_number else column
    return [column.label(f"c{place}") for place, column in enumerate(columns)]
