"""Use cases on given names: writing, listing, and reading the ones that an answer needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from placement.engine.domain import request_scope
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import BODY, BadValues, Conflict, Finding
from placement.engine.domain.given_names import (
    GivenName,
    GivenNameKind,
    NameKey,
    NamesById,
    WrittenNames,
)
from placement.engine.domain.identifiers import normalize_uuid
from placement.names import statements
from placement.providers import view as providers_view
from placement.storage.database import Database, Transaction, run_in_transaction

MOST_NAMES = 1_000_000
"""How many names a service keeps."""
MOST_AT_ONCE = 1000
"""How many names a call may write."""
_TARGET = str(TargetKind.GIVEN_NAMES)


class ConsumerRow(Protocol):
    """A row about a consumer, with its project and its user."""

    @property
    def consumer_uuid(self) -> str: ...
    @property
    def project_id(self) -> str: ...
    @property
    def user_id(self) -> str: ...


class GivenNames:
    """A use case that keeps the names of projects, users and consumers.

    A caller that is bound to clusters lists names with one of these only, and gets the names of what it was
    shown otherwise.
    """

    for_bound_callers = True

    def __init__(self, database: Database, most: int = MOST_NAMES) -> None:
        self._database = database
        self._most = most

    def write(self, wanted: Mapping[NameKey, str | None]) -> WrittenNames:
        """Give names, or take them away where there is None; all or nothing.

        Raises Conflict if there were more names than a service keeps; Forbidden.
        """
        request_scope.require_everything()

        def work(transaction: Transaction) -> WrittenNames:
            rows = {
                NameKey(each.kind, each.uuid): each
                for each in statements.names_with(transaction, wanted, keep=True)
            }
            new = {
                key: name
                for key, name in wanted.items()
                if name is not None and (key not in rows or rows[key].name != name)
            }
            gone = [key for key, name in wanted.items() if name is None and key in rows]
            statements.write(transaction, new, {key: row.id for key, row in rows.items()})
            if gone:
                statements.delete(transaction, [rows[key].id for key in gone])
            if new.keys() - rows.keys():
                self._require_room(transaction)
            if new or gone:
                before = {"/".join(key): rows[key].name for key in (*new, *gone) if key in rows}
                after = {"/".join(key): name for key, name in new.items()}
                kind = TargetKind.GIVEN_NAMES
                transaction.record(Action.UPDATE, kind, _TARGET, before=before, after=after)
            return WrittenNames(len(new), len(gone), len(wanted) - len(new) - len(gone))

        return run_in_transaction(self._database, work)

    def _require_room(self, transaction: Transaction) -> None:
        if statements.count(transaction, self._most) > self._most:
            raise Conflict(f"A service keeps {self._most} names; delete some that nothing needs, with null.")

    def listed(
        self, filters: Mapping[str, str], cluster: str | None, after: int, count: int
    ) -> tuple[list[GivenName], int | None]:
        """Return the next names with these values, and the id after which the following page begins.

        With a `cluster` only names of what holds something there. Raises BadRequest for an unknown cluster.
        """
        with self._database.read() as connection:
            providers_view.require_cluster(connection, cluster)
            found = statements.names_after(connection, filters, cluster, after, count + 1)
        return found[:count], found[count - 1].id if len(found) > count else None

    def of(
        self,
        projects: Collection[str | None] = (),
        users: Collection[str | None] = (),
        consumers: Collection[str | None] = (),
    ) -> NamesById:
        """Return the names of what the caller is shown, as far as there are some."""
        asked = dict(zip(GivenNameKind, (projects, users, consumers), strict=True))
        keys = {NameKey(kind, uuid) for kind, uuids in asked.items() for uuid in uuids if uuid}
        found: dict[str, dict[str, str]] = {kind: {} for kind in GivenNameKind}
        if keys:
            with self._database.read() as connection:
                for each in statements.names_with(connection, keys):
                    found[each.kind][each.uuid] = each.name
        return NamesById(*found.values())

    def beside(self, rows: Collection[ConsumerRow]) -> NamesById:
        """Return the names of the consumers, projects and users of some rows, in one statement."""
        return self.of(
            {row.project_id for row in rows},
            {row.user_id for row in rows},
            {row.consumer_uuid for row in rows},
        )


def keys_of(entries: Collection[Mapping[str, str | None]]) -> dict[NameKey, str | None]:
    """Return the names of a body by what they name, ids of consumers normalized.

    Raises BadRequest for all ids of consumers that are not UUIDs, or for things that come twice.
    """
    wanted: dict[NameKey, str | None] = {}
    findings = []
    for at, entry in enumerate(entries):
        kind, uuid = str(entry["kind"]), str(entry["uuid"])
        place = BODY / "names" / at / "uuid"
        normal = normalize_uuid(uuid) if kind == GivenNameKind.CONSUMER else uuid
        key = NameKey(kind, normal or uuid)
        if normal is None:
            findings.append(Finding(f"is not a UUID, as every {kind} has: {uuid!r}", place))
        elif key in wanted:
            findings.append(Finding(f"comes twice: {kind} {normal}", place))
        wanted[key] = entry["name"]
    if findings:
        raise BadValues(findings)
    return wanted
