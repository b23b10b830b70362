"""Names that are several here and one for MySQL, so that the way back there is closed."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from placement.common.mysql_names import called_one
from placement.server.invariants.invariant import InvariantViolation
from placement.storage import tables
from placement.storage.database import Executor

_NAME = "names-are-several-in-mysql"
_OWNERS = (
    ("projects", tables.projects, tables.consumers.c.project_id),
    ("users", tables.users, tables.consumers.c.user_id),
)


def name_violations(connection: Executor) -> Iterator[InvariantViolation]:
    """Yield a warning for each group of names that MySQL and MariaDB call one.

    They are names of providers, and of projects and users that have consumers. Queries of SQL cannot find
    them alike on every database.
    """
    table = tables.providers
    uuids = {row.name: row.uuid for row in connection.execute(sa.select(table.c.name, table.c.uuid))}
    for group in called_one(uuids):
        yield _warning("providers", [f"'{name}' ({uuids[name]})" for name in group])
    for kind, table, column in _OWNERS:
        query = sa.select(table.c.external_id).where(table.c.id.in_(sa.select(column)))
        for group in called_one(row.external_id for row in connection.execute(query)):
            yield _warning(kind, [f"'{name}'" for name in group])


def _warning(kind: str, names: list[str]) -> InvariantViolation:
    listed = ", ".join(names)
    sentence = f"{kind} {listed}: one name in MySQL and MariaDB; `placement export` to them is refused"
    return InvariantViolation(_NAME, True, sentence)
