"""Pages of audit records."""

from __future__ import annotations

from dataclasses import dataclass

from placement.domain.audit import AuditFilter, StoredRecord
from placement.storage.audit import reading
from placement.storage.database import Database


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Records from the newest to the oldest; `next` is the marker of the following page, None on the last."""

    records: list[StoredRecord]
    next: int | None


class AuditTrail:
    """Reads who changed what."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def listed(
        self, wanted: AuditFilter, marker: int | None, count: int, *, documents: bool = True
    ) -> AuditPage:
        """The next records to which all that is wanted applies; without `documents` these are not read."""
        with self._database.read() as connection:
            found = reading.page(connection, wanted, marker, count + 1, documents=documents)
        return AuditPage(found[:count], found[count - 1].id if len(found) > count else None)
