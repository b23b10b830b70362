"""Column types that differ between the databases."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

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
