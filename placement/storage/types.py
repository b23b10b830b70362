"""Column types that differ between the databases."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

# Ids of a table to which rows are added for good; SQLite counts by itself for plain integers only.
LONG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


class Revision(sa.types.UserDefinedType[int]):
    """The stamp of the transaction that last touched a row.

    PostgreSQL: the writer's 64-bit transaction id (xid8), so that readers can tell what became visible
    since a snapshot whatever the commit order. SQLite: a counter that serial writers increment.
    """

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "BIGINT"


@compiles(Revision, "postgresql")
def _xid8(_type: Revision, _compiler: Any, **_: Any) -> str:
    return "xid8"


# Conditions that are written differently for each database.


class IsSelected(FunctionElement[bool]):
    """A condition that a column is one of the ids of a query, which are few and found first.

    PostgreSQL chooses which table to begin with. A plan from when one of them was small begins with all
    of its rows, however many these are by now. An array is there before any row of the others is read.
    """

    inherit_cache = True
    type = sa.Boolean()

    def __init__(self, column: sa.ColumnElement[int], ids: sa.Select[tuple[int]]) -> None:
        super().__init__(column, ids.scalar_subquery())


@compiles(IsSelected)
def _is_in(condition: IsSelected, compiler: Any, **options: Any) -> str:
    column, ids = (compiler.process(each, **options) for each in condition.clauses)
    return f"{column} IN {ids}"


@compiles(IsSelected, "postgresql")
def _is_any(condition: IsSelected, compiler: Any, **options: Any) -> str:
    column, ids = (compiler.process(each, **options) for each in condition.clauses)
    return f"{column} = ANY (ARRAY{ids})"
