"""Rows in batches from a cursor on the server, inside a transaction that was begun by a statement.

The driver's own named cursors insist on transactions of the driver's making.
"""

from __future__ import annotations

import uuid
from typing import Any

from placement.storage.backends.silence import WatchedCursor

_FIRST_ROWS = 1000


class StreamingCursor(WatchedCursor):
    """A cursor that has the server keep the rows until they are asked for; it ends with the transaction."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._label = f"placement_rows_{uuid.uuid4().hex}"
        self._is_at_end = False

    def execute(self, query: Any, vars: Any = None) -> None:
        """Run a query and fetch its first rows."""
        text = query.decode() if isinstance(query, bytes) else query
        fetch = f"FETCH FORWARD {_FIRST_ROWS} FROM {self._label}"
        super().execute(f"DECLARE {self._label} NO SCROLL CURSOR FOR {text}; {fetch}", vars)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next rows, none at the end."""
        wanted = self.arraysize if size is None else size
        rows: list[tuple[Any, ...]] = super().fetchmany(wanted)
        if not rows and not self._is_at_end:
            super().execute(f"FETCH FORWARD {wanted} FROM {self._label}")
            rows = super().fetchmany(wanted)
            self._is_at_end = not rows
        return rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, None at the end."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        found = []
        while rows := self.fetchmany(_FIRST_ROWS):
            found += rows
        return found
