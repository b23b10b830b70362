"""How PostgreSQL tells what changed.

Each write stamps the providers it touches with its transaction id. A look remembers the oldest transaction
that was still running (the horizon); whatever becomes visible later carries that stamp or a newer one, in
whatever order the writers commit. Rows may be reported twice, never missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

# A look is quick; one that is not may have met a connection that leads nowhere any more.
_QUICK_SECONDS = 5.0
# The witness of storage.changes.history. Nobody changes the only row of this table on PostgreSQL.
_WITNESS = (
    "SELECT 'history' AS kind, 0 AS reference, xmin::text::bigint AS revision, 0 AS root, "
    "tableoid::bigint AS cluster FROM change_counter"
)
# Prepared once per connection: planning it would cost more than running it. Its name is that of one session,
# so that a pooler cannot have another one answer.
_PREPARE = f"""
    PREPARE {{name}}(xid8) AS
    SELECT 'horizon' AS kind, 0 AS reference,
           pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS revision, 0 AS root, 0::bigint AS cluster
    UNION ALL
    {_WITNESS}
    UNION ALL
    SELECT 'changed', id, revision::text::bigint, root_provider_id, cluster_id
      FROM resource_providers WHERE revision >= $1
    UNION ALL
    SELECT kind, reference, revision::text::bigint, 0, 0 FROM changes WHERE revision >= $1
"""
HORIZON = f"""
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, revision, cluster
      FROM (SELECT 1) AS one LEFT JOIN ({_WITNESS}) AS witness ON true
"""


class ServerLookout:
    """A session that has the statement of a look prepared."""

    def __init__(self, connection: sa.Connection) -> None:
        name = f"placement_look_{uuid4().hex}"
        # Few rows are ever new, whatever statistics from before a bulk load say.
        connection.exec_driver_sql("SET enable_seqscan = off")
        connection.exec_driver_sql(_PREPARE.format(name=name))
        self._connection = connection
        self._statement = f"EXECUTE {name}(%s)"

    def rows(self, horizon: int, *, is_quick: bool) -> Sequence[Any]:
        """The rows of a look (storage.changes.feed). Raises errors of SQLAlchemy and of the driver."""
        driver: Any = self._connection.connection.dbapi_connection
        usual = driver.patience
        if is_quick:
            driver.patience = _QUICK_SECONDS
        try:
            # Every search looks; asking the driver itself takes half of the time.
            with driver.cursor() as cursor:
                cursor.execute(self._statement, (str(int(horizon)),))
                found: Sequence[Any] = cursor.fetchall()
        finally:
            driver.patience = usual
        return found
