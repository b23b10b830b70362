"""Pages of audit records."""

from __future__ import annotations

from dataclasses import dataclass

from placement.domain.audit import AuditFilter, RecordHead, StoredRecord
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

    def heads(
        self, wanted: AuditFilter, marker: int | None, count: int
    ) -> tuple[list[RecordHead], int | None]:
        """The next records as lists show them, and the marker of the following page."""
        with self._database.read() as connection:
            found = reading.heads(connection, wanted, marker, count + 1)
        return found[:count], found[count - 1].id if len(found) > count else None

    def listed(self, wanted: AuditFilter, marker: int | None, count: int) -> AuditPage:
        """The next records to which all that is wanted applies."""
        with self._database.read() as connection:
            found = reading.page(connection, wanted, marker, count + 1)
        return AuditPage(found[:count], found[count - 1].id if len(found) > count else None)
