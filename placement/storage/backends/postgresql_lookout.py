"""The questions to PostgreSQL about changes: statements that are prepared once in each session that looks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from placement.storage import node_parts, records, tables

# The witness of the history. On PostgreSQL the only row of this table never changes.
_WITNESS = (
    "SELECT 'history' AS kind, 0 AS reference, xmin::text::bigint AS revision, 0 AS root, "
    "tableoid::bigint AS cluster, NULL AS document FROM change_counter"
)


def _is_given(column: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    return column == sa.any_(sa.literal_column("$1"))


@cache
def _text(statement: sa.SelectBase) -> str:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    return str(statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


_CHANGED = records.changed(
    sa.literal_column("$1"),
    sa.literal_column("$3", sa.Integer),
    sa.func.json_build_array,
    sa.func.json_agg,
    tables.inventories.c.allocation_ratio,
)
_LOOK = f"""
    SELECT 'horizon' AS kind, 0 AS reference,
           pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS revision, 0 AS root, 0::bigint AS cluster,
           NULL AS document
    UNION ALL
    {_WITNESS}
    UNION ALL
    {_text(_CHANGED)}
    UNION ALL
    SELECT kind, reference, revision::text::bigint, 0, 0, NULL FROM changes WHERE revision >= $1
    UNION ALL
    SELECT 'rules', id, rules_generation::bigint, 0, 0, NULL
      FROM clusters WHERE id = ANY($2) AND rules_generation > 0
"""
_RECORDS = records.everything_about(_is_given)
_NODE_PARTS = node_parts.together(_is_given, sa.literal_column("$2", sa.Integer))
HORIZON = f"""
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, revision, cluster
      FROM (SELECT 1) AS one LEFT JOIN ({_WITNESS}) AS witness ON true
"""


class ServerLookout:
    """A session that has the statements of looks prepared: planning them would cost more than running them.

    Each write stamps the providers it touches with its transaction id. A look remembers the oldest
    transaction that was still running (the horizon); whatever becomes visible later carries that stamp or a
    newer one, in whatever order the writers commit. Rows may be reported twice, never missed.
    """

    def __init__(self, connection: sa.Connection, are_others_answered: Callable[[], bool]) -> None:
        """Prepare the statements; `are_others_answered` is asked about a look that has no answer."""
        # The names are of one session, so that a pooler cannot have another session answer.
        name = uuid4().hex
        # Few rows are ever new, whatever statistics from before a bulk load say: a bitmap costs more than it
        # saves. Where many are, parallel workers of the server would take longer to begin than to help.
        connection.exec_driver_sql(
            "SET enable_seqscan = off; SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0; "
            f"PREPARE placement_look_{name}(xid8, integer[], integer) AS {_LOOK}; "
            f"PREPARE placement_records_{name}(integer[]) AS {_text(_RECORDS.statement)}; "
            f"PREPARE placement_nodes_{name}(integer[], integer) AS {_text(_NODE_PARTS.statement)}"
        )
        driver: Any = connection.connection.dbapi_connection
        driver.are_others_answered = are_others_answered
        self._driver = driver
        self._look = f"EXECUTE placement_look_{name}(%s, %s, %s)"
        self._records = f"EXECUTE placement_records_{name}(%s)"
        self._nodes = f"EXECUTE placement_nodes_{name}(%s, %s)"

    def rows(
        self, horizon: int, clusters: Collection[int], most_documents: int, *, is_quick: bool
    ) -> Sequence[Any]:
        self._driver.is_quick = is_quick
        try:
            return self._asked(self._look, str(int(horizon)), list(clusters), most_documents)
        finally:
            self._driver.is_quick = False

    def records(self, ids: Sequence[int]) -> Sequence[Sequence[Any]]:
        return _RECORDS.parted(self._asked(self._records, list(ids)))

    def node_parts(self, cluster_id: int, roots: Collection[int]) -> Sequence[Sequence[Any]]:
        return _NODE_PARTS.parted(self._asked(self._nodes, list(roots), cluster_id))

    def _asked(self, statement: str, *parameters: object) -> Sequence[Any]:
        # Every search looks; asking the driver itself takes half of the time.
        with self._driver.cursor() as cursor:
            cursor.execute(statement, parameters)
            found: Sequence[Any] = cursor.fetchall()
        return found
