"""Statements on groups of consumers: who is in them, and their locks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

import sqlalchemy as sa

from placement.storage import tables
from placement.storage.database import Executor, Transaction
from placement.storage.statements import names
from placement.storage.statements.given_rows import RowStatement

_table = tables.consumer_groups
_consumers = tables.consumers
_JOIN = RowStatement(
    "UPDATE consumers SET group_name = given.group_name FROM {rows} WHERE consumers.uuid = given.uuid",
    "given",
    {"uuid": "varchar", "group_name": "varchar"},
)


def members(connection: Executor, groups: Collection[str]) -> dict[str, set[str]]:
    """The uuids of the consumers in each of the groups that has any."""
    found: dict[str, set[str]] = defaultdict(set)
    if groups:
        columns = _consumers.c.group_name, _consumers.c.uuid
        for name, uuid in connection.execute(sa.select(*columns).where(columns[0].in_(sorted(groups)))):
            found[name].add(uuid)
    return found


def lock(transaction: Transaction, groups: Collection[str]) -> None:
    """Lock groups until the transaction ends, in ascending order; those that are new come to be."""
    if groups:
        names.insert_ignoring_known(transaction, _table, "name", groups)
        statement = sa.select(_table.c.id).where(_table.c.name.in_(sorted(groups))).order_by(_table.c.name)
        transaction.execute(transaction.locked(statement)).all()


def join(transaction: Transaction, groups: Mapping[str, str]) -> None:
    """Put consumers into groups, by their uuids."""
    if groups:
        _JOIN.run(transaction, sorted(groups.items()))
