"""How SQLite tells what changed: writers are serial, so a counter is the stamp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

# The second part is the witness of storage.changes.history.
_LOOK = """
    SELECT 'horizon' AS kind, 0 AS reference, value + 1 AS revision, 0 AS root, 0 AS cluster
      FROM change_counter
    UNION ALL
    SELECT 'history', 0, schema_version, 0, 0 FROM pragma_schema_version
    UNION ALL
    SELECT 'changed', id, revision, root_provider_id, cluster_id
      FROM resource_providers WHERE revision >= :horizon
    UNION ALL
    SELECT kind, reference, revision, 0, 0 FROM changes WHERE revision >= :horizon
"""
HORIZON = "SELECT value + 1, schema_version, 0 FROM change_counter, pragma_schema_version"


class FileLookout:
    """A connection that knows for free whether anything was committed since it looked last."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._data_version: int | None = None

    def rows(self, horizon: int, *, is_quick: bool) -> Sequence[Any] | None:
        """The rows of a look (storage.changes.feed), None if nothing changed. Raises errors of SQLAlchemy."""
        version = self._connection.exec_driver_sql("PRAGMA data_version").scalar_one()
        if version == self._data_version:
            return None
        rows = self._connection.exec_driver_sql(_LOOK, {"horizon": int(horizon)}).all()
        self._data_version = version
        return rows
